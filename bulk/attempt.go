package bulk

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// attempt runs the handler once.
func (p *pool) attempt(job *Job) Settlement {
	timeout := p.timeout
	if job.Spec.Timeout > 0 {
		timeout = job.Spec.Timeout
	}
	ctx, cancel := context.WithTimeout(p.engine.jobs, timeout)
	defer cancel()
	result, err := p.call(ctx, job)
	if err == nil {
		return p.engine.mapped(ctx, job.Lease.Action, job.Spec, result)
	}
	if p.engine.jobs.Err() != nil {
		return Settlement{Kind: Released}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("timed out after %s: %w", timeout, err)
	}
	return failure(err)
}

// last tells whether a job has no attempt left after this one.
func (p *pool) last(job *Job) bool {
	most := job.Spec.MaxAttempts
	orDefault(&most, p.engine.config.For(p.name).MaxAttempts)
	return job.Attempt >= most
}

// call runs the handler and makes a panic an error.
func (p *pool) call(ctx context.Context, job *Job) (result []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.engine.log.Error("a handler panicked", "type", p.name, "job", job.ID(), "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return p.handler.Handle(ctx, job)
}

// failure is how an attempt that ended with an error is settled.
func failure(err error) Settlement {
	var throttled *ThrottledError
	var after *RetryAfterError
	switch {
	case errors.As(err, &throttled):
		return Settlement{Kind: Throttled, Error: err.Error(), RetryAfter: throttled.RetryAfter}
	case errors.Is(err, SkipRetry):
		return Settlement{Kind: FailedForGood, Error: err.Error()}
	case errors.As(err, &after):
		return Settlement{Kind: FailedForNow, Error: err.Error(), RetryAfter: after.After}
	default:
		return Settlement{Kind: FailedForNow, Error: err.Error()}
	}
}
