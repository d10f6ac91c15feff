package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge"
)

func (s *server) registerLeases() {
	edge.Register(s.part, edge.Operation{
		ID: "lease-jobs", Route: "POST /v1/leases", Summary: "Lease ready jobs to a remote worker",
		Description: "Each job must be acknowledged, or extended, before its deadline; then it is given to another worker. " +
			"An answer has at most 8 MiB of payloads: there may be fewer jobs than max, and more that are ready.",
	}, s.lease)
	edge.Register(s.part, edge.Operation{
		ID: "acknowledge-leases", Route: "POST /v1/leases/ack", Summary: "Report the outcomes of leased jobs",
		Description: "A repeated report has no further effect: its verdict is duplicate.", MaxBody: maxAcknowledgement,
	}, s.acknowledge)
	register(s, "extend-leases", "POST /v1/leases/extend", "Extend the leases of jobs", s.extend)
}

func (s *server) lease(ctx context.Context, in *object[wire.LeaseRequest]) (*object[wire.Leases], error) {
	jobs, err := s.engine.Lease(ctx, bulk.LeaseRequest{
		Types:    in.Body.Types,
		Max:      in.Body.Max,
		LeaseFor: s.leaseFor(in.Body.LeaseMS),
	}, milliseconds(in.Body.WaitMS))
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		s.handBack(ctx, jobs)
		return nil, refuse("", ctx.Err())
	}
	out := &object[wire.Leases]{Body: wire.Leases{Jobs: make([]wire.Job, len(jobs))}}
	for i := range jobs {
		out.Body.Jobs[i] = s.job(&jobs[i])
	}
	return out, nil
}

// leaseFor returns the duration of a lease; 0 means the setting's.
func (s *server) leaseFor(ms int64) time.Duration {
	if ms == 0 {
		return s.config.Lease
	}
	return milliseconds(ms)
}

// handBack releases jobs that were leased for a client that is gone.
func (s *server) handBack(ctx context.Context, jobs []bulk.Job) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxSettle)
	defer cancel()
	reports := make([]engine.Report, len(jobs))
	for i := range jobs {
		reports[i] = engine.Report{Lease: jobs[i].Lease, Kind: bulk.Released}
	}
	if _, err := s.engine.Settle(ctx, reports); err != nil {
		s.logger.WarnContext(ctx, "leases of a client that is gone wait for their deadline", "jobs", len(jobs), "error", err)
	}
}

var settlementKinds = map[string]bulk.SettlementKind{
	wire.OutcomeSucceeded: bulk.Succeeded,
	wire.OutcomeFailed:    bulk.FailedForGood,
	wire.OutcomeRetry:     bulk.FailedForNow,
	wire.OutcomeThrottled: bulk.Throttled,
	wire.OutcomeReleased:  bulk.Released,
}

func (s *server) acknowledge(ctx context.Context, in *object[wire.Acknowledgement]) (*object[wire.Verdicts], error) {
	tokens := make([]string, len(in.Body.Outcomes))
	reports := make([]engine.Report, len(in.Body.Outcomes))
	for i, outcome := range in.Body.Outcomes {
		tokens[i] = outcome.Lease
		reports[i] = engine.Report{
			Kind:       settlementKinds[outcome.Status],
			Result:     result(outcome.Result),
			Error:      outcome.Error,
			RetryAfter: milliseconds(outcome.RetryAfterMS),
			Took:       milliseconds(outcome.TookMS),
			Cost:       outcome.Cost,
		}
	}
	return s.settle(ctx, tokens, reports)
}

// result returns nil for null: a job without a result.
func result(value json.RawMessage) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

func (s *server) extend(ctx context.Context, in *object[wire.Extension]) (*object[wire.Verdicts], error) {
	reports := make([]engine.Report, len(in.Body.Leases))
	for i := range reports {
		reports[i] = engine.Report{Kind: bulk.Extended, LeaseFor: s.leaseFor(in.Body.LeaseMS)}
	}
	return s.settle(ctx, in.Body.Leases, reports)
}

// settle records outcomes of the leases of tokens. A token that no lease request answered is
// unknown, and does not reach the engine.
func (s *server) settle(ctx context.Context, tokens []string, reports []engine.Report) (*object[wire.Verdicts], error) {
	out := &object[wire.Verdicts]{Body: wire.Verdicts{Verdicts: make([]wire.Verdict, len(tokens))}}
	var places []int
	var known []engine.Report
	key := s.engine.LeaseKey()
	for i, token := range tokens {
		out.Body.Verdicts[i] = wire.Verdict{Lease: token, Verdict: bulk.Unknown.String()}
		if lease, err := key.Parse(token); err == nil {
			reports[i].Lease = lease
			places, known = append(places, i), append(known, reports[i])
		}
	}
	if len(known) == 0 {
		return out, nil
	}
	verdicts, err := s.engine.Settle(ctx, known)
	if err != nil {
		return nil, err
	}
	for i, verdict := range verdicts {
		out.Body.Verdicts[places[i]].Verdict = verdict.String()
	}
	return out, nil
}
