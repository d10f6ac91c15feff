package bulktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// TargetOptions says how a Target behaves.
type TargetOptions struct {
	// Rate is how many attempts of one key are let through in each window; 0 is
	// no limit.
	Rate int
	// Window is the length of a window; default 1 s. Windows begin at the full
	// multiples of it, as those of the engine do, moved by Phase: with a phase
	// other than 0 the target cuts time elsewhere than the engine.
	Window, Phase time.Duration
	// Key says which limit a job counts in; default one limit for all.
	Key func(*bulk.Job) string
	// Latency is how long an attempt that was let through takes. One above the
	// rate is turned back at once.
	Latency time.Duration
	// TellRetryAfter makes the target say when its window ends; otherwise a
	// throttle does not say how long to wait.
	TellRetryAfter bool
}

// ByTenant, as TargetOptions.Key, gives each tenant a limit of its own.
func ByTenant(job *bulk.Job) string { return job.Spec.Tenant }

// TargetCounts are what a target saw. Throttled attempts and successes count in the
// window in which the attempt arrived.
type TargetCounts struct{ Attempts, Throttled, Succeeded int }

func (c TargetCounts) plus(d TargetCounts) TargetCounts {
	return TargetCounts{c.Attempts + d.Attempts, c.Throttled + d.Throttled, c.Succeeded + d.Succeeded}
}

// TargetWindow is what a target saw in one window, by tenant. Windows in which
// nothing arrived are left out.
type TargetWindow struct {
	Begins  time.Time
	Tenants map[string]TargetCounts
}

// Total adds up the window's tenants.
func (w TargetWindow) Total() (total TargetCounts) {
	for _, counts := range w.Tenants {
		total = total.plus(counts)
	}
	return total
}

// Target is what jobs call, in memory. Its result is the job's payload. It is used
// in one of three ways:
//
//   - as the bulk.Handler of a job type;
//   - called by a handler or worker under test: its Handle takes their job;
//   - as an http.Handler, for httptest.NewServer: the target of webhooks, or of any
//     HTTP client.
type Target struct {
	options TargetOptions

	mu      sync.Mutex
	used    map[string]used // by key
	calls   int64           // requests without an id
	windows map[time.Time]map[string]TargetCounts
	done    map[targetJob]int // successes
}

// used is how much of one window a key has used.
type used struct {
	begins time.Time
	n      int
}

type targetJob struct {
	action string
	index  int64
}

var (
	_ bulk.Handler = (*Target)(nil)
	_ http.Handler = (*Target)(nil)
)

// NewTarget returns a target that has seen nothing yet.
func NewTarget(options TargetOptions) *Target {
	options.Window = cmp.Or(options.Window, time.Second)
	if options.Key == nil {
		options.Key = func(*bulk.Job) string { return "" }
	}
	return &Target{
		options: options, used: map[string]used{},
		windows: map[time.Time]map[string]TargetCounts{}, done: map[targetJob]int{},
	}
}

// Handle makes one attempt. Above the rate it is turned back with a
// *bulk.ThrottledError; one that ctx ends before its latency is over fails.
func (t *Target) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	begins, err := t.arrive(job, time.Now())
	if err != nil {
		return nil, err
	}
	if err := pass(ctx, t.options.Latency); err != nil {
		return nil, fmt.Errorf("the target had not answered: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[targetJob{job.Spec.ID, job.Index}]++
	t.count(begins, job.Spec.Tenant, TargetCounts{Succeeded: 1})
	return job.Payload, nil
}

// ServeHTTP makes one attempt for a request: 200 with the body that came, or 429
// above the rate. Retry-After is in whole seconds, rounded up, where the options
// tell it. The tenant and the job are those of the headers that a webhook has;
// without them the tenant is empty, and each request a job of its own. A body of
// more than bulk.MaxPayloadBytes is refused with 413.
func (t *Target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bulk.MaxPayloadBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	job, err := t.jobOf(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	job.Payload = body
	result, err := t.Handle(r.Context(), job)
	var throttled *bulk.ThrottledError
	switch {
	case errors.As(err, &throttled):
		if throttled.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((throttled.RetryAfter+time.Second-1)/time.Second)))
		}
		http.Error(w, throttled.Reason, http.StatusTooManyRequests)
	case err != nil: // the client has gone
	default:
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(result)
	}
}

// jobOf is the job that a request is about.
func (t *Target) jobOf(header http.Header) (*bulk.Job, error) {
	tenant, err := url.PathUnescape(header.Get("Sluice-Tenant"))
	if err != nil {
		return nil, err
	}
	job := &bulk.Job{Spec: &bulk.Spec{Tenant: tenant}, Attempt: 1}
	id := header.Get("Webhook-Id")
	if id != "" {
		job.Spec.ID, job.Index, err = bulk.ParseJobID(id)
		return job, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	job.Index = t.calls
	return job, nil
}

// SetRate changes the rate, from the next attempt on.
func (t *Target) SetRate(rate int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.options.Rate = rate
}

// pass waits for d, or until ctx ends. It makes no timer of no length: several of
// those at once in a bubble crash the race detector (golang.org/issue/78156).
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// arrive counts an attempt in its window, and takes a place of its key's rate.
func (t *Target) arrive(job *bulk.Job, now time.Time) (begins time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begins = now.Add(-t.options.Phase).Truncate(t.options.Window).Add(t.options.Phase)
	key := t.options.Key(job)
	taken := t.used[key]
	if !taken.begins.Equal(begins) {
		taken = used{begins: begins}
	}
	counts := TargetCounts{Attempts: 1}
	if t.options.Rate > 0 && taken.n >= t.options.Rate {
		counts.Throttled = 1
		throttled := &bulk.ThrottledError{Reason: "the target's window is full"}
		if t.options.TellRetryAfter {
			throttled.RetryAfter = begins.Add(t.options.Window).Sub(now)
		}
		err = throttled
	} else {
		taken.n++
	}
	t.used[key] = taken
	t.count(begins, job.Spec.Tenant, counts)
	return begins, err
}

// count adds to a window's counts. The caller holds the lock.
func (t *Target) count(begins time.Time, tenant string, counts TargetCounts) {
	if t.windows[begins] == nil {
		t.windows[begins] = map[string]TargetCounts{}
	}
	t.windows[begins][tenant] = t.windows[begins][tenant].plus(counts)
}

// Windows returns what the target saw, window by window.
func (t *Target) Windows() []TargetWindow {
	t.mu.Lock()
	defer t.mu.Unlock()
	windows := make([]TargetWindow, 0, len(t.windows))
	for begins, tenants := range t.windows {
		windows = append(windows, TargetWindow{begins, maps.Clone(tenants)})
	}
	slices.SortFunc(windows, func(a, b TargetWindow) int { return a.Begins.Compare(b.Begins) })
	return windows
}

// Tenants returns what the target saw, by tenant.
func (t *Target) Tenants() map[string]TargetCounts {
	tenants := map[string]TargetCounts{}
	for _, window := range t.Windows() {
		for tenant, counts := range window.Tenants {
			tenants[tenant] = tenants[tenant].plus(counts)
		}
	}
	return tenants
}

// Total returns all that the target saw.
func (t *Target) Total() (total TargetCounts) {
	for _, window := range t.Windows() {
		total = total.plus(window.Total())
	}
	return total
}

// Distinct counts the jobs that succeeded, each once however often it did.
func (t *Target) Distinct() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.done)
}
