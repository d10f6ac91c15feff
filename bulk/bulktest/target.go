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

// TargetOptions are the options of a Target.
type TargetOptions struct {
	// Rate is the maximum of attempts of one key that pass in each window; 0 is no limit.
	Rate int
	// Window is the length of a window; default 1 s. Windows begin at multiples of it, as the
	// engine's do, shifted by Phase: with a phase other than 0, the target's windows differ
	// from the engine's.
	Window, Phase time.Duration
	// Key returns the limit that a job counts against; default one limit for all.
	Key func(*bulk.Job) string
	// Latency is the duration of an attempt that passes. Attempts above the rate return at
	// once.
	Latency time.Duration
	// TellRetryAfter makes a throttle include the time until the window ends; otherwise it
	// has no delay.
	TellRetryAfter bool
}

// ByTenant, as TargetOptions.Key, gives each tenant a limit of its own.
func ByTenant(job *bulk.Job) string { return job.Spec.Tenant }

// TargetCounts are the counts of a target. Throttled attempts and successes count in the
// window in which the attempt arrived.
type TargetCounts struct{ Attempts, Throttled, Succeeded int }

func (c TargetCounts) plus(d TargetCounts) TargetCounts {
	return TargetCounts{c.Attempts + d.Attempts, c.Throttled + d.Throttled, c.Succeeded + d.Succeeded}
}

// TargetWindow has the counts of one window, by tenant. Windows without attempts are omitted.
type TargetWindow struct {
	Begins  time.Time
	Tenants map[string]TargetCounts
}

// Total returns the sum over the window's tenants.
func (w TargetWindow) Total() (total TargetCounts) {
	for _, counts := range w.Tenants {
		total = total.plus(counts)
	}
	return total
}

// Target is an in-memory target of jobs. Its result is the job's payload. It is used in one
// of three ways:
//
//   - as the bulk.Handler of a job type;
//   - by a handler or worker under test, which calls its Handle with the job;
//   - as an http.Handler, for httptest.NewServer: the target of webhooks, or of any HTTP
//     client.
type Target struct {
	options TargetOptions

	mu      sync.Mutex
	used    map[string]used // by key
	calls   int64           // requests without an id
	windows map[time.Time]map[string]TargetCounts
	done    map[targetJob]int // successes
}

// used is the use of one window by a key.
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

// NewTarget returns a target with zero counts.
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

// Handle makes one attempt. Above the rate it returns a *bulk.ThrottledError. If ctx ends
// before the latency is over, it returns an error.
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

// ServeHTTP makes one attempt for a request. It answers 200 with the request's body, or 429
// above the rate. Retry-After is in whole seconds, rounded up, if TellRetryAfter is set. The
// tenant and the job are taken from a webhook's headers; without them the tenant is empty,
// and each request is a job of its own. A body of more than bulk.MaxPayloadBytes is refused
// with 413.
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
	case err != nil: // the client has disconnected
	default:
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(result)
	}
}

// jobOf returns the job of a request.
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

// pass waits for d, or until ctx ends. It creates no timer for a d of 0: several of those at
// once in a bubble crash the race detector (golang.org/issue/78156).
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

// arrive counts an attempt in its window, and against its key's rate.
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

// count adds to a window's counts. The caller must hold the lock.
func (t *Target) count(begins time.Time, tenant string, counts TargetCounts) {
	if t.windows[begins] == nil {
		t.windows[begins] = map[string]TargetCounts{}
	}
	t.windows[begins][tenant] = t.windows[begins][tenant].plus(counts)
}

// Windows returns the counts of each window.
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

// Tenants returns the counts of each tenant.
func (t *Target) Tenants() map[string]TargetCounts {
	tenants := map[string]TargetCounts{}
	for _, window := range t.Windows() {
		for tenant, counts := range window.Tenants {
			tenants[tenant] = tenants[tenant].plus(counts)
		}
	}
	return tenants
}

// Total returns the sum of all counts.
func (t *Target) Total() (total TargetCounts) {
	for _, window := range t.Windows() {
		total = total.plus(window.Total())
	}
	return total
}

// Distinct returns the number of jobs that succeeded, each counted once.
func (t *Target) Distinct() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.done)
}
