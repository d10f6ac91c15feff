package watch

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// handled is a sink whose parts the handler's goroutine writes.
type handled struct {
	out   output
	parts chan []byte
	// over is closed when no more parts come.
	over chan struct{}
	left atomic.Bool
}

// maxParts is the most parts that wait to be written.
const maxParts = 2

// waiter writes a stream in the handler's goroutine until the stream ends.
type waiter func(ctx context.Context)

// output writes a part within WriteTime.
type output interface {
	write(part []byte) error
	// close is called once after the last write, failed or not.
	close()
}

func newHandled(out output) *handled {
	return &handled{out: out, parts: make(chan []byte, maxParts), over: make(chan struct{})}
}

// wait writes the parts until the stream is over, the client is gone, or ctx ends.
func (h *handled) wait(ctx context.Context) {
	defer h.out.close()
	defer h.left.Store(true)
	for {
		select {
		case part := <-h.parts:
			if h.out.write(part) != nil {
				return
			}
		case <-h.over:
			h.rest()
			return
		case <-ctx.Done():
			return
		}
	}
}

// rest writes the parts that were sent before the end.
func (h *handled) rest() {
	for {
		select {
		case part := <-h.parts:
			if h.out.write(part) != nil {
				return
			}
		default:
			return
		}
	}
}

func (h *handled) send(part []byte, _ time.Time) (bool, error) {
	select {
	case h.parts <- append([]byte(nil), part...):
		return true, nil
	default:
		return false, nil // The current write has a deadline.
	}
}

func (h *handled) flush(time.Time) error { return nil }
func (h *handled) gone() bool            { return h.left.Load() }
func (h *handled) end()                  { close(h.over) }

// response writes through the HTTP server.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (r *response) write(part []byte) error {
	// A writer without a connection has no deadline.
	_ = r.control.SetWriteDeadline(time.Now().Add(WriteTime))
	_, err := r.w.Write(part)
	if err == nil {
		err = r.control.Flush()
	}
	if err != nil {
		return err // The deadline stays, so the server does not wait for it either.
	}
	// In HTTP/2 a deadline ends the stream even while nothing is written.
	_ = r.control.SetWriteDeadline(time.Time{})
	return nil
}

func (r *response) close() {}

// connection writes to a hijacked connection that is not a socket.
type connection struct {
	conn    net.Conn
	chunked bool
	head    []byte
	failed  bool
}

func (c *connection) write(part []byte) error {
	b := appendChunk(c.head, part, c.chunked)
	c.head = nil
	return c.raw(b)
}

func (c *connection) raw(b []byte) error {
	err := c.conn.SetWriteDeadline(time.Now().Add(WriteTime))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	c.failed = c.failed || err != nil
	return err
}

func (c *connection) close() {
	if c.chunked && !c.failed {
		_ = c.raw(lastChunk) // The connection is closed in any case.
	}
	_ = c.conn.Close()
}
