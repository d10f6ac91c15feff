//go:build redis

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// load is the jobs of several instances, and the limits. Of ten tenants one has jobs against
// a target with a rate, and one against a target with a low concurrency.
type load struct {
	window               time.Duration
	rate, targetRate     float64
	rated, narrow, plain int // jobs of a tenant
}

// newLoad returns limits far below what two cores can do that also run other tests: the test
// checks whether the limits are used, not how fast the machine is.
func newLoad() load {
	if os.Getenv("SLUICE_LONG") != "" {
		return load{window: testWindow, rate: 200, targetRate: 20, rated: 600, narrow: 900, plain: 700}
	}
	return load{window: testWindow, rate: 200, targetRate: 20, rated: 150, narrow: 200, plain: 200}
}

// slower returns half of the load, for a machine that has other work. Windows are twice as long:
// where a look at all shards takes a window, its part of the limits is lost.
func (l load) slower() load {
	return load{window: 2 * l.window, rate: l.rate / 2, targetRate: l.targetRate / 2, rated: l.rated / 2, narrow: l.narrow / 2, plain: l.plain / 2}
}

// jobsOf returns the number of jobs of the n-th tenant.
func (l load) jobsOf(n int) int {
	return append([]int{l.rated, l.narrow}, slices.Repeat([]int{l.plain}, 8)...)[n]
}

const (
	narrowMost = 6 // maximum in flight against the narrow target
	testWindow = 250 * time.Millisecond
	testLease  = 20 * time.Second // after which jobs run again whose lease, or outcome, was lost
)

// starts counts the attempts of each window by the store's time, which is a lease's deadline
// less its length; and the concurrent handlers of the narrow target.
type starts struct {
	window  time.Duration
	lease   time.Duration
	mu      sync.Mutex
	all     map[int64]int64
	rated   map[int64]int64
	times   map[string]int
	running atomic.Int64
	most    atomic.Int64
}

func newStarts(window, lease time.Duration) *starts {
	return &starts{window: window, lease: lease, all: map[int64]int64{}, rated: map[int64]int64{}, times: map[string]int{}}
}

func (s *starts) handle(ctx context.Context, j *bulk.Job) ([]byte, error) {
	window := bulk.WindowIndex(j.Deadline.Add(-s.lease), s.window)
	s.mu.Lock()
	s.all[window]++
	if j.Spec.Target != nil && j.Spec.Target.Name == "rated" {
		s.rated[window]++
	}
	s.times[j.ID()]++
	s.mu.Unlock()
	if j.Spec.Target == nil || j.Spec.Target.Name != "narrow" {
		return j.Payload, nil
	}
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	select {
	case <-time.After(2 * time.Millisecond):
	case <-ctx.Done():
	}
	return j.Payload, nil
}

// TestSeveralInstances runs three instances on one Redis. All limits hold, over instances and
// shards; each job is counted once; and the limits are used. If the machine is too busy to use
// them, the test tries again with half the load.
func TestSeveralInstances(t *testing.T) {
	t.Parallel()
	for _, shards := range shardCounts(1, 5) {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			used := false
			for l := newLoad(); !used && !t.Failed(); l = l.slower() {
				if l.rate < 10 {
					t.Fatal("the limits were not used at any rate")
				}
				t.Run(fmt.Sprint(l.rate, " a second"), func(t *testing.T) { used = l.run(t, shards) })
			}
		})
	}
}

// run runs the load on three instances, checks what must hold, and reports whether the
// limits were used.
func (l load) run(t *testing.T, shards int) (used bool) {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	seen := newStarts(l.window, until.Limit) // no lease ends, however busy the machine is: each job runs once
	config := bulk.Config{
		RequestsPerSecond: l.rate, Window: l.window, Lease: seen.lease,
		DispatchInterval: 20 * time.Millisecond, FetchInterval: 40 * time.Millisecond,
	}.WithDefaults()
	var stores []*Store
	var engines []*engine.Engine
	for n := range 3 {
		s := open(t, Options{URL: server.URL(), Shards: shards, Bulk: config, Instance: fmt.Sprint(n)})
		mux := bulk.NewMux()
		mux.HandleFunc("work", seen.handle)
		mux.HandleFunc(bulk.WebhookType, seen.handle)
		stores, engines = append(stores, s), append(engines, run(t, s, config, mux))
	}
	l.setTargets(t, stores[0])
	l.upload(t, stores, engines)
	for n := range 10 {
		completed(t, stores[n%3], fmt.Sprint("a", n), int64(l.jobsOf(n)))
	}
	return seen.check(t, l)
}

