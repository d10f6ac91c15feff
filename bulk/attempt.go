package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Attempt is the result of one attempt of a job.
type Attempt struct {
	// Kind is Succeeded, FailedForGood, FailedForNow or Throttled.
	Kind SettlementKind
	// Result is what the handler returned, if it succeeded.
	Result []byte
	// Err is why the attempt failed: the handler's error or a *PanicError, wrapped with
	// the timeout if that had passed.
	Err error
	// RetryAfter is the delay that the error or the handler's retry delay asks for; 0
	// leaves it to the backoff, or to the slots of throttled jobs.
	RetryAfter time.Duration
}

// PanicError is the error of an attempt whose handler panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Attempt makes one attempt of a job as an engine with this config does, without an
// engine or a store: with the mux's middleware, within the attempt's timeout, and with
// panics returned as errors. The zero Config is the default. It panics if the type has
// no handler, which is an error of the program.
func (m *Mux) Attempt(ctx context.Context, job *Job, config Config) Attempt {
	if _, exists := m.handlers[job.Spec.Type]; !exists {
		panic(fmt.Sprintf("bulk: job type %q has no handler; there are %q", job.Spec.Type, m.Types()))
	}
	r := m.Runner(job.Spec.Type, config.WithDefaults())
	ctx, cancel := context.WithTimeout(ctx, r.TimeoutOf(job.Spec))
	defer cancel()
	return r.Attempt(ctx, job)
}

// Runner makes attempts of the jobs of one type, as an engine does; see Mux.Runner.
type Runner struct {
	handler    Handler
	timeout    time.Duration
	retryDelay func(*Job, error) time.Duration // may be nil
}

// TimeoutOf returns the maximum duration of one attempt.
func (r *Runner) TimeoutOf(spec *Spec) time.Duration { return cmp.Or(spec.Timeout, r.timeout) }

// Attempt runs the handler once, in a context that the caller has given the attempt's timeout: see
// TimeoutOf. A panic is an error.
func (r *Runner) Attempt(ctx context.Context, job *Job) Attempt {
	result, err := r.call(ctx, job)
	if err == nil {
		return Attempt{Kind: Succeeded, Result: result}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("timed out after %s: %w", r.TimeoutOf(job.Spec), err)
	}
	a := failure(err)
	if a.Kind == FailedForNow && r.retryDelay != nil && !errors.As(err, new(*RetryAfterError)) {
		a.RetryAfter, a.Err = r.delay(job, err)
	}
	return a
}

// call runs the handler and returns a panic as an error.
func (r *Runner) call(ctx context.Context, job *Job) (result []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return r.handler.Handle(ctx, job)
}

// delay calls the handler's retry delay. If it panics, the panic is joined to the
// attempt's error.
func (r *Runner) delay(job *Job, failed error) (after time.Duration, err error) {
	defer func() {
		if value := recover(); value != nil {
			after, err = 0, fmt.Errorf("%w; its retry delay: %w", failed, &PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	return BoundRetryAfter(r.retryDelay(job, failed)), failed
}

// failure returns the Attempt of an attempt that ended with an error.
func failure(err error) Attempt {
	var throttled *ThrottledError
	var after *RetryAfterError
	switch {
	case errors.As(err, &throttled):
		return Attempt{Kind: Throttled, Err: err, RetryAfter: throttled.RetryAfter}
	case errors.Is(err, SkipRetry):
		return Attempt{Kind: FailedForGood, Err: err}
	case errors.As(err, &after):
		return Attempt{Kind: FailedForNow, Err: err, RetryAfter: after.After}
	default:
		return Attempt{Kind: FailedForNow, Err: err}
	}
}
