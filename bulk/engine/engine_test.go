package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/aggregate"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// rig is an engine with its store, in virtual time.
type rig struct {
	*bulktest.Engine
	t      *testing.T
	config bulk.Config
}

// inVirtualTime runs a test with a started engine. When the test ends, it stops the engine
// and closes its store. A remaining goroutine fails the test: the bubble waits for all.
func inVirtualTime(t *testing.T, config bulk.Config, mux *bulk.Mux, test func(t *testing.T, r *rig), options ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newRig(t, config, mux, options...))
	})
}

// newRig opens a store and starts an engine; it must be called in a bubble.
func newRig(t *testing.T, config bulk.Config, mux *bulk.Mux, options ...engine.Option) *rig {
	t.Helper()
	r := &rig{t: t, config: config, Engine: bulktest.New(t, mux, config, options...)}
	r.Timeout = 10 * 24 * time.Hour
	return r
}

// submit creates an action with this number of jobs, whose payloads are their indexes.
func (r *rig) submit(spec bulk.Spec, jobs int) string {
	r.t.Helper()
	payloads := make([]any, jobs)
	for i := range payloads {
		payloads[i] = i
	}
	return r.Submit(r.t, spec, payloads...)
}

func (r *rig) action(id string) bulk.Action {
	r.t.Helper()
	a, err := r.Action(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// finish waits until an action is done, and its effects too.
func (r *rig) finish(id string) bulk.Action {
	r.t.Helper()
	done := r.Wait(r.t, id)
	synctest.Wait()
	return done
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

func TestAnActionFromEndToEnd(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		a := r.finish(r.submit(bulk.Spec{Type: "echo", Aggregate: []string{"count"}}, 2500))
		bulktest.RequireCounts(t, a, bulk.Completed, 2500, 0)
		if string(a.Result["count"]) != "2500" {
			t.Errorf("the result is %s", a.Result)
		}
	})
}

func TestNewRefusesBadConfigs(t *testing.T) {
	if _, err := engine.New(nil, bulk.NewMux(), bulk.Config{Window: 1}); err == nil {
		t.Error("an engine takes a window of a nanosecond")
	}
}

func TestCreateRefusesBadSpecs(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		for field, spec := range map[string]bulk.Spec{
			"tenant":    {Type: "echo"},
			"aggregate": {Tenant: "t", Type: "echo", Aggregate: []string{"no such"}},
			"run_at":    {Tenant: "t", Type: "echo", RunAt: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)},
		} {
			_, _, err := r.Create(t.Context(), spec)
			var wrong *bulk.SpecError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		var wrong *bulk.SettingError
		if err := r.Set(t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: -1}}); !errors.As(err, &wrong) {
			t.Errorf("a limit below zero: %v", err)
		}
		r.finish(r.submit(bulk.Spec{Type: "echo"}, 1)) // the store still works
	})
}

func TestAppendBoundsPayloads(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		a, _, err := r.Create(t.Context(), bulk.Spec{Tenant: "t", Type: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		largest := make([]byte, bulk.MaxPayloadBytes)
		if received, err := r.Append(t.Context(), a.ID, 0, [][]byte{largest}); err != nil || received != 1 {
			t.Errorf("the largest payload: %d received, error %v", received, err)
		}
		if _, err := r.Append(t.Context(), a.ID, 1, [][]byte{{}, make([]byte, bulk.MaxPayloadBytes+1)}); err == nil || !strings.Contains(err.Error(), "job 1 of the upload") {
			t.Errorf("one byte more: %v", err)
		}
		if got := r.action(a.ID).Received; got != 1 {
			t.Errorf("%d jobs were received, want 1", got)
		}
	})
}

func TestRunAtIsTheEarliestStart(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		at := time.Now().Add(time.Hour)
		id := r.submit(bulk.Spec{Type: "echo", RunAt: at}, 3)
		pass(time.Hour - time.Second)
		if a := r.action(id); a.Status != bulk.Dispatched || a.Pending != 3 {
			t.Errorf("a second before its time it is %s, %+v", a.Status, a.Counts)
		}
		a := r.finish(id)
		bulktest.RequireCounts(t, a, bulk.Completed, 3, 0)
		if late := a.FinishedAt.Sub(at); late < 0 || late > 2*time.Second {
			t.Errorf("finished %s after its time", late)
		}
	})
}

