package e2e

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
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
	// inside counts the calls that have no answer yet, by action, by keyOf and, of "", all; most has
	// the most there ever were.
	inside, most map[string]int
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{seen: map[string]int{}, inside: map[string]int{}, most: map[string]int{}, slowest: 4 * time.Millisecond}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // the server died while sending
		}
		r.mu.Lock()
		r.seen[request.Header.Get("webhook-id")]++
		r.calls++
		r.at = append(r.at, time.Now())
		action, index, _ := bulk.ParseJobID(request.Header.Get("webhook-id"))
		key := keyOf(action, index)
		r.enter("", action, key)
		r.mu.Unlock()
		defer r.leave("", action, key)
		pause(request.Context(), rand.N(r.slowest))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) enter(names ...string) {
	for _, name := range names {
		r.inside[name]++
		r.most[name] = max(r.most[name], r.inside[name])
	}
}

func (r *recorder) leave(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		r.inside[name]--
	}
}

// called returns how many calls have no answer yet.
func (r *recorder) called() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside[""]
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
