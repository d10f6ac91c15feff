package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

func (s *server) registerLeases(api huma.API) {
	lease := operation(api, "lease-jobs", "POST /v1/leases", "Take ready jobs, for a worker outside")
	lease.Description = "Each job must be acknowledged, or extended, before its deadline; then it is given to another worker."
	huma.Register(api, lease, s.lease)

	ack := operation(api, "acknowledge-leases", "POST /v1/leases/ack", "Report what became of leased jobs")
	ack.Description = "Sending a report again is safe: its verdict is duplicate."
	ack.MaxBodyBytes = maxAcknowledgement + 1
	huma.Register(api, ack, s.acknowledge)

	huma.Register(api, operation(api, "extend-leases", "POST /v1/leases/extend", "Take more time for leased jobs"), s.extend)
}

type inLease struct{ Body wire.LeaseRequest }

type outLease struct{ Body wire.Leases }

func (s *server) lease(ctx context.Context, in *inLease) (*outLease, error) {
	jobs, err := s.engine.Lease(ctx, bulk.LeaseRequest{
		Types:    in.Body.Types,
		Max:      in.Body.Max,
		LeaseFor: s.leaseFor(in.Body.LeaseMS),
	}, milliseconds(in.Body.WaitMS))
	if err != nil {
		return nil, s.refuse(ctx, "", err)
	}
	if ctx.Err() != nil {
		s.handBack(ctx, jobs)
		return nil, s.refuse(ctx, "", ctx.Err())
	}
	out := &outLease{Body: wire.Leases{Jobs: make([]wire.Job, len(jobs))}}
	for i := range jobs {
		out.Body.Jobs[i] = job(&jobs[i])
	}
	return out, nil
}

// leaseFor is the time of a lease that a request asks for; 0 stands for none.
func (s *server) leaseFor(ms int64) time.Duration {
	if ms == 0 {
		return s.config.Lease
	}
	return milliseconds(ms)
}

// handBack releases jobs that were leased for a client that has gone.
func (s *server) handBack(ctx context.Context, jobs []bulk.Job) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxSettle)
	defer cancel()
	reports := make([]bulk.Report, len(jobs))
	for i := range jobs {
		reports[i] = bulk.Report{Lease: jobs[i].Lease, Kind: bulk.Released}
	}
	if _, err := s.engine.Settle(ctx, reports); err != nil {
		s.logger.WarnContext(ctx, "leases of a client that has gone wait for their deadline", "jobs", len(jobs), "error", err)
	}
}

type inAcknowledge struct{ Body wire.Acknowledgement }

type outVerdicts struct{ Body wire.Verdicts }

var settlementKinds = map[string]bulk.SettlementKind{
	wire.OutcomeSucceeded: bulk.Succeeded,
	wire.OutcomeFailed:    bulk.FailedForGood,
	wire.OutcomeRetry:     bulk.FailedForNow,
	wire.OutcomeThrottled: bulk.Throttled,
}

func (s *server) acknowledge(ctx context.Context, in *inAcknowledge) (*outVerdicts, error) {
	tokens := make([]string, len(in.Body.Outcomes))
	reports := make([]bulk.Report, len(in.Body.Outcomes))
	for i, outcome := range in.Body.Outcomes {
		tokens[i] = outcome.Lease
		reports[i] = bulk.Report{
			Kind:       settlementKinds[outcome.Status],
			Result:     result(outcome.Result),
			Error:      outcome.Error,
			RetryAfter: milliseconds(outcome.RetryAfterMS),
			Took:       milliseconds(outcome.TookMS),
		}
	}
	return s.settle(ctx, tokens, reports)
}

// result is nil for null: a job without a result.
func result(value json.RawMessage) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

type inExtend struct{ Body wire.Extension }

func (s *server) extend(ctx context.Context, in *inExtend) (*outVerdicts, error) {
	reports := make([]bulk.Report, len(in.Body.Leases))
	for i := range reports {
		reports[i] = bulk.Report{Kind: bulk.Extended, LeaseFor: s.leaseFor(in.Body.LeaseMS)}
	}
	return s.settle(ctx, in.Body.Leases, reports)
}

// settle reports on the leases of tokens. What is not a lease's token is
// answered as unknown, and does not reach the engine.
func (s *server) settle(ctx context.Context, tokens []string, reports []bulk.Report) (*outVerdicts, error) {
	out := &outVerdicts{Body: wire.Verdicts{Verdicts: make([]wire.Verdict, len(tokens))}}
	var places []int
	var known []bulk.Report
	for i, token := range tokens {
		out.Body.Verdicts[i] = wire.Verdict{Lease: token, Verdict: bulk.Unknown.String()}
		if lease, err := bulk.ParseLeaseID(token); err == nil {
			reports[i].Lease = lease
			places, known = append(places, i), append(known, reports[i])
		}
	}
	if len(known) == 0 {
		return out, nil
	}
	verdicts, err := s.engine.Settle(ctx, known)
	if err != nil {
		return nil, s.refuse(ctx, "", err)
	}
	for i, verdict := range verdicts {
		out.Body.Verdicts[places[i]].Verdict = verdict.String()
	}
	return out, nil
}