func TestWatchTellsEveryChange(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		a, _, err := r.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "echo", RunAt: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		watched := make(chan error)
		go func() {
			watched <- r.Watch(context.Background(), "a", 10*time.Millisecond, func(a bulk.Action) error {
				seen = append(seen, fmt.Sprintf("%s %t %d %d", a.Status, a.Paused, a.Received, a.Succeeded))
				return nil
			})
		}()
		step := func(err error) {
			pass(time.Second)
			if err != nil {
				t.Fatal(err)
			}
		}
		step(nil)
		_, err = r.Append(t.Context(), a.ID, 0, [][]byte{[]byte("1")})
		step(err)
		_, err = r.Seal(t.Context(), a.ID, 1)
		step(err)
		_, err = r.Pause(t.Context(), a.ID)
		step(err)
		_, err = r.Resume(t.Context(), a.ID)
		step(err)
		if err := <-watched; err != nil {
			t.Fatal(err)
		}
		got := strings.Join(seen, ", ")
		if want := "CREATED false 0 0, CREATED false 1 0, DISPATCHED false 1 0, DISPATCHED true 1 0, DISPATCHED false 1 0, "; !strings.HasPrefix(got, want) ||
			!strings.HasSuffix(got, "COMPLETED false 1 1") {
			t.Errorf("seen: %s", got)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		if err := r.Watch(t.Context(), "none", time.Second, func(bulk.Action) error { return nil }); !errors.Is(err, bulk.ErrNotFound) {
			t.Errorf("of no action: %v", err)
		}
		id := r.submit(bulk.Spec{Type: "nobody-runs-this"}, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		err := r.Watch(ctx, id, time.Second, func(bulk.Action) error { calls++; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || calls == 0 || calls > 5 {
			t.Errorf("after %d calls: %v, want the end of the context", calls, err)
		}
		enough := errors.New("enough")
		if err := r.Watch(t.Context(), id, time.Second, func(bulk.Action) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("an error of the caller: %v", err)
		}
	})
}

// readCounter counts the reads of single actions.
type readCounter struct {
	bulk.Store
	reads atomic.Int64
}

func (s *readCounter) Action(ctx context.Context, id string) (bulk.Action, error) {
	s.reads.Add(1)
	return s.Store.Action(ctx, id)
}

// TestWatchersShareTheirReads: an action is read once in an interval, however many watch it.
// Watchers that leave do not stop the others, and all learn of a change.
func TestWatchersShareTheirReads(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "nobody-runs-this"}, 1)
		store := &readCounter{Store: r.Store()}
		e, err := engine.New(store, bulk.NewMux(), r.config) // not started
		if err != nil {
			t.Fatal(err)
		}
		for _, watchers := range []int{1, 100} {
			ctx, cancel := context.WithCancel(t.Context())
			var told atomic.Int64
			ends := make(chan error, 2*watchers)
			watch := func(ctx context.Context) {
				ends <- e.Watch(ctx, id, 200*time.Millisecond, func(bulk.Action) error { told.Add(1); return nil })
			}
			leaving, leave := context.WithCancel(t.Context())
			for range watchers {
				go watch(leaving)
				go watch(ctx)
			}
			pass(time.Second + time.Millisecond)
			store.reads.Store(0)
			pass(5 * time.Second)
			leave()
			pass(5 * time.Second)
			if reads := store.reads.Load(); reads < 49 || reads > 51 {
				t.Errorf("%d watchers: %d reads in 50 intervals", 2*watchers, reads)
			}
			told.Store(0)
			if _, err := r.Pause(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			pass(200 * time.Millisecond)
			if told := told.Load(); told != int64(watchers) {
				t.Errorf("%d of %d watchers were told of a change", told, watchers)
			}
			cancel()
			for range 2 * watchers {
				if err := <-ends; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			if _, err := r.Resume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestEstimatedFinish(t *testing.T) {
	mux := bulk.NewMux()
	var blocked atomic.Bool
	mux.HandleFunc("send", func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		if blocked.Load() {
			return nil, &bulk.ThrottledError{RetryAfter: time.Hour}
		}
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{RequestsPerSecond: 10}, mux, func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "send"}, 1000)
		if at := r.EstimatedFinish(id); !at.IsZero() {
			t.Errorf("before anything was seen: %s", at)
		}
		pass(30 * time.Second)
		ends := time.Now().Add(70 * time.Second)
		if off := r.EstimatedFinish(id).Sub(ends).Abs(); off > 10*time.Second {
			t.Errorf("10 a second, 700 left: the estimate is off by %s", off)
		}
		blocked.Store(true)
		pass(10 * time.Minute)
		if at := r.EstimatedFinish(id); !at.IsZero() && at.Before(time.Now().Add(24*time.Hour)) {
			t.Errorf("nothing moves since 10 minutes, but it shall finish at %s, in %s", at, time.Until(at))
		}
		if _, err := r.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		r.finish(id)
		pass(time.Second)
		if at := r.EstimatedFinish(id); !at.IsZero() {
			t.Errorf("after its end: %s", at)
		}
	})
}

func TestFinishedActionsAreForgotten(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc("fail", func(context.Context, *bulk.Job) ([]byte, error) { return nil, bulk.SkipRetry })
	inVirtualTime(t, bulk.Config{Retention: time.Hour}, mux, func(t *testing.T, r *rig) {
		old := r.submit(bulk.Spec{ID: "old", Type: "fail"}, 3)
		r.finish(old)
		open, _, err := r.Create(t.Context(), bulk.Spec{ID: "open", Tenant: "t", Type: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		pass(50 * time.Minute)
		if letters, err := r.DeadLetters(t.Context(), old, 0, 10); err != nil || len(letters) != 3 {
			t.Errorf("within the hour: %d dead letters, error %v", len(letters), err)
		}
		recent := r.submit(bulk.Spec{ID: "recent", Type: "echo"}, 1)
		r.finish(recent)
		pass(25 * time.Minute)
		if _, err := r.Action(t.Context(), old); !errors.Is(err, bulk.ErrNotFound) {
			t.Errorf("after its retention: %v", err)
		}
		if a := r.action(open.ID); a.Status != bulk.Canceled {
			t.Errorf("an upload that was not sealed for an hour is %s, want CANCELED", a.Status)
		}
		r.action(recent)
		r.finish(r.submit(bulk.Spec{ID: "old", Type: "echo"}, 1)) // the id can be used again
	})
}

// listCounter counts the actions that are listed.
type listCounter struct {
	bulk.Store
	listed atomic.Int64
}

func (s *listCounter) Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error) {
	actions, err := s.Store.Actions(ctx, filter)
	s.listed.Add(int64(len(actions)))
	return actions, err
}

// TestRetentionCostsWhatExpires: of many finished actions that are kept, a page is read each time
// that old ones are deleted, until they are old.
func TestRetentionCostsWhatExpires(t *testing.T) {
	const kept, page = 1000, 200
	synctest.Test(t, func(t *testing.T) {
		config := bulk.Config{Retention: time.Hour}
		inner, err := pebblestore.Open("", pebblestore.Options{FS: vfs.NewMem(), Bulk: config})
		if err != nil {
			t.Fatal(err)
		}
		store := &listCounter{Store: inner}
		e, err := engine.New(store, bulk.NewMux(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(e.Stop(context.Background()), store.Close()); err != nil {
				t.Error(err)
			}
		}()
		for i := range kept {
			if _, _, err := e.Create(t.Context(), bulk.Spec{ID: fmt.Sprint(i), Tenant: "t", Type: "echo"}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Cancel(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		pass(55 * time.Minute)
		const runs = 6 // one at the start
		if listed := store.listed.Load(); listed == 0 || listed > runs*page {
			t.Errorf("%d actions read in %d runs: want a page of %d in each at most", listed, runs, page)
		}
		pass(16 * time.Minute)
		if left, err := e.Actions(t.Context(), bulk.ActionFilter{}); err != nil || len(left) > 0 {
			t.Errorf("after the retention: %d actions are left, error %v", len(left), err)
		}
	})
}

func TestCancelWhileOutcomesAreReduced(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc("send", func(context.Context, *bulk.Job) ([]byte, error) { pass(time.Second); return []byte("1"), nil })
	inVirtualTime(t, bulk.Config{Workers: 5}, mux, func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "send", Aggregate: []string{"count"}}, 100)
		other := r.submit(bulk.Spec{Tenant: "other", Type: "send", Aggregate: []string{"count"}}, 20)
		pass(5500 * time.Millisecond)
		if _, err := r.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		a := r.finish(id)
		if a.Status != bulk.Canceled || a.Succeeded == 0 || a.Succeeded+a.Canceled != 100 {
			t.Errorf("%s: %+v", a.Status, a.Counts)
		}
		bulktest.RequireCounts(t, r.finish(other), bulk.Completed, 20, 0)
	})
}

// TestManyOutcomesDelayNoOthers: an action whose outcomes come faster than they are reduced does not
// delay the end of another.
func TestManyOutcomesDelayNoOthers(t *testing.T) {
	slow := aggregate.New(
		func(result []byte) (string, error) { return string(result), nil },
		func(a, b string) string { pass(time.Millisecond); return max(a, b) })
	mux := bulk.NewMux()
	mux.HandleFunc("send", func(context.Context, *bulk.Job) ([]byte, error) { return []byte("1"), nil })
	inVirtualTime(t, bulk.Config{RequestsPerSecond: 2000}, mux, func(t *testing.T, r *rig) {
		heavy := r.submit(bulk.Spec{Type: "send", Aggregate: []string{"slow"}}, 60_000)
		pass(10 * time.Second)
		began := time.Now()
		bulktest.RequireCounts(t, r.finish(r.submit(bulk.Spec{Tenant: "other", Type: "send"}, 10)), bulk.Completed, 10, 0)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("an action of 10 jobs took %s", took)
		}
		bulktest.RequireCounts(t, r.finish(heavy), bulk.Completed, 60_000, 0)
	}, engine.WithAggregator("slow", slow))
}

// TestOneResultThatCannotBeAggregated: the action fails, so that no sum silently lacks a job, and
// has the results of the others. The jobs stay succeeded, and other actions are not affected.
func TestOneResultThatCannotBeAggregated(t *testing.T) {
	unlucky := aggregate.New(
		func(result []byte) (string, error) { return string(result), nil },
		func(a, b string) string {
			if strings.Contains(a+b, "13") {
				panic("not 13")
			}
			return max(a, b)
		})
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		for _, c := range []struct{ aggregate, last, why, result string }{
			{"sum:n", "abc", `the values of job 2499, and of others like it: aggregate sum:n: value "abc": want a number`, `map[count:2500 sum:n:"2499"]`},
			{"unlucky", "13", "aggregate unlucky: panic: not 13", ""},
			{"sum:n", "13", "", `map[count:2500 sum:n:"2512"]`},
		} {
			payloads := slices.Repeat([]any{map[string]string{"n": "1"}}, 2500)
			payloads[2499] = map[string]string{"n": c.last}
			a := r.finish(r.Submit(t, bulk.Spec{Type: "echo", Aggregate: []string{"count", c.aggregate}}, payloads...))
			want := bulk.Completed
			if c.why != "" {
				want = bulk.Failed
			}
			bulktest.RequireCounts(t, a, want, 2500, 0)
			if !strings.Contains(a.Error, c.why) || (a.Error == "") != (c.why == "") || c.result != "" && fmt.Sprintf("%s", a.Result) != c.result {
				t.Errorf("%s of %s: error %q, result %s", c.aggregate, c.last, a.Error, a.Result)
			}
		}
	}, engine.WithAggregator("unlucky", unlucky))
}

