package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/internal/turns"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// readBuffer is the size of a connection's input buffer. Longer bodies have memory of their
// own.
const readBuffer = 2 << 10

// errDraining ends a reader when the server stops.
var errDraining = errors.New("the server stops")

// connection is the connection of a client. One goroutine reads and starts its requests, the
// other sends the answers in the same order.
type connection struct {
	server *Server
	conn   net.Conn
	// listener is the one that the client has connected to.
	listener *Listener
	// secure is TLS over conn; nil: there is none.
	secure *tls.Conn
	host   string
	input  *bufio.Reader
	// ctx ends with the connection.
	ctx    context.Context
	cancel context.CancelFunc

	// shown is the state of TLS after the handshake; nil: there was none yet.
	shown atomic.Pointer[tls.ConnectionState]
	// known is who the client is, once it has authenticated; login is its authentication. leave ends
	// its place among the connections that have not, and unknown ends the connection if it never does.
	known atomic.Pointer[auth.Principal]
	// certified means that the certificate says who the client is, until it authenticates by SASL. Only
	// the reader uses it.
	certified bool
	login     login
	leave     func()
	unknown   *time.Timer

	// software is the client's name and version. Only the reader uses it.
	software string
	// slots has an element for each request without an answer.
	slots chan struct{}
	// started has those requests, for the sender.
	started chan *exchange
	// active is when the last answer was sent, in nanoseconds since the epoch.
	active atomic.Int64
	// writeBy is when the step that is being written must be received, in nanoseconds since the epoch.
	writeBy atomic.Int64
	// served means that the client has received an answer to more than ApiVersions.
	served atomic.Bool
	// throttled is until when no request is read, in nanoseconds since the epoch, see throttle.go.
	throttled atomic.Int64
	stopping  atomic.Bool

	// flows are the requests of the client where they wait for memory and turns. Only the reader uses them.
	flows struct{ requests, large, appends turns.Flow }

	mu        sync.Mutex
	held      int64 // of the server's memory for requests
	large     int64 // the part of held that is for large ones
	converted int64 // of the memory for converted message sets
	ended     int   // how many of the two goroutines have ended
}

// exchange is a request in flight.
type exchange struct {
	header
	answer answer
	memory allowance
	began  time.Time
	// block has the request; spent means that nothing of that is in use after the answer.
	block *topic.Block
	spent bool
	// followed means that the trail has the request, with the resources that it was allowed to use.
	followed               bool
	allowed                []string
	held, large, converted int64
	// turn is what a Produce request has of the server's appends, until lapse gives it back; lapse is nil if it has none.
	turn  int64
	lapse *time.Timer
}

