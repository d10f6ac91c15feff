package ops

import (
	"context"
	"mime"
	"net/http"
	"sync"
)

// streams has the requests that are answered with an event stream. Such an answer
// does not end by itself, so the server must end it to stop.
type streams struct {
	mu      sync.Mutex
	stopped bool
	open    map[*streamWriter]struct{}
}

// wrap calls next with a context that stop ends if the answer is an event stream.
func (s *streams) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stream := &streamWriter{ResponseWriter: w, streams: s, cancel: cancel}
		defer s.remove(stream)
		next.ServeHTTP(stream, r.WithContext(ctx))
	})
}

// stop ends all event streams, including those that begin later.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for stream := range s.open {
		stream.cancel()
	}
}

func (s *streams) add(stream *streamWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*streamWriter]struct{}{}
	}
	s.open[stream] = struct{}{}
	if s.stopped {
		stream.cancel()
	}
}

func (s *streams) remove(stream *streamWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, stream)
}

// streamWriter detects an event stream by the content type of the answer.
type streamWriter struct {
	http.ResponseWriter
	streams *streams
	cancel  context.CancelFunc
	began   bool
}

// Unwrap is for http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *streamWriter) begin() {
	if w.began {
		return
	}
	w.began = true
	kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if err == nil && kind == "text/event-stream" {
		w.streams.add(w)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *streamWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *streamWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, for handlers that check for it.
func (w *streamWriter) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a client that is gone needs no flush
}
