package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// attempt runs the handler of a leased job once, within a span if its action is traced, and
// returns the settlement.
func (p *pool) attempt(ctx context.Context, job *bulk.Job) bulk.Settlement {
	if p.engine.spans == nil || job.Spec.Trace.Parent == "" {
		return p.run(ctx, job)
	}
	ctx, span := p.engine.spans.attempt(ctx, job)
	settlement := p.run(ctx, job)
	p.engine.spans.attempted(span, &attemptOutcome{settlement, job.Spec, p.last(job)})
	return settlement
}

func (p *pool) run(ctx context.Context, job *bulk.Job) bulk.Settlement {
	var err error
	if job.Target, err = p.engine.attemptTarget(job.Spec); err != nil {
		return bulk.Settlement{Kind: bulk.FailedForGood, Error: err.Error()}
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
func (p *pool) callTarget(ctx context.Context, job *bulk.Job) bulk.Settlement {
	name := job.Spec.Target.Name
	may, probe := p.engine.loads.start(name)
	if !may {
		return bulk.Settlement{Kind: bulk.Released, RetryAfter: probeInterval}
	}
	began := time.Now()
	settlement, err := p.call(ctx, job)
	silent := settlement.Kind == bulk.FailedForNow && errors.Is(err, bulk.ErrUnreachable)
	settlement.Cost = job.Cost
	if p.engine.loads.end(name, probe, settlement.Kind, silent, time.Since(began)) {
		return bulk.Settlement{Kind: bulk.Released, RetryAfter: probeInterval}
	}
	return settlement
}

// call runs the handler, and returns its error too.
func (p *pool) call(ctx context.Context, job *bulk.Job) (bulk.Settlement, error) {
	a := p.runner.Attempt(ctx, job)
	var panicked *bulk.PanicError
	if errors.As(a.Err, &panicked) {
		p.engine.log.Error("a handler panicked", "type", p.name, "job", job.ID(), "panic", panicked.Value, "stack", string(panicked.Stack))
	}
	switch {
	case a.Kind == bulk.Succeeded:
		return p.engine.mapped(ctx, job.Lease.Action, job.Spec, a.Result), nil
	case errors.Is(ctx.Err(), context.Canceled): // it was told to end
		return bulk.Settlement{Kind: bulk.Released}, a.Err
	default:
		return bulk.Settlement{Kind: a.Kind, Error: a.Err.Error(), RetryAfter: a.RetryAfter}, a.Err
	}
}

// last reports whether a job has no attempt left after this one.
func (p *pool) last(job *bulk.Job) bool {
	most := job.Spec.MaxAttempts
	most = cmp.Or(most, p.engine.config.For(p.name).MaxAttempts)
	return job.Attempt >= most
}