func newConnection(ctx context.Context, s *Server, conn net.Conn, listener *Listener) *connection {
	c := &connection{
		server: s, conn: conn, listener: listener, leave: func() {},
		slots: make(chan struct{}, s.options.MaxInFlight), started: make(chan *exchange, s.options.MaxInFlight),
	}
	stream := conn
	if listener.TLS != nil {
		c.secure = tls.Server(below{conn, c}, listener.TLS)
		stream = c.secure
	}
	c.input = bufio.NewReaderSize(stream, readBuffer)
	c.host = conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(c.host); err == nil {
		c.host = host
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	if s.options.Accounts != nil {
		c.unknown = time.AfterFunc(loginTime, c.cancel)
		context.AfterFunc(c.ctx, func() { c.unknown.Stop() })
	}
	context.AfterFunc(c.ctx, func() {
		c.close()
		s.shares.leave(c)
		s.remove(c)
	})
	return c
}

// drain makes the reader accept no more requests.
func (c *connection) drain() {
	c.stopping.Store(true)
	_ = c.conn.SetReadDeadline(time.Now())
}

// turnAway closes the connection of a client that the server does not accept.
func (c *connection) turnAway() {
	c.stopping.Store(true)
	c.cancel()
}

// close closes the connection. If the client had no answer yet, because the server stops or
// is full, the connection is reset: clients take an orderly end in place of the first answer
// for an error of TLS or SASL, and some then do not try another node (franz-go fails the
// records).
func (c *connection) close() {
	if tcp, ok := c.conn.(interface{ SetLinger(seconds int) error }); ok && c.stopping.Load() && !c.served.Load() {
		_ = tcp.SetLinger(0)
	}
	_ = c.conn.Close()
}

// read reads and starts requests until the connection ends. It returns no error: a fault of
// one client ends its connection only.
func (c *connection) read(context.Context) error {
	defer c.end()
	defer close(c.started)
	if err := c.handshake(); err != nil {
		c.logEnd("kafka connection ends before its first request", err)
		c.cancel()
		return nil
	}
	for {
		if err := c.readOne(); err != nil {
			if errors.Is(err, errDraining) {
				return nil // the sender ends after the last answer
			}
			c.logEnd("kafka connection ends", err)
			c.cancel()
			return nil
		}
	}
}

// handshakeTime is how long a client has for the handshake of TLS.
const handshakeTime = 10 * time.Second

// handshake does that of TLS, if the connection has it. Until it is done the client has sent no
// request, and costs no more than its connection.
func (c *connection) handshake() error {
	if c.secure == nil {
		return nil
	}
	c.writeBy.Store(time.Now().Add(handshakeTime).UnixNano())
	if err := c.setReadDeadline(handshakeTime); err != nil {
		return err
	}
	if err := c.secure.HandshakeContext(c.ctx); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	state := c.secure.ConnectionState()
	c.shown.Store(&state)
	c.certify(&state)
	return nil
}

// logEnd logs why a connection ends, unless the client has closed it.
func (c *connection) logEnd(message string, err error) {
	if errors.Is(err, io.EOF) || c.ctx.Err() != nil {
		return
	}
	c.server.log.Debug(message, "from", c.conn.RemoteAddr().String(), "error", err)
}

// readOne reads one request and starts it.
func (c *connection) readOne() error {
	if err := c.awaitRequest(); err != nil {
		return err
	}
	if err := c.awaitThrottle(); err != nil {
		return err
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	x := &exchange{}
	frame, err := c.readFrame(x)
	if err != nil {
		return err
	}
	x.began = time.Now()
	c.server.metrics.received.Add(float64(sizeBytes + len(frame)))
	if err := c.start(x, frame); err != nil {
		return err
	}
	if x.key == keyJoinGroup || x.key == keySyncGroup { // they wait for others, and have copied what they need
		c.release(x)
	}
	c.started <- x // has space for each slot
	return nil
}

// awaitRequest waits for the first byte of a request. It ends a connection that is idle for
// too long; one that waits for an answer is not idle.
func (c *connection) awaitRequest() error {
	silent := time.Now()
	for {
		if c.input.Buffered() > 0 {
			return nil
		}
		if err := c.setReadDeadline(c.server.options.IdleTimeout); err != nil {
			return err
		}
		_, err := c.input.Peek(1)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.stopping.Load():
			return errDraining
		}
		if last := time.Unix(0, c.active.Load()); last.After(silent) {
			silent = last
		}
		if len(c.slots) == 0 && time.Since(silent) >= c.server.options.IdleTimeout {
			return fmt.Errorf("idle for %v", c.server.options.IdleTimeout)
		}
	}
}

// setReadDeadline sets the read deadline, unless the server is stopping.
func (c *connection) setReadDeadline(after time.Duration) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(after)); err != nil {
		return err
	}
	if c.stopping.Load() {
		return errDraining
	}
	return nil
}

// readFrame reads the rest of a request, once there is memory for it.
func (c *connection) readFrame(x *exchange) ([]byte, error) {
	if err := c.setReadDeadline(c.server.options.ReadTimeout); err != nil {
		return nil, err
	}
	prefix, err := c.input.Peek(sizeBytes)
	if err != nil {
		return nil, c.cutShort(err)
	}
	most := c.server.options.MaxRequestBytes
	if c.mustAuthenticate() {
		most = min(most, loginBytes)
	}
	size, err := frameSize(prefix, most)
	if err != nil {
		return nil, err
	}
	_, _ = c.input.Discard(sizeBytes) // Peek has read them
	if err := c.reserve(x, int64(size)); err != nil {
		return nil, err
	}
	if x.block, err = readBody(c.newBodyReader(x), size); err != nil {
		return nil, c.cutShort(err)
	}
	return x.block.Bytes, nil
}

// cutShort returns the error of an incomplete request.
func (c *connection) cutShort(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if c.stopping.Load() {
			return errDraining
		}
		return fmt.Errorf("%w: the rest did not come within %v", errMalformed, c.server.options.ReadTimeout)
	}
	return err
}

