package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/aggregate"
	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// reduceInterval is how often outcomes are reduced while an action runs, if there
	// are at least reduceBatches batches: so each of ten thousand small actions is
	// reduced once, at its end.
	reduceInterval = 250 * time.Millisecond
	reduceBatches  = 16
)

// aggregator reduces outcomes into results, batch by batch, so that the results are
// never all in memory. Progress is a compare-and-set on the number of batches reduced,
// so each outcome is reduced exactly once, over crashes and with several aggregators.
func (e *Engine) aggregator(ctx context.Context) error {
	var backoff backoff
	for {
		err := e.aggregateOnce(ctx)
		if err != nil && !retriable(err) {
			return err
		}
		if !lifecycle.Sleep(ctx, nil, max(reduceInterval/10, backoff.after(e.log, "aggregate", err))) || !lifecycle.Sleep(ctx, e.aggregate, reduceInterval) {
			return ctx.Err()
		}
	}
}

func (e *Engine) aggregateOnce(ctx context.Context) error {
	if err := e.notice(ctx); err != nil {
		return err
	}
	failed, err := advance(ctx, e, "aggregate", e.agenda.takeReducible(), func(a *bulk.Unfinished) error { return e.reduce(ctx, *a) })
	e.agenda.reduceAgain(failed)
	return err
}

// reduce reduces the outcomes that an action has, and completes the action if all its jobs are
// done. After reduceInterval it leaves the others to the next round, so that an action of many
// outcomes does not delay the end of others.
func (e *Engine) reduce(ctx context.Context, a bulk.Unfinished) error {
	began := time.Now()
	aggregates, err := aggregate.Parse(a.Spec.Aggregate, e.custom)
	if err != nil {
		_, err = e.apply(ctx, a.Spec.ID, bulk.Transition{Kind: bulk.Fail, Error: err.Error()})
		return err
	}
	for a.Reduced < a.Batches {
		if time.Since(began) > reduceInterval {
			e.aggregate.Wake()
			return nil
		}
		outcomes, upTo, err := e.store.Outcomes(ctx, a.Spec.ID, a.Reduced)
		if err != nil || upTo == a.Reduced {
			return err
		}
		transition := bulk.Transition{Kind: bulk.Reduce, From: a.Reduced, Reduced: upTo}
		transition.Partial, transition.Error = aggregates.ReduceBatch(a.Partial, outcomes)
		reduced, err := e.store.Transition(ctx, a.Spec.ID, transition)
		if err != nil {
			return err
		}
		a = reduced.Unfinished(a.Spec)
	}
	if a.Status != bulk.Aggregating {
		return nil
	}
	done, err := e.complete(ctx, a, aggregates)
	if err == nil {
		e.spans.aggregated(&done, began)
	}
	return err
}

func (e *Engine) complete(ctx context.Context, a bulk.Unfinished, aggregates *aggregate.Set) (bulk.Action, error) {
	transition := bulk.Transition{Kind: bulk.Complete}
	if a.Error != "" {
		transition = bulk.Transition{Kind: bulk.Fail, Error: a.Error}
	}
	if aggregates.Len() > 0 {
		result, err := aggregates.Result(a.Partial)
		if err != nil {
			transition = bulk.Transition{Kind: bulk.Fail, Error: cmp.Or(a.Error, err.Error())}
		}
		transition.Result = result
	}
	done, err := e.apply(ctx, a.Spec.ID, transition)
	e.outbox.Wake()
	if err == nil {
		e.log.Debug("action finished", "action", done.ID, "tenant", done.Tenant, "status", done.Status,
			"succeeded", done.Succeeded, "failed", done.Failed)
		e.metrics.finished(done)
	}
	return done, err
}
