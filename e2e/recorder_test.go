package e2e

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// recorder is a target that echoes and counts the calls of each job.
type recorder struct {
	*httptest.Server
	mu    sync.Mutex
	seen  map[string]int
	calls int
	at    []time.Time // times of the calls
	// slowest bounds the time of an answer. Default 4 ms; set it before the first call.
	slowest time.Duration
	// inside counts the calls that have no answer yet.
	inside atomic.Int64
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{seen: map[string]int{}, slowest: 4 * time.Millisecond}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // the server died while sending
		}
		r.mu.Lock()
		r.seen[request.Header.Get("webhook-id")]++
		r.calls++
		r.at = append(r.at, time.Now())
		r.mu.Unlock()
		r.inside.Add(1)
		defer r.inside.Add(-1)
		pause(request.Context(), rand.N(r.slowest))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	t.Cleanup(r.Close)
	return r
}

// repeated counts the calls of jobs that were called before.
func (r *recorder) repeated() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls - len(r.seen)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
