package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

// handled returns a mux with one type, "send".
func handled(handler bulk.HandlerFunc) *bulk.Mux {
	mux := bulk.NewMux()
	mux.HandleFunc("send", handler)
	return mux
}

func (r *rig) letters(id string) []bulk.DeadLetter {
	r.t.Helper()
	letters, err := r.DeadLetters(context.Background(), id, 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	return letters
}

var errBroken = errors.New("broken")

// end is a way in which a handler ends, and the effect on its job.
type end struct {
	handle   bulk.HandlerFunc
	attempts int // attempts of the job
	counted  int // attempts of the dead letter; 0: the job succeeds
	retried  int64
	why      string
	atLeast  time.Duration
	atMost   time.Duration
}

var ends = map[string]end{
	"a panic is retried, then a dead letter": {
		handle:   func(context.Context, *bulk.Job) ([]byte, error) { panic("oh") },
		attempts: 4, counted: 4, retried: 3, why: "panic: oh", atLeast: 3500 * time.Millisecond, atMost: 8 * time.Second},
	"an error is retried": {
		handle: func(_ context.Context, job *bulk.Job) ([]byte, error) {
			if job.Attempt < 3 {
				return nil, errBroken
			}
			return nil, nil
		},
		attempts: 3, retried: 2, atLeast: 1500 * time.Millisecond, atMost: 4 * time.Second},
	"SkipRetry is final": {
		handle: func(context.Context, *bulk.Job) ([]byte, error) {
			return nil, fmt.Errorf("%w: %w", errBroken, bulk.SkipRetry)
		},
		attempts: 1, counted: 1, why: "broken: not to be retried", atMost: time.Second},
	"RetryAfterError says when": {
		handle: func(_ context.Context, job *bulk.Job) ([]byte, error) {
			if job.Attempt == 1 {
				return nil, fmt.Errorf("wrapped: %w", &bulk.RetryAfterError{After: 17 * time.Second, Err: errBroken})
			}
			return nil, nil
		},
		attempts: 2, retried: 1, atLeast: 17 * time.Second, atMost: 18 * time.Second},
	"RetryAfterError uses attempts": {
		handle: func(context.Context, *bulk.Job) ([]byte, error) {
			return nil, &bulk.RetryAfterError{After: time.Second, Err: errBroken}
		},
		attempts: 4, counted: 4, retried: 3, why: "broken", atLeast: 3 * time.Second, atMost: 5 * time.Second},
	"RetryAfterError of SkipRetry is final": {
		handle: func(context.Context, *bulk.Job) ([]byte, error) {
			return nil, &bulk.RetryAfterError{After: time.Second, Err: bulk.SkipRetry}
		},
		attempts: 1, counted: 1, why: "not to be retried", atMost: time.Second},
	"a timeout is an error": {
		handle:   func(ctx context.Context, _ *bulk.Job) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
		attempts: 4, counted: 4, retried: 3, why: "timed out after 5s: context deadline exceeded", atLeast: 23 * time.Second, atMost: 28 * time.Second},
	"a result that comes late is a result": {
		handle:   func(context.Context, *bulk.Job) ([]byte, error) { pass(7 * time.Second); return nil, nil },
		attempts: 1, atLeast: 7 * time.Second, atMost: 8 * time.Second},
}

func TestHowAttemptsEnd(t *testing.T) {
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			mux := handled(func(ctx context.Context, job *bulk.Job) ([]byte, error) { attempts++; return c.handle(ctx, job) })
			inVirtualTime(t, bulk.Config{JobTimeout: 5 * time.Second}, mux, func(t *testing.T, r *rig) {
				began := time.Now()
				id := r.submit(bulk.Spec{Type: "send"}, 1)
				a := r.finish(id)
				failed := int64(min(1, c.counted))
				bulktest.RequireCounts(t, a, bulk.Completed, 1-failed, failed)
				if attempts != c.attempts || a.Retried != c.retried || a.Throttled != 0 {
					t.Errorf("%d attempts, %d retried, %d throttled; want %d, %d and none", attempts, a.Retried, a.Throttled, c.attempts, c.retried)
				}
				if took := a.FinishedAt.Sub(began); took < c.atLeast || took > c.atMost {
					t.Errorf("took %s, want from %s to %s", took, c.atLeast, c.atMost)
				}
				letters := r.letters(id)
				if len(letters) != int(failed) {
					t.Fatalf("dead letters: %+v", letters)
				}
				if failed == 1 && (letters[0].Attempts != c.counted || letters[0].Error != c.why || string(letters[0].Payload) != "0") {
					t.Errorf("the dead letter is %+v, want %d attempts and %q", letters[0], c.counted, c.why)
				}
			})
		})
	}
}

