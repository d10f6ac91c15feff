package bulktest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// recorder is a test that records its failure.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.failed += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failure runs a test to its end and returns its failure; empty if it passes.
func failure(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.failed
}

// wantFailure fails unless the test fails with a text that contains all parts.
func wantFailure(t *testing.T, test func(t testing.TB), parts ...string) {
	t.Helper()
	text := failure(t, test)
	if text == "" {
		t.Errorf("it did not fail; want %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it fails with %q, want %q in it", text, part)
		}
	}
}

// letter is the payload of the tests' jobs.
type letter struct {
	To string `json:"to"`
}

func (letter) JobType() string { return "letter:send" }

var errLost = errors.New("lost")

// post is a worker that behaves as the address says.
func post(ctx context.Context, job *bulk.TypedJob[letter]) (any, error) {
	switch job.Args.To {
	case "nowhere":
		return nil, fmt.Errorf("no such address: %w", bulk.SkipRetry)
	case "far":
		return nil, &bulk.RetryAfterError{After: time.Hour, Err: errLost}
	case "busy":
		return nil, &bulk.ThrottledError{RetryAfter: time.Minute, Reason: "the letter box is full"}
	case "explodes":
		panic("bang")
	case "late":
		<-ctx.Done()
		return nil, ctx.Err()
	case "second":
		if job.Attempt == 1 {
			return nil, errLost
		}
	case "silent":
		return nil, nil
	}
	return map[string]any{"to": job.Args.To, "tenant": job.Spec.Tenant}, nil
}

func posted(t testing.TB, to string, change ...func(*bulk.Job)) *Attempt {
	t.Helper()
	return Work(t, bulk.WorkFunc[letter](post), letter{to}, change...)
}

func TestAttempts(t *testing.T) {
	posted(t, "home").RequireSucceeded().RequireResult(map[string]string{"tenant": "tenant", "to": "home"})
	posted(t, "home", func(j *bulk.Job) { j.Spec.Tenant = "shop" }).RequireResult([]byte(`{"to":"home", "tenant":"shop"}`))
	posted(t, "silent").RequireResult(nil)
	posted(t, "nowhere").RequireFailed().RequireError(bulk.SkipRetry).RequireErrorText("no such address")
	posted(t, "far").RequireRetried(time.Hour).RequireError(errLost)
	posted(t, "busy").RequireThrottled(time.Minute)
	posted(t, "explodes").RequireRetried(0).RequireErrorText("panic: bang")
	posted(t, "second").RequireRetried(0)
	posted(t, "second", func(j *bulk.Job) { j.Attempt = 2 }).RequireSucceeded()
	synctest.Test(t, func(t *testing.T) {
		posted(t, "late", func(j *bulk.Job) { j.Spec.Timeout = time.Minute }).RequireRetried(0).RequireErrorText("timed out after 1m0s")
	})
}

func TestRunOfAMux(t *testing.T) {
	mux := bulk.NewMux()
	mux.Use(func(next bulk.Handler) bulk.Handler {
		return bulk.HandlerFunc(func(ctx context.Context, job *bulk.Job) ([]byte, error) {
			if job.Attempt > 2 {
				return nil, bulk.SkipRetry
			}
			return next.Handle(ctx, job)
		})
	})
	job := NewJob(t, "echo", letter{"home"})
	Run(t, mux, job, bulk.Config{}).RequireResult(letter{"home"})
	job.Attempt = 3
	Run(t, mux, job, bulk.Config{}).RequireFailed()
	if job := NewJob(t, "", letter{}); job.Spec.Type != "letter:send" {
		t.Errorf("the type of the job is %q", job.Spec.Type)
	}
	wantFailure(t, func(t testing.TB) { NewJob(t, "echo", func() {}) }, "the payload cannot be encoded")
}

