package ops

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A client that neither sends nor reads holds a connection, and with it a file
// descriptor. So each deadline rolls with what the client has done.
const (
	// bodyGrace is how long a handler may wait for a body in all, and bodyRate at how many
	// bytes a second the client earns time: the values of Apache's mod_reqtimeout.
	bodyGrace = 20 * time.Second
	bodyRate  = 500
	// restTime and restMost bound what is read of a body that its handler has left: a
	// client that still sends it would not see the answer.
	restTime = 5 * time.Second
	restMost = 64 << 20
	// serverRest is how much of it net/http reads itself, after the answer.
	serverRest = 256 << 10
	// pieceTime is how long a client may take for pieceSize bytes of an answer, or less.
	pieceTime = 30 * time.Second
	pieceSize = 64 << 10
)

// body is the body of a request, with a deadline while it is read.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	request *http.Request
	reply   *reply

	mu    sync.Mutex // a proxy reads in one goroutine and answers in another
	left  time.Duration
	began bool
	ended bool
}

// Read implements io.Reader. A client that is too slow is os.ErrDeadlineExceeded.
func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	b.mu.Lock()
	b.began = true
	b.deadline(began.Add(b.left))
	b.mu.Unlock()
	n, err := 0, error(nil)
	b.reply.awaitClient(func() { n, err = b.ReadCloser.Read(p) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left -= time.Since(began)
	if memory := b.reply.memory.of; memory == nil || memory.waiting.Load() == 0 { // others wait for bodyGrace at most
		b.left = min(b.left+time.Duration(n)*time.Second/bodyRate, bodyGrace)
	}
	b.ended = b.ended || errors.Is(err, io.EOF)
	if err == nil || b.ended {
		b.deadline(time.Time{}) // HTTP/2 enforces it while nobody reads, and HTTP/1 after the end
	}
	return n, err
}

// Close leaves the body open: the server closes it.
func (b *body) Close() error { return nil }

// deadline ignores errors: a writer without a connection has no deadline.
func (b *body) deadline(at time.Time) { _ = b.control.SetReadDeadline(at) }

// unread reports whether the client may be sending what nobody reads. In HTTP/2 the
// server tells it to stop.
func (b *body) unread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.began || b.request.Header.Get("Expect") == ""
	return b.request.ProtoMajor == 1 && asked && !b.ended
}

// patientListener gives each write a deadline that rolls, and each connection a context.
type patientListener struct{ net.Listener }

// Accept implements net.Listener.
func (l patientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &patientConn{Conn: conn}, nil
}

// connectionKey is the key of a request's *patientConn in its context.
type connectionKey struct{}

// connected is http.Server.ConnContext: it returns the context of the requests on a connection, which ends with it.
func connected(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	conn := c.(*patientConn)
	ctx, conn.cancel = context.WithCancel(ctx)
	return context.WithValue(ctx, connectionKey{}, conn)
}

type patientConn struct {
	net.Conn
	cancel context.CancelFunc // ends the context of its requests
	ended  atomic.Bool
}

// end ends the context of the request in progress. No other follows on the connection.
func (c *patientConn) end() {
	c.ended.Store(true)
	c.cancel()
}

// Read implements net.Conn.
func (c *patientConn) Read(p []byte) (int, error) {
	if c.ended.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *patientConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// Write implements net.Conn. A client that does not read is a timeout.
func (c *patientConn) Write(p []byte) (written int, err error) {
	for {
		if err := c.SetWriteDeadline(time.Now().Add(pieceTime)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(written+pieceSize, len(p))])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// CloseWrite lets the client read all that was written before the connection ends.
func (c *patientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SyscallConn implements syscall.Conn, for streams that need no goroutine.
func (c *patientConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
