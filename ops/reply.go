package ops

import (
	"context"
	"crypto/tls"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/access"
)

// streams has the requests that the server may have to end: those that are answered with an event stream, which
// does not end by itself, when it stops; and those of somebody when their token or certificate has ended.
type streams struct {
	mu      sync.Mutex
	stopped bool
	open    map[*reply]struct{}
}

// wrap calls next with a context that stop ends if the answer is an event stream, and
// with deadlines for what the client sends and reads. Requests that share no connection share
// the context of theirs.
func (s *streams) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &reply{ResponseWriter: w, streams: s, multiplexed: r.ProtoMajor > 1}
		if conn, ok := r.Context().Value(connectionKey{}).(*patientConn); ok && !a.multiplexed {
			a.cancel = conn.end
		} else {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			a.cancel, r = cancel, r.WithContext(ctx)
		}
		if r.Body != nil && r.Body != http.NoBody {
			// In a copy: the server decides by the type of its own request's body whether the
			// connection can be used again.
			r = r.WithContext(r.Context())
			a.body = &body{ReadCloser: r.Body, control: http.NewResponseController(w), request: r, left: bodyGrace, reply: a}
			r.Body = a.body
		}
		defer s.remove(a)
		defer a.record()
		defer a.memory.give()
		defer a.turn.give()
		next.ServeHTTP(a, r)
		a.handled = true
		a.end()
	})
}

// stop ends all event streams, including those that begin later.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for a := range s.open {
		if a.stream {
			a.cancel()
		}
	}
}

// endIf ends the requests that ended is true for.
func (s *streams) endIf(ended func(*reply) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.open {
		if ended(a) {
			a.cancel()
		}
	}
}

// streamed says that the answer is an event stream.
func (s *streams) streamed(a *reply) {
	s.add(a, func() { a.stream = true })
}

// sentBy says who sent the request.
func (s *streams) sentBy(a *reply, p *access.Principal) {
	s.add(a, func() { a.sender = p })
}

// certified says that the client has shown a certificate on the connection.
func (s *streams) certified(a *reply, shown *tls.ConnectionState) {
	s.add(a, func() { a.shown = shown })
}

func (s *streams) add(a *reply, set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
	a.listed = true
	if s.open == nil {
		s.open = map[*reply]struct{}{}
	}
	s.open[a] = struct{}{}
	if a.stream && s.stopped {
		a.cancel()
	}
}

func (s *streams) remove(a *reply) {
	if !a.listed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, a)
}

// reply is the writer of one answer. It detects an event stream by its content type.
type reply struct {
	http.ResponseWriter
	streams *streams
	cancel  context.CancelFunc // ends the request's context
	listed  bool               // streams has it
	body    *body              // nil if the request has none
	began   bool
	status  int  // of the answer; 0: none was sent
	handled bool // the handler has returned
	act     act
	stream  bool                 // the answer is an event stream
	sender  *access.Principal    // nil: nobody asked who sent the request
	shown   *tls.ConnectionState // the connection on which the client has shown a certificate; nil: none
	// turn is that of a request which brings new work, or reads, and memory that for its body; see Load.
	turn, memory taken
	// multiplexed answers share a connection: a client may read others and not this one.
	multiplexed bool
}

// Unwrap is for http.ResponseController.
func (a *reply) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *reply) begin() {
	if a.began {
		return
	}
	a.began = true
	if a.body != nil && a.body.unread() {
		a.Header().Set("Connection", "close") // otherwise the server waits for the body before it answers
	}
	if isStream(a.Header().Get("Content-Type")) {
		a.streams.streamed(a)
	}
}

// isStream reports whether a content type is that of event streams. It parses few of the others.
func isStream(contentType string) bool {
	const stream = "text/event-stream"
	contentType = strings.TrimLeft(contentType, " \t")
	if len(contentType) < len(stream) || !strings.EqualFold(contentType[:len(stream)], stream) {
		return false
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == stream
}

// end bounds how long the server reads what the handler has left of the body.
func (a *reply) end() {
	if a.body == nil || !a.body.unread() {
		return
	}
	a.begin()
	a.body.deadline(time.Now().Add(restTime))
	if size := a.body.request.ContentLength; size < 0 || size > serverRest {
		a.Flush()
		_, _ = io.CopyN(io.Discard, a.body.ReadCloser, restMost)
	}
}

// WriteHeader implements http.ResponseWriter.
func (a *reply) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.begin()
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *reply) Write(p []byte) (written int, err error) {
	a.begin()
	for {
		n := 0
		a.patiently(func() {
			a.awaitClient(func() { n, err = a.ResponseWriter.Write(p[written:min(written+pieceSize, len(p))]) })
		})
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Flush implements http.Flusher, for handlers that check for it.
func (a *reply) Flush() {
	a.begin()
	a.patiently(func() {
		_ = http.NewResponseController(a.ResponseWriter).Flush() // a client that is gone needs no flush
	})
}

// patiently gives a write on a connection with others a deadline of its own. The
// connection has those of all its writes.
func (a *reply) patiently(write func()) {
	if !a.multiplexed {
		write()
		return
	}
	control := http.NewResponseController(a.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(pieceTime))
	write()
	_ = control.SetWriteDeadline(time.Time{})
}
