package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

// square is the payload of jobs whose result is N squared.
type square struct {
	N int64 `json:"n"`
}

func (square) JobType() string { return "math:square" }

type squarer struct{ seen []*bulk.TypedJob[square] }

func (s *squarer) Work(_ context.Context, job *bulk.TypedJob[square]) (any, error) {
	s.seen = append(s.seen, job)
	return square{job.Args.N * job.Args.N}, nil
}

func TestTypedWorker(t *testing.T) {
	worker := &squarer{}
	bulktest.Work(t, worker, square{math.MaxInt32}).RequireResult(square{math.MaxInt32 * math.MaxInt32})
	job := worker.seen[0]
	if job.Args.N != math.MaxInt32 || job.ID() != "action-0" || job.Attempt != 1 || job.Spec.Type != "math:square" {
		t.Errorf("the worker saw %+v of %+v", job, job.Spec)
	}
}

// byPointer implements Args by its pointer only.
type byPointer struct{ N int }

func (*byPointer) JobType() string { return "by-pointer" }

func TestJobType(t *testing.T) {
	for got, want := range map[string]string{
		bulk.JobType[square]():     "math:square",
		bulk.JobType[*square]():    "math:square",
		bulk.JobType[*byPointer](): "by-pointer",
		bulk.JobType[bulk.Args]():  "",
	} {
		if got != want {
			t.Errorf("type %q, want %q", got, want)
		}
	}
	mux := bulk.NewMux()
	bulk.AddWorkFunc(mux, func(_ context.Context, job *bulk.TypedJob[*byPointer]) (any, error) { return job.Args.N, nil })
	bulktest.Run(t, mux, bulktest.NewJob(t, "", &byPointer{N: 3}), bulk.Config{}).RequireResult(3)
	defer func() {
		if recover() == nil {
			t.Error("a worker of no type is taken")
		}
	}()
	bulk.AddWorkFunc(mux, func(context.Context, *bulk.TypedJob[bulk.Args]) (any, error) { return nil, nil })
}

func TestPayloadsThatCannotBeDecoded(t *testing.T) {
	mux := bulk.NewMux()
	bulk.AddWorker(mux, &squarer{})
	for payload, want := range map[string]string{
		`{"n":"7"}`:                   "the payload is not a engine_test.square: json: cannot unmarshal string",
		`[1]`:                         "cannot unmarshal array",
		`{"n":1`:                      "unexpected end of JSON input",
		`{"n":1}{"n":2}`:              "invalid character '{' after top-level value",
		`{"n":9223372036854775808}`:   "cannot unmarshal number 9223372036854775808",
		``:                            "unexpected end of JSON input",
		`{"n":1.5}`:                   "cannot unmarshal number 1.5",
		`{"n":1,"what is this":true}`: "",
	} {
		got := bulktest.Run(t, mux, bulktest.NewJob(t, "math:square", []byte(payload)), bulk.Config{})
		if want == "" {
			got.RequireResult(square{1})
			continue
		}
		got.RequireFailed().RequireErrorText(want).RequireErrorText("not to be retried")
	}
}

func TestResultsAreEncoded(t *testing.T) {
	for name, c := range map[string]struct {
		result any
		want   string // of the error
	}{
		"nothing":      {nil, ""},
		"a string":     {"<a>", ""},
		"JSON":         {json.RawMessage(`{"n": 1}`), ""},
		"no JSON":      {json.RawMessage(`{`), "its result cannot be encoded"},
		"not a number": {math.NaN(), "unsupported value: NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			f := bulk.WorkFunc[square](func(context.Context, *bulk.TypedJob[square]) (any, error) { return c.result, nil })
			got := bulktest.Work(t, f, square{})
			if c.want != "" {
				got.RequireFailed().RequireErrorText(c.want)
				return
			}
			got.RequireResult(c.result)
		})
	}
}

func TestErrorsOfTypedWorkers(t *testing.T) {
	var failure error
	mux := bulk.NewMux()
	bulk.AddWorkFunc(mux, func(_ context.Context, job *bulk.TypedJob[square]) (any, error) {
		if job.Args.N == 0 {
			panic("division by zero")
		}
		return job.Args, failure
	})
	run := func(err error) *bulktest.Attempt {
		failure = err
		return bulktest.Run(t, mux, bulktest.NewJob(t, "", square{1}), bulk.Config{})
	}
	run(fmt.Errorf("%w: %w", errBroken, bulk.SkipRetry)).RequireFailed().RequireError(errBroken)
	run(errBroken).RequireRetried(0).RequireError(errBroken)
	run(&bulk.RetryAfterError{After: time.Hour, Err: errBroken}).RequireRetried(time.Hour)
	run(&bulk.ThrottledError{RetryAfter: time.Minute}).RequireThrottled(time.Minute)
	got := bulktest.Run(t, mux, bulktest.NewJob(t, "", square{0}), bulk.Config{}).RequireRetried(0)
	var panicked *bulk.PanicError
	if !errors.As(got.Err, &panicked) || panicked.Value != "division by zero" || !strings.Contains(string(panicked.Stack), "typed_test.go") {
		t.Errorf("a panic is the error %#v", got.Err)
	}
}

