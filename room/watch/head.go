package watch

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// writeHeader sets the headers of every stream.
func writeHeader(header http.Header) {
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	// A proxy that buffers events would delay visitors.
	header.Set("X-Accel-Buffering", "no")
}

// head returns the head of the response, for a hijacked connection. By the chunks a
// proxy knows that the stream ended and was not cut off; HTTP/1.0 has none.
func head(header http.Header, chunked bool) []byte {
	header = header.Clone()
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	header.Set("Connection", "close")
	b := buffer("HTTP/1.1 200 OK\r\n")
	if chunked {
		header.Set("Transfer-Encoding", "chunked")
	}
	_ = header.Write(&b) // A buffer returns no errors.
	return append(b, "\r\n"...)
}

type buffer []byte

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// appendChunk appends a part in the transfer encoding of the response.
func appendChunk(b, part []byte, chunked bool) []byte {
	if !chunked {
		return append(b, part...)
	}
	b = strconv.AppendInt(b, int64(len(part)), 16)
	b = append(b, "\r\n"...)
	b = append(b, part...)
	return append(b, "\r\n"...)
}

// lastChunk ends a response.
var lastChunk = []byte("0\r\n\r\n")

// take sets the sink of the stream. If the sink needs the handler's goroutine, take
// returns what the goroutine must run.
func (s *stream) take(w http.ResponseWriter, r *http.Request) (wait waiter) {
	control := http.NewResponseController(w)
	// A TLS connection cannot be written without waiting.
	if r.ProtoMajor == 1 && r.TLS == nil {
		conn, _, err := control.Hijack()
		if err == nil {
			return s.takeConn(conn, head(w.Header(), r.ProtoAtLeast(1, 1)), r.ProtoAtLeast(1, 1))
		}
		if !errors.Is(err, http.ErrNotSupported) {
			// The connection is gone: the first write fails.
			s.sink = lost{err}
			return nil
		}
	}
	w.WriteHeader(http.StatusOK)
	handled := newHandled(&response{w: w, control: control})
	s.sink = handled
	return handled.wait
}

func (s *stream) takeConn(conn net.Conn, head []byte, chunked bool) waiter {
	if direct, ok := newDirect(conn, head, chunked); ok {
		s.sink = direct
		return nil
	}
	handled := newHandled(&connection{conn: conn, chunked: chunked, head: head})
	s.sink = handled
	return handled.wait
}

// lost is a sink whose connection is gone.
type lost struct{ err error }

func (l lost) send([]byte, time.Time) (bool, error) { return false, l.err }
func (l lost) flush(time.Time) error                { return l.err }
func (l lost) gone() bool                           { return true }
func (l lost) end()                                 {}
