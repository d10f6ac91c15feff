package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/aggregate"
	"github.com/sluice-project/sluice/lifecycle"
)

// attemptOutcome is an attempt with its outcome.
type attemptOutcome struct {
	settlement bulk.Settlement
	spec       *bulk.Spec
	last       bool // the job has no attempt left
}

// kind returns the kind of the settlement; FailedForGood if a last attempt failed for
// now.
func (e *attemptOutcome) kind() bulk.SettlementKind {
	if e.last && e.settlement.Kind == bulk.FailedForNow {
		return bulk.FailedForGood
	}
	return e.settlement.Kind
}

// final reports whether the job has finished.
func (e *attemptOutcome) final() bool {
	kind := e.kind()
	return kind == bulk.Succeeded || kind == bulk.FailedForGood
}

// mapped returns the settlement of a job that succeeded: with the values that the
// aggregates of its action take from the result, and the result itself if the job's
// event needs it or it is kept.
func (e *Engine) mapped(ctx context.Context, action uint64, spec *bulk.Spec, result []byte) bulk.Settlement {
	settlement := bulk.Settlement{Kind: bulk.Succeeded}
	if spec.KeepResults || e.publisher != nil && spec.JobEvents() {
		if settlement.ResultTruncated = len(result) > bulk.MaxEventResult; !settlement.ResultTruncated {
			settlement.Result = result
		}
	}
	if len(spec.Aggregate) == 0 {
		return settlement
	}
	k, err := e.catalog.of(ctx, action, spec)
	if err == nil {
		settlement.Values, err = k.aggregates.Map(result)
	}
	if err != nil {
		settlement.Error = err.Error()
	}
	return settlement
}

// settle records outcomes of workers in this process. If it fails, it returns those that are not
// recorded as far as is known.
func (e *Engine) settle(ctx context.Context, batch []attemptOutcome) (left []attemptOutcome, err error) {
	verdicts, err := e.settleAll(context.WithoutCancel(ctx), batch)
	if err == nil {
		return nil, nil
	}
	for i := range batch {
		if len(verdicts) == 0 || verdicts[i] == 0 {
			left = append(left, batch[i])
		}
	}
	return left, err
}

func (e *Engine) settleAll(ctx context.Context, batch []attemptOutcome) ([]bulk.Verdict, error) {
	settlements := make([]bulk.Settlement, len(batch))
	for i := range batch {
		settlements[i] = batch[i].settlement
	}
	verdicts, err := e.store.Settle(ctx, settlements)
	if len(verdicts) == 0 {
		return verdicts, err
	}
	e.fairness.settled(batch, verdicts)
	e.metrics.settled(batch, verdicts)
	// Jobs that ended may have freed slots under a concurrency limit, for the fetcher,
	// and a job that was turned back may be due soon, for the dispatcher.
	for _, loop := range []lifecycle.Signal{e.fetch, e.dispatch, e.watch, e.aggregate, e.outbox} {
		loop.Wake()
	}
	return verdicts, errors.Join(err, e.endedBy(ctx, settlements, verdicts))
}

// endedBy makes the verdict of each accepted extension WasCanceled whose action was canceled.
func (e *Engine) endedBy(ctx context.Context, settlements []bulk.Settlement, verdicts []bulk.Verdict) error {
	canceled := map[uint64]bool{}
	for i := range settlements {
		if settlements[i].Kind != bulk.Extended || verdicts[i] != bulk.Accepted {
			continue
		}
		number := settlements[i].Lease.Action
		over, known := canceled[number]
		if !known {
			actions, err := e.store.Actions(ctx, bulk.ActionFilter{Number: number})
			if err != nil {
				return err
			}
			over = len(actions) > 0 && actions[0].Status == bulk.Canceled
			canceled[number] = over
		}
		if over {
			verdicts[i] = bulk.WasCanceled
		}
	}
	return nil
}

// catalogMost is the maximum of specs that are cached.
const catalogMost = 10_000

// catalog caches the specs of actions whose jobs are in flight, by number. When it is full, it
// begins again.
type catalog struct {
	engine *Engine
	mu     sync.RWMutex
	known  map[uint64]*catalogEntry
}

type catalogEntry struct {
	spec       *bulk.Spec
	aggregates *aggregate.Set
}

// of returns the entry of an action. Spec may be nil; then the store is asked for it.
func (c *catalog) of(ctx context.Context, number uint64, spec *bulk.Spec) (*catalogEntry, error) {
	c.mu.RLock()
	k := c.known[number]
	c.mu.RUnlock()
	if k != nil {
		return k, nil
	}
	if spec == nil {
		actions, err := c.engine.store.Actions(ctx, bulk.ActionFilter{Number: number})
		if err != nil || len(actions) == 0 {
			return nil, err
		}
		spec = &actions[0].Spec
	}
	aggregates, err := aggregate.Parse(spec.Aggregate, c.engine.custom)
	if err != nil {
		return nil, fmt.Errorf("action %q: %w", spec.ID, err)
	}
	k = &catalogEntry{spec: spec, aggregates: aggregates}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= catalogMost {
		clear(c.known)
	}
	c.known[number] = k
	return k, nil
}
