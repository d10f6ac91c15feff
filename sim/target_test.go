package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// simTargetOptions says how a simTarget behaves.
type simTargetOptions struct {
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

// byTenant gives each tenant a limit of its own.
func byTenant(job *bulk.Job) string { return job.Spec.Tenant }

// simCounts are what a target saw. Throttled attempts and successes count in the
// window in which the attempt arrived.
type simCounts struct{ Attempts, Throttled, Succeeded int }

func (c simCounts) plus(d simCounts) simCounts {
	return simCounts{c.Attempts + d.Attempts, c.Throttled + d.Throttled, c.Succeeded + d.Succeeded}
}

// simWindow is what a target saw in one window, by tenant. Windows in which
// nothing arrived are left out.
type simWindow struct {
	Begins  time.Time
	Tenants map[string]simCounts
}

// Total adds up the window's tenants.
func (w simWindow) Total() (total simCounts) {
	for _, counts := range w.Tenants {
		total = total.plus(counts)
	}
	return total
}

// simTarget is a target in memory: a bulk.Handler for any job type, usable in a
// synctest bubble. Its result is the job's payload.
type simTarget struct {
	options simTargetOptions

	mu      sync.Mutex
	taken   map[string]simTaken // by key
	windows map[time.Time]map[string]simCounts
	done    map[simJob]int // successes
}

// simTaken is how much of one window a key has used.
type simTaken struct {
	begins time.Time
	n      int
}

type simJob struct {
	action string
	index  int64
}

var _ bulk.Handler = (*simTarget)(nil)

func newSimTarget(options simTargetOptions) *simTarget {
	options.Window = cmp.Or(options.Window, time.Second)
	if options.Key == nil {
		options.Key = func(*bulk.Job) string { return "" }
	}
	return &simTarget{
		options: options, taken: map[string]simTaken{},
		windows: map[time.Time]map[string]simCounts{}, done: map[simJob]int{},
	}
}

// Handle makes one attempt. Above the rate it is turned back with a
// *bulk.ThrottledError; one that ctx ends before its latency is over fails.
func (t *simTarget) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	begins, err := t.arrive(job, time.Now())
	if err != nil {
		return nil, err
	}
	if err := pass(ctx, t.options.Latency); err != nil {
		return nil, fmt.Errorf("the target had not answered: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[simJob{job.Spec.ID, job.Index}]++
	t.count(begins, job.Spec.Tenant, simCounts{Succeeded: 1})
	return job.Payload, nil
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
func (t *simTarget) arrive(job *bulk.Job, now time.Time) (begins time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begins = now.Add(-t.options.Phase).Truncate(t.options.Window).Add(t.options.Phase)
	key := t.options.Key(job)
	taken := t.taken[key]
	if !taken.begins.Equal(begins) {
		taken = simTaken{begins: begins}
	}
	counts := simCounts{Attempts: 1}
	if t.options.Rate > 0 && taken.n == t.options.Rate {
		counts.Throttled = 1
		throttled := &bulk.ThrottledError{Reason: "the target's window is full"}
		if t.options.TellRetryAfter {
			throttled.RetryAfter = begins.Add(t.options.Window).Sub(now)
		}
		err = throttled
	} else {
		taken.n++
	}
	t.taken[key] = taken
	t.count(begins, job.Spec.Tenant, counts)
	return begins, err
}

// count adds to a window's counts. The caller holds the lock.
func (t *simTarget) count(begins time.Time, tenant string, counts simCounts) {
	if t.windows[begins] == nil {
		t.windows[begins] = map[string]simCounts{}
	}
	t.windows[begins][tenant] = t.windows[begins][tenant].plus(counts)
}

// Windows returns what the target saw, window by window.
func (t *simTarget) Windows() []simWindow {
	t.mu.Lock()
	defer t.mu.Unlock()
	windows := make([]simWindow, 0, len(t.windows))
	for begins, tenants := range t.windows {
		windows = append(windows, simWindow{begins, maps.Clone(tenants)})
	}
	slices.SortFunc(windows, func(a, b simWindow) int { return a.Begins.Compare(b.Begins) })
	return windows
}

// Tenants returns what the target saw, by tenant.
func (t *simTarget) Tenants() map[string]simCounts {
	tenants := map[string]simCounts{}
	for _, window := range t.Windows() {
		for tenant, counts := range window.Tenants {
			tenants[tenant] = tenants[tenant].plus(counts)
		}
	}
	return tenants
}

// Total returns all that the target saw.
func (t *simTarget) Total() (total simCounts) {
	for _, window := range t.Windows() {
		total = total.plus(window.Total())
	}
	return total
}

// Distinct counts the jobs that succeeded, each once however often it did.
func (t *simTarget) Distinct() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.done)
}

func simJobOf(tenant string, index int64) *bulk.Job {
	return &bulk.Job{Spec: &bulk.Spec{ID: "act-" + tenant, Tenant: tenant, Type: "sim"}, Index: index, Payload: []byte("1"), Attempt: 1}
}

// burst sends n attempts at once and returns how many of them were throttled,
// and the longest wait that was asked for.
func burst(t *testing.T, target *simTarget, tenant string, n int) (throttled int, wait time.Duration) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			result, err := target.Handle(t.Context(), simJobOf(tenant, int64(i)))
			mu.Lock()
			defer mu.Unlock()
			var turnedBack *bulk.ThrottledError
			switch {
			case errors.As(err, &turnedBack):
				throttled++
				wait = max(wait, turnedBack.RetryAfter)
			case err != nil || string(result) != "1":
				t.Errorf("Handle = %q, %v", result, err)
			}
		})
	}
	group.Wait()
	return throttled, wait
}

func TestSimTargetCountsByTenantAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newSimTarget(simTargetOptions{Rate: 10, Latency: 300 * time.Millisecond, TellRetryAfter: true})
		start := time.Now()
		// 10 at once for a, then in the same window nothing is left for b.
		if throttled, wait := burst(t, target, "a", 15); throttled != 5 || wait != time.Second {
			t.Fatalf("a: %d throttled, wait %s", throttled, wait)
		}
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Fatalf("the burst took %s", took)
		}
		if throttled, wait := burst(t, target, "b", 2); throttled != 2 || wait != 700*time.Millisecond {
			t.Fatalf("b: %d throttled, wait %s", throttled, wait)
		}
		// These begin in the second window and end in the third.
		time.Sleep(1500 * time.Millisecond)
		if throttled, _ := burst(t, target, "b", 3); throttled != 0 {
			t.Fatalf("b, next window: %d throttled", throttled)
		}
		want := []simWindow{
			{start, map[string]simCounts{"a": {15, 5, 10}, "b": {2, 2, 0}}},
			{start.Add(time.Second), map[string]simCounts{"b": {3, 0, 3}}},
		}
		got := target.Windows()
		if len(got) != 2 || !slices.EqualFunc(got, want, func(a, b simWindow) bool {
			return a.Begins.Equal(b.Begins) && maps.Equal(a.Tenants, b.Tenants)
		}) {
			t.Fatalf("Windows = %v; want %v", got, want)
		}
		if got, want := target.Tenants(), map[string]simCounts{"a": {15, 5, 10}, "b": {5, 2, 3}}; !maps.Equal(got, want) {
			t.Fatalf("Tenants = %v; want %v", got, want)
		}
		if got, want := target.Total(), (simCounts{20, 7, 13}); got != want {
			t.Fatalf("Total = %v; want %v", got, want)
		}
	})
}

func TestSimTargetLimitsEachTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newSimTarget(simTargetOptions{Rate: 4, Key: byTenant})
		for _, tenant := range []string{"a", "b"} {
			if throttled, wait := burst(t, target, tenant, 6); throttled != 2 || wait != 0 {
				t.Fatalf("%s: %d throttled, wait %s", tenant, throttled, wait)
			}
		}
	})
}

func TestSimTargetWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if throttled, _ := burst(t, newSimTarget(simTargetOptions{}), "a", 500); throttled != 0 {
			t.Fatalf("%d throttled", throttled)
		}
	})
}

func TestSimTargetWindowsMovedByPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const phase = 250 * time.Millisecond
		target := newSimTarget(simTargetOptions{Rate: 1, Phase: phase, TellRetryAfter: true})
		start := time.Now()
		burst(t, target, "a", 1)
		if throttled, wait := burst(t, target, "a", 1); throttled != 1 || wait != phase {
			t.Fatalf("%d throttled, wait %s", throttled, wait)
		}
		time.Sleep(phase)
		if throttled, _ := burst(t, target, "a", 1); throttled != 0 {
			t.Fatal("the window did not begin at the phase")
		}
		if windows := target.Windows(); !windows[0].Begins.Equal(start.Add(phase-time.Second)) || !windows[1].Begins.Equal(start.Add(phase)) {
			t.Fatalf("Windows = %v", windows)
		}
	})
}

func TestSimTargetCountsAJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newSimTarget(simTargetOptions{})
		burst(t, target, "a", 3)
		burst(t, target, "a", 2) // the first two jobs again
		if got, total := target.Distinct(), target.Total(); got != 3 || total.Succeeded != 5 {
			t.Fatalf("Distinct = %d, Total = %v", got, total)
		}
	})
}

func TestSimTargetIsLeftWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newSimTarget(simTargetOptions{Latency: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := target.Handle(ctx, simJobOf("a", 0))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Fatalf("Handle = %v after %s", err, took)
		}
		if got := target.Total(); got != (simCounts{Attempts: 1}) || target.Distinct() != 0 {
			t.Fatalf("Total = %v, Distinct = %d", got, target.Distinct())
		}
	})
}

// In whatever pattern attempts arrive, each key gets exactly its rate of each
// window, and the counts add up.
func TestSimTargetIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 4).Draw(t, "rate")
		window := time.Duration(rapid.IntRange(100, 1000).Draw(t, "window_ms")) * time.Millisecond
		target := newSimTarget(simTargetOptions{
			Rate: rate, Window: window, Key: byTenant,
			Phase: time.Duration(rapid.IntRange(0, 99).Draw(t, "phase_ms")) * time.Millisecond,
		})
		now := time.Unix(1_700_000_000, 0)
		arrivals := rapid.SliceOfN(rapid.IntRange(0, 400), 1, 80).Draw(t, "gaps_ms")
		for i, gap := range arrivals {
			now = now.Add(time.Duration(gap) * time.Millisecond)
			_, _ = target.arrive(simJobOf([]string{"a", "b"}[i%2], int64(i)), now)
		}
		for _, window := range target.Windows() {
			for tenant, got := range window.Tenants {
				if through := got.Attempts - got.Throttled; through != min(rate, got.Attempts) {
					t.Fatalf("window %s, tenant %s: %d of %d let through at a rate of %d", window.Begins, tenant, through, got.Attempts, rate)
				}
			}
		}
		if got := target.Total().Attempts; got != len(arrivals) {
			t.Fatalf("%d attempts counted of %d", got, len(arrivals))
		}
	})
}
