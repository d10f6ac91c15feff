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
	r := m.runner(job.Spec.Type, config.WithDefaults())
	ctx, cancel := context.WithTimeout(ctx, r.timeoutOf(job.Spec))
	defer cancel()
	return r.attempt(ctx, job)
}

// runner makes attempts of the jobs of one type.
type runner struct {
	handler    Handler
	timeout    time.Duration
	retryDelay func(*Job, error) time.Duration // may be nil
}

// timeoutOf returns the maximum duration of one attempt.
func (r *runner) timeoutOf(spec *Spec) time.Duration { return cmp.Or(spec.Timeout, r.timeout) }

// attempt runs the handler once, in a context that ends at the attempt's timeout.
func (r *runner) attempt(ctx context.Context, job *Job) Attempt {
	result, err := r.call(ctx, job)
	if err == nil {
		return Attempt{Kind: Succeeded, Result: result}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("timed out after %s: %w", r.timeoutOf(job.Spec), err)
	}
	a := failure(err)
	if a.Kind == FailedForNow && r.retryDelay != nil && !errors.As(err, new(*RetryAfterError)) {
		a.RetryAfter, a.Err = r.delay(job, err)
	}
	return a
}

// call runs the handler and returns a panic as an error.
func (r *runner) call(ctx context.Context, job *Job) (result []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return r.handler.Handle(ctx, job)
}

// delay calls the handler's retry delay. If it panics, the panic is joined to the
// attempt's error.
func (r *runner) delay(job *Job, failed error) (after time.Duration, err error) {
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

// attempt runs the handler of a leased job once, within a span if its action is traced, and
// returns the settlement.
func (p *pool) attempt(ctx context.Context, job *Job) Settlement {
	if p.engine.spans == nil || job.Spec.Trace.Parent == "" {
		return p.run(ctx, job)
	}
	ctx, span := p.engine.spans.attempt(ctx, job)
	settlement := p.run(ctx, job)
	p.engine.spans.attempted(span, &attemptOutcome{settlement, job.Spec, p.last(job)})
	return settlement
}

func (p *pool) run(ctx context.Context, job *Job) Settlement {
	var err error
	if job.Target, err = p.engine.attemptTarget(job.Spec); err != nil {
		return Settlement{Kind: FailedForGood, Error: err.Error()}
	}
	if job.Spec.Target != nil {
		return p.callTarget(ctx, job)
	}
	settlement, _ := p.call(ctx, job)
	settlement.Cost = job.Cost
	return settlement
}

// callTarget calls the target of a job, unless it is down. Attempts that fail because it is
// down are not used.
func (p *pool) callTarget(ctx context.Context, job *Job) Settlement {
	name := job.Spec.Target.Name
	may, probe := p.engine.loads.start(name)
	if !may {
		return Settlement{Kind: Released, RetryAfter: probeInterval}
	}
	began := time.Now()
	settlement, err := p.call(ctx, job)
	silent := settlement.Kind == FailedForNow && errors.Is(err, ErrUnreachable)
	settlement.Cost = job.Cost
	if p.engine.loads.end(name, probe, settlement.Kind, silent, time.Since(began)) {
		return Settlement{Kind: Released, RetryAfter: probeInterval}
	}
	return settlement
}

// call runs the handler, and returns its error too.
func (p *pool) call(ctx context.Context, job *Job) (Settlement, error) {
	a := p.runner.attempt(ctx, job)
	var panicked *PanicError
	if errors.As(a.Err, &panicked) {
		p.engine.log.Error("a handler panicked", "type", p.name, "job", job.ID(), "panic", panicked.Value, "stack", string(panicked.Stack))
	}
	switch {
	case a.Kind == Succeeded:
		return p.engine.mapped(ctx, job.Lease.Action, job.Spec, a.Result), nil
	case errors.Is(ctx.Err(), context.Canceled): // it was told to end
		return Settlement{Kind: Released}, a.Err
	default:
		return Settlement{Kind: a.Kind, Error: a.Err.Error(), RetryAfter: a.RetryAfter}, a.Err
	}
}

// last reports whether a job has no attempt left after this one.
func (p *pool) last(job *Job) bool {
	most := job.Spec.MaxAttempts
	most = cmp.Or(most, p.engine.config.For(p.name).MaxAttempts)
	return job.Attempt >= most
}