func TestThrottledUsesNoAttempt(t *testing.T) {
	var attempts []int
	mux := handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		attempts = append(attempts, job.Attempt)
		if len(attempts) <= 10 {
			return nil, fmt.Errorf("called: %w", &bulk.ThrottledError{RetryAfter: 3 * time.Second, Reason: "429"})
		}
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{MaxAttempts: 1}, mux, func(t *testing.T, r *rig) {
		began := time.Now()
		a := r.finish(r.submit(bulk.Spec{Type: "send"}, 1))
		bulktest.RequireCounts(t, a, bulk.Completed, 1, 0)
		if a.Throttled != 10 || a.Retried != 0 || len(attempts) != 11 || slices.Max(attempts) != 1 {
			t.Errorf("throttled %d, retried %d, attempts %d", a.Throttled, a.Retried, attempts)
		}
		if took := a.FinishedAt.Sub(began); took < 30*time.Second {
			t.Errorf("ten times 3 s were asked for, but it took %s", took)
		}
	})
}

func TestMaxAttemptsAndTimeoutOfAnAction(t *testing.T) {
	var deadlines []time.Duration
	mux := handled(func(ctx context.Context, job *bulk.Job) ([]byte, error) {
		at, _ := ctx.Deadline()
		deadlines = append(deadlines, time.Until(at))
		return nil, errors.New("no")
	})
	config := bulk.Config{Types: map[string]bulk.TypeConfig{"send": {MaxAttempts: 3, JobTimeout: time.Minute, BackoffBase: time.Millisecond}}}
	inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
		r.finish(r.submit(bulk.Spec{Type: "send"}, 1))
		if !slices.Equal(deadlines, []time.Duration{time.Minute, time.Minute, time.Minute}) {
			t.Errorf("by the type: %s", deadlines)
		}
		deadlines = nil
		r.finish(r.submit(bulk.Spec{Type: "send", MaxAttempts: 2, Timeout: time.Hour}, 1))
		if !slices.Equal(deadlines, []time.Duration{time.Hour, time.Hour}) {
			t.Errorf("by the action: %s", deadlines)
		}
	})
}

func TestMiddlewareOrder(t *testing.T) {
	var order []string
	around := func(name string) bulk.Middleware {
		return func(next bulk.Handler) bulk.Handler {
			return bulk.HandlerFunc(func(ctx context.Context, job *bulk.Job) ([]byte, error) {
				order = append(order, name+" in")
				defer func() { order = append(order, name+" out") }()
				return next.Handle(ctx, job)
			})
		}
	}
	mux := bulk.NewMux()
	mux.Use(around("a"))
	mux.HandleFunc("send", func(context.Context, *bulk.Job) ([]byte, error) { order = append(order, "handler"); return nil, nil })
	mux.Use(around("b"), around("c"))
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		r.finish(r.submit(bulk.Spec{Type: "send"}, 1))
		if got, want := strings.Join(order, ", "), "a in, b in, c in, handler, c out, b out, a out"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

func TestMuxRefusesMistakes(t *testing.T) {
	mux := bulk.NewMux()
	for name, jobType := range map[string]string{"a second handler": "echo", "no type": "", "a space": "a b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", name)
				}
			}()
			mux.HandleFunc(jobType, func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
		}()
	}
	if types := mux.Types(); !slices.Equal(types, []string{"echo"}) {
		t.Errorf("types %q", types)
	}
}

func TestWorkersCanBeMoreOrFewer(t *testing.T) {
	var running, most atomic.Int64
	mux := handled(func(context.Context, *bulk.Job) ([]byte, error) {
		now := running.Add(1)
		most.Store(max(most.Load(), now))
		pass(100 * time.Millisecond)
		running.Add(-1)
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{Workers: 4}, mux, func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "send"}, 5000)
		for _, workers := range []int{0, 20, 2, 7} {
			if workers > 0 {
				set := r.Set
				if workers == 7 {
					set = r.Store().Set // like another instance
				}
				if err := set(r.t.Context(), bulk.SettingsChange{Name: "send", Type: &bulk.TypeLimits{Concurrency: workers}}); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
			} else {
				workers = 4
			}
			pass(5 * time.Second) // the ready queue has grown to one second of work
			most.Store(0)
			before := r.action(id).Succeeded
			pass(5 * time.Second)
			done := r.action(id).Succeeded - before
			if ideal := int64(workers * 50); most.Load() != int64(workers) || done < ideal*9/10 || done > ideal+int64(workers) {
				t.Errorf("with %d workers: %d at most ran at a time, %d jobs in 5 s, want about %d", workers, most.Load(), done, ideal)
			}
		}
	})
}