func (l load) setTargets(t *testing.T, s *Store) {
	t.Helper()
	for name, limits := range map[string]bulk.TargetLimits{"rated": {RequestsPerSecond: l.targetRate}, "narrow": {Concurrency: narrowMost}} {
		recovered(t, func() error { return s.Set(t.Context(), bulk.SettingsChange{Name: name, Target: &limits}) })
	}
}

// upload creates an action of each tenant. One instance uploads its jobs and another seals
// it.
func (l load) upload(t *testing.T, stores []*Store, engines []*engine.Engine) {
	t.Helper()
	for n := range 10 {
		spec := bulk.Spec{ID: fmt.Sprint("a", n), Tenant: fmt.Sprint("tenant", n), Type: "work", Aggregate: []string{"sum:n"}}
		if n < 2 {
			name := []string{"rated", "narrow"}[n]
			spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: name, URL: "http://" + name + "/"}
		}
		upload(t, stores[n%3], spec, l.jobsOf(n))
	}
	for n := range 10 {
		if _, err := engines[(n+1)%3].Seal(t.Context(), fmt.Sprint("a", n), int64(l.jobsOf(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// check checks that each job ran once within the limits, and reports whether the limits
// were used.
func (s *starts) check(t *testing.T, l load) (used bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.times); n != l.rated+l.narrow+8*l.plain {
		t.Errorf("%d jobs ran", n)
	}
	for job, n := range s.times {
		if n != 1 {
			t.Errorf("%s ran %d times", job, n)
		}
	}
	all := s.checkLimit(t, "all", s.all, l.rate)
	rated := s.checkLimit(t, "rated", s.rated, l.targetRate)
	most := s.most.Load()
	t.Logf("at most %d of %d ran against the narrow target", most, narrowMost)
	if most > narrowMost {
		t.Errorf("%d ran against the target at once, want at most %d", most, narrowMost)
	}
	return all && rated && most >= narrowMost/2
}

// checkLimit checks that no window has more attempts than allowed, and reports whether the
// windows in which the first four fifths started, without the first and last of them,
// have half of it.
func (s *starts) checkLimit(t *testing.T, name string, started map[int64]int64, rate float64) (used bool) {
	t.Helper()
	total, first := int64(0), int64(1<<62)
	for window, n := range started {
		total, first = total+n, min(first, window)
		if budget := bulk.Budget(rate, s.window, window); n > budget {
			t.Errorf("%s: %d attempts started in window %d, which allows %d", name, n, window, budget)
		}
	}
	count, allowed, sum := int64(0), int64(0), started[first]
	for window := first + 1; sum+started[window] < total*4/5; window++ {
		count, allowed = count+started[window], allowed+bulk.Budget(rate, s.window, window)
		sum += started[window]
	}
	t.Logf("%s: %d of %d that were allowed have started", name, count, allowed)
	return count >= allowed/2
}

// instance opens a store on a server, with a clock that the test advances.
func instance(t *testing.T, url, name string, shards int, c *clock, config bulk.Config) *Store {
	t.Helper()
	s := open(t, Options{URL: url, Shards: shards, Instance: name, Bulk: config})
	s.now = c.now
	return s
}

// TestAnInstanceDies checks that the jobs of an instance that crashes run elsewhere when
// their leases expire; if it restarts under the same name, at once, and the attempt does not
// count.
func TestAnInstanceDies(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 5} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			server, c := redistest.Start(t, redistest.Options{}), newClock()
			dead := instance(t, server.URL(), "dead", shards, c, unlimited())
			other := instance(t, server.URL(), "other", shards, c, unlimited())
			for n := range 6 {
				start(t, other, bulk.Spec{ID: fmt.Sprint(n), Tenant: fmt.Sprint(n), Type: "echo"}, 10)
			}
			lost := leaseTwenty(t, dead)
			kept := leaseTwenty(t, other)
			c.advance(31 * time.Second)
			if moved, _, err := other.Dispatch(t.Context(), 100); err != nil || moved != 40 {
				t.Errorf("%d have come back, %v; want 40", moved, err)
			}
			wantAll(t, bulk.Expired, append(settled(t, dead, lost), settled(t, other, kept)...))
			lost, kept = leaseTwenty(t, dead), leaseTwenty(t, other)
			again := instance(t, server.URL(), "dead", shards, c, unlimited())
			wantAll(t, bulk.Expired, settled(t, dead, lost))
			wantAll(t, bulk.Accepted, settled(t, other, kept))
			done := 20
			for _, j := range take(t, again, 40) {
				if j.Attempt > 2 {
					t.Errorf("job %s is in attempt %d: one that a crash ended counts", j.ID(), j.Attempt)
				}
				for _, v := range settled(t, again, []bulk.Job{j}) {
					if v == bulk.Accepted {
						done++
					}
				}
			}
			if done != 60 {
				t.Errorf("%d jobs are done, of 60", done)
			}
		})
	}
}