// reserve waits for memory for a request. All requests take from the large budget first, so
// that no two wait for each other.
func (c *connection) reserve(x *exchange, size int64) error {
	if size > largeRequest {
		got, err := c.server.large.TakeFor(c.ctx, &c.flows.large, size, size)
		if err != nil {
			return err
		}
		c.account(x, 0, got, 0)
	}
	got, err := c.server.requests.TakeFor(c.ctx, &c.flows.requests, size, size)
	if err != nil {
		return err
	}
	c.account(x, got, 0, 0)
	return nil
}

// charge adds the memory of a decoded request to that of its bytes, without waiting: what one
// connection takes in this way is bounded, and it reads its next request only when there is memory.
func (c *connection) charge(x *exchange, n int64) {
	c.server.requests.Change(-n)
	c.account(x, n, 0, 0)
}

// obstructs reports whether others wait for memory that requests of this connection hold.
func (c *connection) obstructs() bool {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	return held > smallAnswer && c.server.requests.Contended()
}

// account records memory that was taken for a request.
func (c *connection) account(x *exchange, held, large, converted int64) {
	x.held += held
	x.large += large
	x.converted += converted
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += held
	c.large += large
	c.converted += converted
}

// release gives the memory of a request back.
func (c *connection) release(x *exchange) {
	held, large, converted := x.held, x.large, x.converted
	if held == 0 {
		return
	}
	c.account(x, -held, -large, -converted)
	c.giveBack(held, large, converted)
}

func (c *connection) giveBack(held, large, converted int64) {
	c.server.requests.Change(held)
	if large > 0 {
		c.server.large.Change(large)
	}
	if converted > 0 {
		c.server.converted.Change(converted)
	}
}

// end is called by each of the two goroutines. The last one releases the memory of requests
// without an answer.
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if c.ended == 2 {
		c.giveBack(c.held, c.large, c.converted)
	}
}

// start parses a request and starts it.
func (c *connection) start(x *exchange, frame []byte) error {
	x.memory = allowance{server: c.server, ctx: c.ctx}
	if c.login.bare {
		c.startBare(x, frame)
		return nil
	}
	x.header = parseHeader(frame)
	kind := c.server.kinds[x.key]
	if kind == nil || x.version < kind.min || x.version > kind.max {
		if x.key == keyAPIVersions {
			x.answer = respond(c.server.announce(0, kerr.UnsupportedVersion.Code))
			return nil
		}
		return c.unsupported(x.header, kind)
	}
	if err := c.checkKnown(x.key); err != nil {
		c.recordStranger(x.key)
		return err
	}
	request, err := parseRequest(&x.header, frame)
	if err != nil {
		return err
	}
	c.server.metrics.request(x.key)
	x.followed = c.server.options.Trail != nil && c.server.options.Trail.Follows(x.key)
	c.charge(x, int64(x.elements)*decodeCost)
	if x.key == keyProduce {
		if err := c.awaitTurn(x); err != nil {
			return err
		}
	}
	from := &call{key: x.key, client: x.client, host: c.host, software: c.software, size: len(frame), session: c, memory: &x.memory, exchange: x, principal: c.principal()}
	return c.recovered(x, func() { x.answer = kind.handle(c.server, from, request) })
}

// unsupported logs the version that a client asked for, and the supported ones, once a minute for
// each kind. No answer exists that the client could decode.
func (c *connection) unsupported(h header, kind *request) error {
	served := "none"
	if kind != nil {
		served = fmt.Sprintf("%d to %d", kind.min, kind.max)
	}
	if missed, due := c.server.warned.due(h.key); due {
		c.server.log.Warn("kafka request is not supported: the connection ends", "from", c.conn.RemoteAddr().String(),
			"request", requestName(h.key), "key", h.key, "version", h.version, "served", served, "not_logged_before", missed)
	}
	return fmt.Errorf("request %d version %d is not supported", h.key, h.version)
}

// recovered calls f. A panic in it ends the connection, and no other.
func (c *connection) recovered(x *exchange, f func()) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			c.server.log.Error("kafka request panics: the connection ends", "request", requestName(x.key),
				"version", x.version, "client", x.client, "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: panic: %v", requestName(x.key), cause)
		}
	}()
	f()
	return nil
}
