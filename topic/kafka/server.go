package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/internal/turns"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/spans"
)

const (
	// drainTime is how long Stop waits for answers.
	drainTime = 3 * time.Second
	// acceptRetry is the pause after a temporary failure to accept connections, for example with
	// too many open files.
	acceptRetry = 100 * time.Millisecond
)

// Server serves Kafka clients. It is a lifecycle.Service: Start listens; Stop refuses
// connections, answers open requests within 3 seconds, and closes all connections.
type Server struct {
	broker  *broker.Broker
	kinds   map[int16]*request
	options Options
	log     *slog.Logger
	metrics *metrics
	spans   *spans.Spans
	group   *lifecycle.Group

	// requests and large bound the memory of requests: large ones need both,
	// so that they leave half of it to others. answers bounds the memory of answers, and turns the
	// number of large ones that are built at once.
	requests, large, answers, turns *turns.Queue
	// converted bounds the memory of message sets that become batches.
	converted *turns.Queue
	// appends bounds what is done at a time for Produce requests, see awaitTurn.
	appends  *turns.Queue
	sessions *fetchSessions
	shares   *shareSessions

	warned warnings
	// strangers bounds the connections of clients that have not authenticated.
	strangers *connlimit.Limiter

	listeners []net.Listener
	// draining is closed when the server is about to stop, so that open requests answer.
	draining chan struct{}

	mu          sync.Mutex
	connections map[*connection]struct{}
	stopped     bool
	empty       chan struct{} // closed when stopped and no connection is left
}

// NewServer returns a server for the topics of a broker. It is not started.
func NewServer(broker *broker.Broker, options Options) *Server {
	options = options.WithDefaults()
	s := &Server{
		broker: broker, kinds: kinds(), options: options, log: options.Logger, spans: spans.New(options.TracerProvider),
		group:    lifecycle.NewGroup(context.Background()),
		requests: turns.NewQueue(options.RequestMemory), large: turns.NewQueue(options.RequestMemory / 2),
		converted: turns.NewQueue(options.RequestMemory / 2),
		appends:   turns.NewQueue(appendsPerProcessor * int64(runtime.GOMAXPROCS(0))),
		answers:   turns.NewQueue(options.FetchMemory), turns: turns.NewQueue(largeAtOnce), sessions: newFetchSessions(), shares: newShareSessions(),
		draining: make(chan struct{}), connections: map[*connection]struct{}{}, empty: make(chan struct{}),
	}
	s.strangers = connlimit.New(connlimit.Bounds{Total: strangersMax, PerClient: strangersPerClient}, s.log)
	s.metrics = newMetrics(s)
	return s
}

// Name implements lifecycle.Service.
func (s *Server) Name() string { return "kafka" }

// Start implements lifecycle.Service. It fails if an option is out of range, or
// the address is taken.
func (s *Server) Start(ctx context.Context) error {
	if err := s.options.Validate(); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	if s.options.Accounts != nil || s.options.CheckCertificate != nil {
		s.group.Go("check accounts", s.endLogins)
	}
	return nil
}

// listen opens all listeners or none, and then accepts clients at them.
func (s *Server) listen(ctx context.Context) error {
	var config net.ListenConfig
	all := s.options.listeners()
	for _, of := range all {
		listener, err := config.Listen(ctx, "tcp", of.Addr)
		if err != nil {
			s.closeListeners()
			return err
		}
		s.listeners = append(s.listeners, s.options.Bound(listener))
	}
	for i, of := range all {
		s.group.Go("accept", func(ctx context.Context) error { return s.accept(ctx, s.listeners[i], of) })
		s.log.Info("kafka listens", "addr", s.listeners[i].Addr().String(), "name", of.Name, "tls", of.TLS != nil)
	}
	return nil
}

func (s *Server) closeListeners() {
	for _, listener := range s.listeners {
		_ = listener.Close()
	}
}

// Addr returns the address of the server, of its first listener if there are several, once it has started.
func (s *Server) Addr() string { return s.listeners[0].Addr().String() }

// Failed implements lifecycle.Service.
func (s *Server) Failed() <-chan struct{} { return s.group.Failed() }

// Err implements lifecycle.Service.
func (s *Server) Err() error { return s.group.Err() }

// Stop implements lifecycle.Service.
func (s *Server) Stop(ctx context.Context) error {
	s.closeListeners() // first, since clients reconnect when their connections end
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	if first {
		close(s.draining)
		s.closeIfEmpty()
	}
	for c := range s.connections {
		c.drain()
	}
	s.mu.Unlock()
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	select {
	case <-s.empty:
	case <-limit.C:
	case <-ctx.Done():
	}
	return s.group.Stop(ctx)
}

// accept serves new connections of a listener.
func (s *Server) accept(ctx context.Context, from net.Listener, of *Listener) error {
	for {
		conn, err := from.Accept()
		switch {
		case err == nil:
			s.admit(ctx, conn, of)
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			s.log.Warn("kafka cannot accept a connection", "error", err)
			select {
			case <-time.After(acceptRetry):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// admit serves a connection, unless the server stops, or too many clients have not authenticated.
func (s *Server) admit(ctx context.Context, conn net.Conn, listener *Listener) {
	c := newConnection(ctx, s, conn, listener)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || !c.enter() {
		c.turnAway()
		return
	}
	s.connections[c] = struct{}{}
	s.group.Go("read requests", c.read)
	s.group.Go("send answers", c.send)
}

// remove removes a connection that has ended.
func (s *Server) remove(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.closeIfEmpty()
}

func (s *Server) closeIfEmpty() {
	if !s.stopped || len(s.connections) > 0 {
		return
	}
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// connected returns the number of connections.
func (s *Server) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections)
}

// advertised returns the address of this broker for a client.
func advertised(c *call) (host string, port int32) {
	address := c.session.listener.Advertise
	if address == "" {
		address = c.session.conn.LocalAddr().String()
	}
	host, port, err := splitAddress(address)
	if err != nil { // a pipe in a test has no network address
		return address, 0
	}
	return host, port
}
