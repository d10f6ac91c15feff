package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// The server takes jobs over HTTP, of all kinds: webhooks, the built-in echo and
// remote workers, and is killed with SIGKILL again and again, at random moments,
// while uploads and workers are under way. After the last start everything
// completes: no job is lost, none is counted twice, and the sums are exact.
func TestKill(t *testing.T) {
	kills, perAction := 10, 1500
	if long() {
		kills, perAction = 50, 100_000/9+1
	}
	s := newServer(t)
	s.start()
	target := newRecorder(t)
	r := &killRun{server: s, target: target, jobs: perAction, over: make(chan struct{})}
	for _, kind := range []string{"webhook", "echo", "remote"} {
		for n := range 3 {
			r.submit(fmt.Sprint(kind, "-", n), kind)
		}
	}
	for range 4 {
		r.wait.Go(r.work)
	}
	for range kills {
		<-time.After(50*time.Millisecond + rand.N(450*time.Millisecond))
		s.kill()
		s.start()
	}
	r.uploads.Wait()
	eventually(t, 5*time.Minute, "all actions complete", r.completed)
	close(r.over)
	r.wait.Wait()
	r.check(t)
}

// killRun is a load that survives the death of its server.
type killRun struct {
	server  *server
	target  *recorder
	jobs    int
	ids     []string
	uploads sync.WaitGroup
	wait    sync.WaitGroup
	over    chan struct{}
}

// again makes a request until it is answered with other than a 5xx, which is
// what a client does whose server is away.
func (r *killRun) again(method, path, contentType string, body []byte, header ...string) (answer, bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := r.server.do(method, path, contentType, body, header...)
		if err == nil && a.status < 500 {
			return a, true
		}
		select {
		case <-tick.C:
		case <-r.over:
			return a, false
		}
	}
}

// submit creates an action and uploads its jobs in chunks, from wherever the
// server says it is.
func (r *killRun) submit(id, kind string) {
	what := fmt.Sprintf(`"type":%q`, kind)
	if kind == "webhook" {
		what = fmt.Sprintf(`"target":{"url":%q}`, r.target.URL)
	}
	r.upload(id, what)
}

// create submits an action of echoes, which may ask for the events of its jobs.
func (r *killRun) create(id string, jobEvents bool) {
	what := `"type":"echo"`
	if jobEvents {
		what += `,"events":["jobs"]`
	}
	r.upload(id, what)
}

func (r *killRun) upload(id, what string) {
	r.ids = append(r.ids, id)
	body := fmt.Appendf(nil, `{"id":%q,"tenant":"tenant of %s",%s,"aggregate":["count","sum:n"]}`, id, id, what)
	r.uploads.Go(func() {
		r.again("POST", "/v1/actions", "application/json", body)
		for sent := 0; sent < r.jobs; {
			var chunk strings.Builder
			for n := sent; n < min(sent+250, r.jobs); n++ {
				fmt.Fprintf(&chunk, "{\"n\":\"%d.%03d\"}\n", n, n%1000)
			}
			a, ok := r.again("POST", "/v1/actions/"+id+"/jobs", "application/x-ndjson", []byte(chunk.String()),
				"Upload-Offset", fmt.Sprint(sent))
			var said struct{ Received int }
			if !ok || a.json(&said) != nil {
				return
			}
			sent = said.Received
		}
		r.again("POST", "/v1/actions/"+id+"/seal", "application/json", fmt.Appendf(nil, `{"total":%d}`, r.jobs))
	})
}

// work is a remote worker: it leases, works and acknowledges until all is over.
func (r *killRun) work() {
	for {
		a, ok := r.again("POST", "/v1/leases", "application/json", []byte(`{"types":["remote"],"max":40,"wait_ms":200,"lease_ms":5000}`))
		if !ok {
			return
		}
		var leased struct {
			Jobs []struct {
				Lease   string          `json:"lease"`
				Payload json.RawMessage `json:"payload"`
			} `json:"jobs"`
		}
		if a.json(&leased) != nil {
			continue
		}
		var outcomes []map[string]any
		for _, j := range leased.Jobs {
			outcomes = append(outcomes, map[string]any{"lease": j.Lease, "status": "succeeded", "result": j.Payload})
		}
		if len(outcomes) > 0 {
			body, _ := json.Marshal(map[string]any{"outcomes": outcomes})
			r.again("POST", "/v1/leases/ack", "application/json", body)
		}
		select {
		case <-r.over:
			return
		default:
		}
	}
}

func (r *killRun) completed() bool {
	for _, id := range r.ids {
		a, err := r.server.do("GET", "/v1/actions/"+id, "", nil)
		var got action
		if err != nil || a.json(&got) != nil || got.FinishedAt == nil {
			return false
		}
	}
	return true
}

func (r *killRun) check(t *testing.T) {
	thousandths := 0
	for n := range r.jobs {
		thousandths += n*1000 + n%1000
	}
	sum := fmt.Sprintf(`"%d.%03d"`, thousandths/1000, thousandths%1000)
	for _, id := range r.ids {
		a := r.server.action(id)
		if a.Status != "COMPLETED" || a.Succeeded != int64(r.jobs) || a.Failed != 0 {
			t.Errorf("%s is %s: %d succeeded and %d failed of %d", id, a.Status, a.Succeeded, a.Failed, r.jobs)
		}
		if got := string(a.Result["count"]); got != fmt.Sprint(r.jobs) {
			t.Errorf("%s: count %s, want %d", id, got, r.jobs)
		}
		if got := string(a.Result["sum:n"]); got != sum {
			t.Errorf("%s: sum %s, want %s", id, got, sum)
		}
	}
	t.Logf("the target was called %d times for %d jobs", r.target.calls, len(r.target.seen))
	if len(r.target.seen) != 3*r.jobs {
		t.Errorf("the target has seen %d jobs, want %d", len(r.target.seen), 3*r.jobs)
	}
}

// recorder is a target that echoes, and remembers whom it has seen.
type recorder struct {
	*httptest.Server
	mu    sync.Mutex
	seen  map[string]int
	calls int
	at    []time.Time // when it was called
	// slowest is how long an answer takes at most. Default 4 ms; set it before any call.
	slowest time.Duration
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{seen: map[string]int{}, slowest: 4 * time.Millisecond}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // the server died while it sent
		}
		r.mu.Lock()
		r.seen[request.Header.Get("webhook-id")]++
		r.calls++
		r.at = append(r.at, time.Now())
		r.mu.Unlock()
		pause(request.Context(), rand.N(r.slowest))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	t.Cleanup(r.Close)
	return r
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