// TestJobsFollowOneAnotherAtATargetWithLittleConcurrency checks that a target's concurrency,
// not the fetcher's interval, bounds the rate of short jobs.
func TestJobsFollowOneAnotherAtATargetWithLittleConcurrency(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc(bulk.WebhookType, func(context.Context, *bulk.Job) ([]byte, error) { pass(10 * time.Millisecond); return nil, nil })
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		if err := r.Set(t.Context(), bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{Concurrency: 2}}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a := r.finish(r.submit(bulk.Spec{Target: &bulk.Target{Name: "api", URL: "http://api"}}, 200))
		bulktest.RequireCounts(t, a, bulk.Completed, 200, 0)
		if took := a.FinishedAt.Sub(began); took > 3*time.Second {
			t.Errorf("200 jobs of 10 ms, two at a time, took %s", took)
		}
	})
}

// TestWhyBeforeTheStart: an engine that has not started explains jobs too.
func TestWhyBeforeTheStart(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "nobody-runs-this"}, 1)
		pass(3 * time.Second)
		e, err := engine.New(r.Store(), bulk.NewMux(), r.config) // not started
		if err != nil {
			t.Fatal(err)
		}
		if x, err := e.Why(t.Context(), id, bulk.FirstJob); err != nil || x.Reason != engine.WhyNoWorker {
			t.Errorf("%q (%s), %v; want %s", x.Reason, x.Text, err, engine.WhyNoWorker)
		}
	})
}