func TestFailuresOfAttempts(t *testing.T) {
	for want, test := range map[string]func(t testing.TB){
		`the attempt succeeded with {"tenant":"tenant","to":"home"}; want one that failed for good`:                                        func(t testing.TB) { posted(t, "home").RequireFailed() },
		`want one that succeeded with {"to":"abroad"}`:                                                                                     func(t testing.TB) { posted(t, "home").RequireResult(letter{"abroad"}) },
		`want one that succeeded without a result`:                                                                                         func(t testing.TB) { posted(t, "home").RequireResult(nil) },
		`the attempt succeeded without a result; want one that succeeded with null`:                                                        func(t testing.TB) { posted(t, "silent").RequireResult([]byte("null")) },
		`the attempt failed for good: no such address: not to be retried; want one that succeeded`:                                         func(t testing.TB) { posted(t, "nowhere").RequireSucceeded() },
		`failed for now, to come again after 1h0m0s: lost; want one that failed for now, to come again after 1m0s`:                         func(t testing.TB) { posted(t, "far").RequireRetried(time.Minute) },
		`was throttled, to come again after 1m0s: throttled: the letter box is full; want one that was throttled, with no delay asked for`: func(t testing.TB) { posted(t, "busy").RequireThrottled(0) },
		"bulktest.post":                     func(t testing.TB) { posted(t, "explodes").RequireSucceeded() }, // with the stack
		`want the error "lost"`:             func(t testing.TB) { posted(t, "nowhere").RequireError(errLost) },
		`want an error about "the weather"`: func(t testing.TB) { posted(t, "nowhere").RequireErrorText("the weather") },
	} {
		wantFailure(t, test, want)
	}
}

func newMux() *bulk.Mux {
	mux := bulk.NewMux()
	bulk.AddWorkFunc(mux, post)
	return mux
}

func TestEngineInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t, newMux(), bulk.Config{MaxAttempts: 2})
		began := time.Now()
		e.Timeout = 3 * time.Minute
		a := e.Run(t, bulk.Spec{}, letter{"home"}, letter{"nowhere"}, letter{"second"})
		RequireCounts(t, a, bulk.Completed, 2, 1)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		RequireDeadLetters(t, e, a.ID, "no such address")
		RequireJobs(t, e, "tenant", letter{"home"}, letter{"nowhere"}, letter{"second"})
		RequireDeadLetters(t, e, e.Run(t, bulk.Spec{}, letter{"home"}).ID)
	})
}

func TestEngineOutsideOfABubble(t *testing.T) {
	e := New(t, newMux(), bulk.Config{BackoffBase: time.Millisecond})
	a := e.Run(t, bulk.Spec{Tenant: "shop", Type: "letter:send"}, []byte(`{"to":"second"}`))
	RequireCounts(t, a, bulk.Completed, 1, 0)
	if got := RequireAction(t, e, "shop", ""); got.ID != a.ID || got.Retried != 1 {
		t.Errorf("the action is %s", describe(got))
	}
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t, bulk.NewMux(), bulk.Config{})
		id := e.Submit(t, bulk.Spec{}, letter{"home"}, letter{"home"})
		before := e.Store()
		e.Restart(t, newMux())
		RequireCounts(t, e.Wait(t, id), bulk.Completed, 2, 0)
		RequireJobs(t, e, "", letter{"home"}, letter{"home"})
		if err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := before.Action(t.Context(), id); err != nil {
			t.Errorf("the store after the engine: %v", err)
		}
		e.Close(t)
	})
}

// TestJobsAreKeptAsTheyCame checks that reused buffers and repeated uploads do not change the
// kept jobs.
func TestJobsAreKeptAsTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t, newMux(), bulk.Config{})
		a, _, err := e.Create(t.Context(), bulk.Spec{Tenant: "shop", Type: "letter:send"})
		if err != nil {
			t.Fatal(err)
		}
		one, other := []byte(`{"to":"one"}`), []byte(`{"to":"two"}`)
		for _, payloads := range [][][]byte{{one}, {other, other}} { // the second overlaps the first
			if _, err := e.Append(t.Context(), a.ID, 0, payloads); err != nil {
				t.Fatal(err)
			}
		}
		copy(one, `{"to":"xxx"}`)
		if _, err := e.Append(t.Context(), a.ID, 9, payloadsOf("late")); err == nil {
			t.Error("a gap was taken")
		}
		RequireJobs(t, e, "shop", letter{"one"}, letter{"two"})
	})
}

func payloadsOf(to string) [][]byte { return [][]byte{[]byte(`{"to":"` + to + `"}`)} }

func TestFailuresOfTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t, newMux(), bulk.Config{})
		id := e.Submit(t, bulk.Spec{ID: "a"}, letter{"home"}, letter{"nowhere"})
		finished := e.Wait(t, id)
		e.Submit(t, bulk.Spec{ID: "b", Tenant: "shop", Type: "unknown"}, 1, 2)
		e.Submit(t, bulk.Spec{ID: "c", Tenant: "shop"}, letter{"busy"}, letter{"far"})
		time.Sleep(time.Second)
		const actions = "\n  action \"a\" of tenant, type \"letter:send\", COMPLETED: 2 jobs, 1 succeeded, 1 failed" +
			"\n  action \"b\" of shop, type \"unknown\", RUNNING: 2 jobs, 0 succeeded, 0 failed, 2 waiting: is there a handler of that type?" +
			"\n  action \"c\" of shop, type \"letter:send\", RUNNING: 2 jobs, 0 succeeded, 0 failed, 1 throttled, 1 to be retried"
		wantFailure(t, func(t testing.TB) { RequireAction(t, e, "shop", "") }, `2 actions of tenant "shop" and type ""; want one. There are:`+actions)
		wantFailure(t, func(t testing.TB) { RequireJobs(t, e, "shop", letter{"busy"}) },
			"2 jobs were inserted for tenant \"shop\":\n  {\"to\":\"busy\"}\n  {\"to\":\"far\"}\nwant 1:\n  {\"to\":\"busy\"}\n", actions)
		wantFailure(t, func(t testing.TB) { RequireJobs(t, e, "nobody", letter{"x"}) }, `0 jobs were inserted for tenant "nobody": none`)
		wantFailure(t, func(t testing.TB) { RequireJobs(t, e, "shop", letter{"far"}, letter{"busy"}) }, "want 2")
		wantFailure(t, func(t testing.TB) { RequireDeadLetters(t, e, id) },
			`action "a" has 1 dead letters:`, `a-1, 1 attempts, {"to":"nowhere"}: no such address: not to be retried`, "want 0: none")
		wantFailure(t, func(t testing.TB) { RequireDeadLetters(t, e, id, "other") }, "want 1:\n  other")
		wantFailure(t, func(t testing.TB) { RequireDeadLetters(t, e, "none") }, "no such action")
		wantFailure(t, func(t testing.TB) { RequireCounts(t, finished, bulk.Completed, 2, 0) },
			`there is action "a" of tenant`, "want COMPLETED with 2 succeeded and 0 failed")
		wantFailure(t, func(t testing.TB) {
			a := finished
			a.InFlight++
			RequireCounts(t, a, bulk.Completed, 1, 1)
		}, "do not add up")

		wantFailure(t, func(t testing.TB) { e.Wait(t, "b") }, `after 1m0s there is still action "b" of shop`, "is there a handler of that type?")
		if _, err := e.Pause(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		wantFailure(t, func(t testing.TB) { e.Wait(t, "b") }, ", paused")
		wantFailure(t, func(t testing.TB) { e.Wait(t, "none") }, `wait for action "none": no such action`)
		wantFailure(t, func(t testing.TB) { e.Submit(t, bulk.Spec{}, 1) }, "create the action: type: give a type")
		e.Submit(t, bulk.Spec{ID: "d", Tenant: "other", Type: "letter:send"}, []byte("[]"))
		wantFailure(t, func(t testing.TB) { Jobs[letter](t, e, "other") }, "job d-0 is not a bulktest.letter", ": []")
	})
}

func TestEndsOfTheEngineAreReported(t *testing.T) {
	wantFailure(t, func(tb testing.TB) {
		synctest.Test(t, func(t *testing.T) {
			started, hang := make(chan struct{}), make(chan struct{})
			mux := bulk.NewMux()
			mux.HandleFunc("hangs", func(context.Context, *bulk.Job) ([]byte, error) { close(started); <-hang; return nil, nil })
			e := New(t, mux, bulk.Config{ShutdownGrace: time.Second})
			e.Submit(t, bulk.Spec{Type: "hangs"}, 1)
			<-started
			e.Close(tb)
			close(hang)
		})
	}, "stop the engine: did not stop in time: hangs worker")
}

func TestMoreJobsThanAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t, newMux(), bulk.Config{})
		payloads := make([]any, MaxInserted+1)
		for i := range payloads {
			payloads[i] = letter{"home"}
		}
		e.Submit(t, bulk.Spec{}, payloads[:MaxInserted]...)
		if n := len(Jobs[letter](t, e, "")); n != MaxInserted {
			t.Errorf("%d jobs, want %d", n, MaxInserted)
		}
		id := e.Submit(t, bulk.Spec{}, payloads...)
		if n := len(e.store.jobs[id]); n != MaxInserted {
			t.Errorf("%d jobs are kept, want %d", n, MaxInserted)
		}
		wantFailure(t, func(t testing.TB) { Jobs[letter](t, e, "") }, "has 10001 jobs; only 10000 of one action are kept")
	})
}