// TestASlowJobKeepsItsLease checks that the lease of a long job is extended: it runs once.
func TestASlowJobKeepsItsLease(t *testing.T) {
	var runs atomic.Int64
	mux := handled(func(context.Context, *bulk.Job) ([]byte, error) {
		runs.Add(1)
		pass(10 * time.Minute)
		return []byte("1"), nil
	})
	inVirtualTime(t, bulk.Config{JobTimeout: time.Hour}, mux, func(t *testing.T, r *rig) {
		a := r.finish(r.submit(bulk.Spec{Type: "send", Aggregate: []string{"count"}}, 3))
		bulktest.RequireCounts(t, a, bulk.Completed, 3, 0)
		if n := runs.Load(); n != 3 || a.Retried != 0 || string(a.Result["count"]) != "3" {
			t.Errorf("%d runs of 3 jobs, %d retried, result %s", n, a.Retried, a.Result)
		}
	})
}

// TestAHandlerThatHangsIsGivenUp checks that the attempt of a handler that does not return after its
// timeout and the grace has failed, and that its late outcome does not count twice.
func TestAHandlerThatHangsIsGivenUp(t *testing.T) {
	var runs atomic.Int64
	hang := make(chan struct{})
	mux := handled(func(context.Context, *bulk.Job) ([]byte, error) {
		if runs.Add(1) == 1 {
			<-hang
		}
		return json.RawMessage("1"), nil
	})
	synctest.Test(t, func(t *testing.T) {
		hang = make(chan struct{})
		r := newRig(t, bulk.Config{JobTimeout: 10 * time.Second}, mux)
		id := r.submit(bulk.Spec{Type: "send", Aggregate: []string{"count"}}, 1)
		began := time.Now()
		a := r.finish(id)
		bulktest.RequireCounts(t, a, bulk.Completed, 1, 0)
		if a.Retried != 1 {
			t.Errorf("%d retries, want 1", a.Retried)
		}
		if took := time.Since(began); runs.Load() != 2 || took < 40*time.Second || took > 90*time.Second {
			t.Errorf("%d runs, finished after %s", runs.Load(), took)
		}
		close(hang)
		synctest.Wait()
		pass(time.Second)
		bulktest.RequireCounts(t, r.action(id), bulk.Completed, 1, 0)
	})
}

// untilTold is a handler that ends when it is told to, and counts that.
func untilTold(told *atomic.Int64) bulk.HandlerFunc {
	return func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		<-ctx.Done()
		told.Add(1)
		return nil, ctx.Err()
	}
}

// Cancel ends the handlers of the action, and of no other, at once where it is called, and at another
// instance when that extends its leases.
func TestCancelEndsHandlers(t *testing.T) {
	for name, within := range map[string]time.Duration{"here": 0, "elsewhere": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int64
			inVirtualTime(t, bulk.Config{JobTimeout: time.Hour, Lease: 30 * time.Second}, handled(untilTold(&told)), func(t *testing.T, r *rig) {
				id, other := r.submit(bulk.Spec{Type: "send"}, 3), r.submit(bulk.Spec{Type: "send"}, 1)
				pass(time.Second)
				cancel := r.Cancel
				if within > 0 {
					e := r.instance(r.Store())
					defer stop(t, e)
					cancel = e.Cancel
				}
				if _, err := cancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(within + time.Second)
				if n := told.Load(); n != 3 {
					t.Errorf("%d handlers were told to end, want 3", n)
				}
				if a := r.finish(id); a.Canceled != 3 || a.Retried != 0 {
					t.Errorf("canceled: %+v", a.Counts)
				}
				if a := r.action(other); a.InFlight != 1 {
					t.Errorf("another action: %+v, want its job in flight", a.Counts)
				}
			})
		})
	}
}

// forgetful is a store that extends no leases while it is away.
type forgetful struct {
	bulk.Store
	away atomic.Bool
}

func (f *forgetful) Settle(ctx context.Context, settlements []bulk.Settlement) ([]bulk.Verdict, error) {
	if settlements[0].Kind == bulk.Extended && f.away.Load() {
		return nil, bulk.ErrUnavailable
	}
	return f.Store.Settle(ctx, settlements)
}

// A handler whose lease was lost, so that another attempt runs its job, is told to end.
func TestLostLeaseEndsHandler(t *testing.T) {
	var told, runs atomic.Int64
	mux := handled(func(ctx context.Context, job *bulk.Job) ([]byte, error) {
		if runs.Add(1) > 1 {
			return nil, nil
		}
		return untilTold(&told)(ctx, job)
	})
	config := bulk.Config{JobTimeout: time.Hour, Lease: 30 * time.Second}
	inVirtualTime(t, config, bulk.NewMux(), func(t *testing.T, r *rig) {
		store := &forgetful{Store: r.Store()}
		e, err := engine.New(store, mux, config)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer stop(t, e)
		store.away.Store(true)
		id := r.submit(bulk.Spec{Type: "send"}, 1)
		bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 1, 0)
		store.away.Store(false)
		pass(config.Lease)
		if told.Load() != 1 {
			t.Error("the handler was not told to end")
		}
	})
}