func TestTypedJobsFromEndToEnd(t *testing.T) {
	mux := bulk.NewMux()
	bulk.AddWorker(mux, &squarer{})
	inVirtualTime(t, bulk.Config{Workers: 1}, mux, func(t *testing.T, r *rig) {
		a := r.Run(t, bulk.Spec{Aggregate: []string{"sum:n"}}, square{1}, square{2}, []byte(`{"n":"3"}`), square{4})
		bulktest.RequireCounts(t, a, bulk.Completed, 3, 1)
		if string(a.Result["sum:n"]) != `"21"` {
			t.Errorf("the sum is %s", a.Result["sum:n"])
		}
		bulktest.RequireDeadLetters(t, r.Engine, a.ID, "the payload is not a engine_test.square")
	})
}

// TestWithTimeout checks the precedence of timeouts: the action's, then the one of the type's
// settings, then the worker's own, then the general one.
func TestWithTimeout(t *testing.T) {
	took := time.Duration(0)
	wait := func(ctx context.Context, _ *bulk.TypedJob[square]) (any, error) {
		began := time.Now()
		<-ctx.Done()
		took = time.Since(began)
		return nil, ctx.Err()
	}
	for _, c := range []struct {
		own, types, spec time.Duration
		want             time.Duration
	}{
		{0, 0, 0, 5 * time.Second},
		{time.Minute, 0, 0, time.Minute},
		{time.Minute, 9 * time.Second, 0, 9 * time.Second},
		{time.Minute, 9 * time.Second, time.Second, time.Second},
	} {
		mux := bulk.NewMux()
		var options []bulk.HandlerOption
		if c.own > 0 {
			options = append(options, bulk.WithTimeout(c.own))
		}
		bulk.AddWorkFunc(mux, wait, options...)
		config := bulk.Config{JobTimeout: 5 * time.Second, MaxAttempts: 1, Types: map[string]bulk.TypeConfig{"math:square": {JobTimeout: c.types}}}
		inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
			a := r.Run(t, bulk.Spec{Timeout: c.spec}, square{})
			bulktest.RequireDeadLetters(t, r.Engine, a.ID, fmt.Sprintf("timed out after %s: context deadline exceeded", c.want))
			if took != c.want {
				t.Errorf("%+v: timed out after %s", c, took)
			}
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("a timeout of 0 is taken")
		}
	}()
	bulk.WithTimeout(0)
}

func TestWithRetryDelay(t *testing.T) {
	var began []time.Time
	mux := bulk.NewMux()
	mux.HandleFunc("send", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		began = append(began, time.Now())
		switch job.Attempt {
		case 2:
			panic("oh")
		case 4:
			return nil, &bulk.RetryAfterError{After: 5 * time.Second, Err: errBroken}
		case 5:
			return nil, bulk.SkipRetry
		}
		return nil, errBroken
	}, bulk.WithRetryDelay(func(job *bulk.Job, err error) time.Duration {
		if job.Attempt == 3 {
			panic(fmt.Sprint("no delay for ", err))
		}
		return time.Duration(job.Attempt) * time.Minute
	}))
	config := bulk.Config{MaxAttempts: 9, BackoffBase: time.Second}
	inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
		a := r.Run(t, bulk.Spec{Type: "send"}, 0)
		letters := bulktest.RequireDeadLetters(t, r.Engine, a.ID, "not to be retried")
		if letters[0].Attempts != 5 || len(began) != 5 {
			t.Fatalf("%d attempts: %v", letters[0].Attempts, began)
		}
		for i, c := range []struct{ from, to time.Duration }{
			{time.Minute, time.Minute},
			{2 * time.Minute, 2 * time.Minute},
			{2 * time.Second, 4 * time.Second}, // the backoff
			{5 * time.Second, 5 * time.Second},
		} {
			if waited := began[i+1].Sub(began[i]); waited < c.from || waited > c.to+2*time.Second {
				t.Errorf("after attempt %d it waited %s, want from %s to %s", i+1, waited, c.from, c.to)
			}
		}
	})
}

func TestRetryDelayAlone(t *testing.T) {
	asked := time.Duration(0)
	mux := bulk.NewMux()
	var failure error
	bulk.AddWorkFunc(mux, func(context.Context, *bulk.TypedJob[square]) (any, error) { return nil, failure },
		bulk.WithRetryDelay(func(*bulk.Job, error) time.Duration {
			if asked < 0 {
				panic("below zero")
			}
			return asked
		}))
	run := func(delay time.Duration, err error) *bulktest.Attempt {
		asked, failure = delay, err
		return bulktest.Run(t, mux, bulktest.NewJob(t, "", square{}), bulk.Config{})
	}
	run(time.Hour, errBroken).RequireRetried(time.Hour).RequireError(errBroken)
	run(0, errBroken).RequireRetried(0)
	run(48*time.Hour, errBroken).RequireRetried(24 * time.Hour)
	run(-1, errBroken).RequireRetried(0).RequireError(errBroken).RequireErrorText("its retry delay: panic: below zero")
	run(time.Hour, &bulk.ThrottledError{RetryAfter: time.Second}).RequireThrottled(time.Second)
	run(time.Hour, bulk.SkipRetry).RequireFailed()
}

func TestAttemptOfNoHandler(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, `job type "none" has no handler; there are ["echo"]`) {
			t.Errorf("panic: %s", text)
		}
	}()
	bulk.NewMux().Attempt(t.Context(), bulktest.NewJob(t, "none", 1), bulk.Config{})
}
