package bulk

import (
	"context"
	"time"
)

// Report is what a remote worker says of one lease.
type Report struct {
	Lease LeaseID
	Kind  SettlementKind
	// Result is the job's result, for Succeeded: one JSON value, or nil.
	Result     []byte
	Error      string
	RetryAfter time.Duration
	Took       time.Duration
	// LeaseFor is for Extended; 0 is the lease of the config.
	LeaseFor time.Duration
}

// remotePoll is how often the ready queue is looked at for a remote worker that
// waits, when nothing wakes it.
const remotePoll = 200 * time.Millisecond

// Lease leases ready jobs to a remote worker. If there are none it waits for
// them, up to `wait`.
func (e *Engine) Lease(ctx context.Context, request LeaseRequest, wait time.Duration) ([]Job, error) {
	jobs, err := e.leaseWithin(ctx, request, wait)
	e.spans.leased(jobs)
	return jobs, err
}

func (e *Engine) leaseWithin(ctx context.Context, request LeaseRequest, wait time.Duration) ([]Job, error) {
	orDefault(&request.LeaseFor, e.config.Lease)
	if wait <= 0 {
		return e.store.Lease(ctx, request)
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(remotePoll)
	defer poll.Stop()
	for {
		admitted := e.admitted.wait()
		jobs, err := e.store.Lease(ctx, request)
		if err != nil || len(jobs) > 0 {
			e.fetch.wake()
			return jobs, err
		}
		select {
		case <-admitted:
		case <-poll.C:
		case <-deadline.C:
			return nil, nil
		case <-e.group.Failed():
			return nil, e.group.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Settle records what remote workers report. Verdicts are in the order of the
// reports.
func (e *Engine) Settle(ctx context.Context, reports []Report) ([]Verdict, error) {
	batch := make([]ended, len(reports))
	for i, r := range reports {
		k, err := e.catalog.of(ctx, r.Lease.Action, nil)
		if err != nil {
			return nil, err
		}
		if k == nil {
			batch[i] = ended{settlement: Settlement{Lease: r.Lease, Kind: Released}}
			continue
		}
		settlement := Settlement{Kind: r.Kind, Error: r.Error}
		if r.Kind == Succeeded {
			settlement = e.mapped(ctx, r.Lease.Action, k.spec, r.Result)
		}
		settlement.Lease, settlement.RetryAfter = r.Lease, r.RetryAfter
		settlement.Took, settlement.LeaseFor = r.Took, r.LeaseFor
		orDefault(&settlement.LeaseFor, e.config.Lease)
		batch[i] = ended{settlement: settlement, spec: k.spec}
	}
	verdicts, err := e.settleAll(ctx, batch)
	if err == nil {
		e.spans.settled(batch, verdicts)
	}
	return verdicts, err
}

// mapped is the settlement of a job that succeeded, with what the aggregates of
// its action take from the result, and the result itself if its event needs it.
func (e *Engine) mapped(ctx context.Context, action uint64, spec *Spec, result []byte) Settlement {
	settlement := Settlement{Kind: Succeeded}
	if e.publisher != nil && spec.JobEvents() {
		if settlement.ResultTruncated = len(result) > MaxEventResult; !settlement.ResultTruncated {
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

// settle records outcomes of the process's own workers.
func (e *Engine) settle(ctx context.Context, batch []ended) error {
	_, err := e.settleAll(context.WithoutCancel(ctx), batch)
	return err
}

func (e *Engine) settleAll(ctx context.Context, batch []ended) ([]Verdict, error) {
	settlements := make([]Settlement, len(batch))
	for i := range batch {
		settlements[i] = batch[i].settlement
	}
	verdicts, err := e.store.Settle(ctx, settlements)
	if err != nil {
		return nil, err
	}
	e.fairness.settled(batch, verdicts)
	e.metrics.settled(batch, verdicts)
	// The fetcher too: what ended may have made room at a target.
	e.fetch.wake()
	e.watch.wake()
	e.aggregate.wake()
	e.outbox.wake()
	// A limit of what is in flight may have room again, and a job set aside may be
	// due before the next look.
	e.fetch.wake()
	e.dispatch.wake()
	return verdicts, nil
}