// leaseTwenty leases 20 jobs to workers in an instance's process.
func leaseTwenty(t *testing.T, s *Store) []bulk.Job {
	t.Helper()
	if _, err := admit(t.Context(), s, 10); err != nil {
		t.Fatal(err)
	}
	local := request(20)
	local.Local = true
	jobs, err := s.Lease(t.Context(), local)
	if err != nil || len(jobs) != 20 {
		t.Fatalf("%d jobs leased, %v", len(jobs), err)
	}
	return jobs
}

func wantAll(t *testing.T, want bulk.Verdict, verdicts []bulk.Verdict) {
	t.Helper()
	for _, v := range verdicts {
		if v != want {
			t.Errorf("a settlement is %s, want %s", v, want)
		}
	}
}

func settled(t *testing.T, s *Store, jobs []bulk.Job) []bulk.Verdict {
	t.Helper()
	verdicts, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs))
	if err != nil {
		t.Fatal(err)
	}
	return verdicts
}

// TestSettingsHoldForAll checks that a setting of one instance applies to all, from the next
// window on at the latest.
func TestSettingsHoldForAll(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 5} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			server, c := redistest.Start(t, redistest.Options{}), newClock()
			one := instance(t, server.URL(), "one", shards, c, unlimited())
			two := instance(t, server.URL(), "two", shards, c, unlimited())
			for n := range 8 {
				start(t, one, bulk.Spec{ID: fmt.Sprint(n), Tenant: fmt.Sprint(n), Type: "echo"}, 100)
			}
			// in returns how many jobs both instances can start in a window.
			in := func() (n int) {
				t.Helper()
				for range 3 {
					for _, s := range []*Store{two, one} {
						if _, err := admit(t.Context(), s, 10); err != nil {
							t.Fatal(err)
						}
						jobs, err := s.Lease(t.Context(), request(100))
						if err != nil {
							t.Fatal(err)
						}
						n += len(jobs)
					}
				}
				c.advance(time.Second)
				return n
			}
			if n := in(); n < 100 {
				t.Errorf("%d started without a limit", n)
			}
			for _, rate := range []float64{10, 40, 7} {
				if err := one.Set(t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: rate}}); err != nil {
					t.Fatal(err)
				}
				if settings, err := two.Settings(t.Context()); err != nil || settings.Limits.RequestsPerSecond != rate {
					t.Errorf("the other has %+v, %v", settings.Limits, err)
				}
				for range 2 {
					if n := in(); n != int(rate) {
						t.Errorf("%d started in a window of %v", n, rate)
					}
				}
			}
			if err := two.Set(t.Context(), bulk.SettingsChange{Name: "3", Tenant: &bulk.Tenant{RequestsPerSecond: 2}}); err != nil {
				t.Fatal(err)
			}
			before := started(t, one, "3")
			in()
			if n := started(t, one, "3") - before; n > 2 {
				t.Errorf("%d of the tenant started in a window of 2", n)
			}
		})
	}
}

func started(t *testing.T, s *Store, id string) int64 {
	t.Helper()
	a := action(t, s, id)
	return a.InFlight + a.Succeeded
}

// TestAtOnce checks that concurrent creations by many instances have one effect.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	var stores []*Store
	for n := range 3 {
		stores = append(stores, open(t, Options{URL: server.URL(), Shards: 5, Instance: fmt.Sprint(n)}))
	}
	var created, moved atomic.Int64
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			s, id := stores[n%3], fmt.Sprint(n%10)
			spec := bulk.Spec{ID: id, Tenant: id, Type: "echo"}
			if _, fresh, err := s.Create(t.Context(), spec); err != nil {
				t.Error(err)
			} else if fresh {
				created.Add(1)
			}
			if received, err := s.Append(t.Context(), id, 0, payloads(0, 10)); err != nil && !isMove(err) || err == nil && received != 10 {
				t.Errorf("%d received, %v", received, err)
			}
			_, err := s.Transition(t.Context(), id, bulk.Transition{Kind: bulk.Seal, Total: 10})
			if err == nil {
				moved.Add(1)
			} else if !errors.Is(err, bulk.ErrNoChange) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if created.Load() != 10 || moved.Load() != 10 {
		t.Errorf("%d were created and %d sealed, want 10", created.Load(), moved.Load())
	}
}

func isMove(err error) bool {
	refused := (*bulk.TransitionError)(nil)
	return errors.As(err, &refused)
}
