package bulk

import (
	"time"
)

// SettlementKind is how an attempt ended, or Extended if it continues.
type SettlementKind uint8

// The ways an attempt is settled.
const (
	// Succeeded is final.
	Succeeded SettlementKind = iota + 1
	// FailedForGood is final: the job becomes a dead letter.
	FailedForGood
	// FailedForNow uses an attempt; the job is tried again after a backoff while
	// it has attempts left, and becomes a dead letter when it has none.
	FailedForNow
	// Throttled uses no attempt; the job waits for its slot.
	Throttled
	// Released hands the job back: it uses no attempt, and the job is due after RetryAfter.
	// A worker that shuts down releases what it did not start.
	Released
	// Extended moves the lease's deadline to LeaseFor from now.
	Extended
)

// Settlement is what a worker reports about one lease.
type Settlement struct {
	Lease LeaseID
	Kind  SettlementKind
	// ResultTruncated reports whether the result was larger than MaxEventResult and
	// was left out of Result.
	ResultTruncated bool
	// Result is the job's result for its event, or to be kept, where the action asks for that.
	Result []byte
	// Values is what the action's aggregates took from the result, for the
	// aggregator to reduce. Nil if they took nothing.
	Values []byte
	// Error is the reason of FailedForGood, FailedForNow and Throttled. With
	// Succeeded, it is why the result could not be mapped; empty if it was. At most
	// MaxErrorBytes are kept.
	Error string
	// RetryAfter is the delay that the target or handler asked for; 0 if none. It is
	// the minimum delay for Throttled, and the delay for FailedForNow and Released.
	RetryAfter time.Duration
	// Took is how long the attempt ran.
	Took time.Duration
	// Cost is what the attempt has really cost, for the limits by key with a cost; 0: what was
	// charged when it began. More than MaxCost counts as that.
	Cost int64
	// LeaseFor is the new lease, for Extended.
	LeaseFor time.Duration
}

// MaxErrorBytes is how much of an attempt's error text is kept.
const MaxErrorBytes = 1024

// Verdict is the store's answer to one settlement.
type Verdict uint8

// The verdicts. Only an Accepted settlement has an effect, and an WasCanceled extension.
const (
	Accepted Verdict = iota + 1
	// Duplicate: this lease was settled before.
	Duplicate
	// Expired: the lease has ended; the job has a later lease, or waits.
	Expired
	// Unknown: there is no such lease. Its action may have been deleted.
	Unknown
	// WasCanceled: the lease was extended, but its action was canceled. The worker should stop
	// and settle the job as Released. Stores do not give this verdict.
	WasCanceled
)

// String returns the verdict as the API spells it.
func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case Duplicate:
		return "duplicate"
	case Expired:
		return "expired"
	case WasCanceled:
		return "canceled"
	default:
		return "unknown"
	}
}

// LeaseState is what a store knows about a job when one of its leases is settled. The
// zero value is a job that was never admitted.
type LeaseState struct {
	// Known reports whether the job was admitted and has not finished.
	Known bool
	// Finished reports whether the job has finished: then Fence is that of the lease
	// that finished it.
	Finished bool
	// Fence is that of the last lease; 0 if there was none.
	Fence uint32
	// InFlight reports whether the job is in flight, until Deadline.
	InFlight bool
	Deadline time.Time
	// Lapsed reports whether the last lease expired, or ended with its process.
	Lapsed bool
}

// Verdict judges a settlement with a lease of that fence.
//
// lua/settle.lua of redisstore repeats this rule; storetest's verdictTable tests both.
func (s LeaseState) Verdict(fence uint32, now time.Time) Verdict {
	switch {
	case s.Finished && fence == s.Fence:
		return Duplicate
	case s.Finished:
		return Expired
	case !s.Known || fence == 0 || fence > s.Fence:
		return Unknown
	case fence < s.Fence, s.Lapsed, s.InFlight && now.After(s.Deadline):
		return Expired
	case !s.InFlight:
		return Duplicate
	}
	return Accepted
}

// Effect is what an accepted settlement does to its job.
type Effect uint8

// The effects.
const (
	// StaysInFlight: the lease has a new deadline.
	StaysInFlight Effect = iota
	// Succeeds, Fails and IsCanceled finish the job. A job that fails becomes a dead
	// letter.
	Succeeds
	Fails
	IsCanceled
	// ReturnsToLine: the job waits at the front of its action's line; if it has a RetryAfter,
	// it is non-ready until then.
	ReturnsToLine
	// IsThrottled and IsRetried: the job is non-ready until its slot, or its backoff,
	// comes.
	IsThrottled
	IsRetried
)

// Effect returns the effect of a settlement of this kind on a job that has used this many
// attempts of maxAttempts, this one included.
//
// lua/settle.lua of redisstore repeats this rule; storetest's effectTable tests both.
func (k SettlementKind) Effect(canceled bool, attempts, maxAttempts int) Effect {
	switch {
	case k == Extended:
		return StaysInFlight
	case k == Succeeded:
		return Succeeds
	case k == FailedForGood:
		return Fails
	case canceled:
		return IsCanceled
	case k == Throttled:
		return IsThrottled
	case k == Released:
		return ReturnsToLine
	case attempts >= maxAttempts:
		return Fails
	}
	return IsRetried
}

// Ran reports whether the duration of an attempt that ended so tells how long attempts take:
// one that was turned back took less.
func (k SettlementKind) Ran() bool { return k != Released && k != Throttled }
