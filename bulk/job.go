package bulk

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
)

// Job is one leased unit of work, as a handler sees it.
type Job struct {
	// Spec is that of the job's action. It is shared: do not change it.
	Spec *Spec
	// Index is the job's place within its action, from 0, in upload order.
	Index int64
	// Payload is what was uploaded, one JSON value. Do not change it.
	Payload []byte
	// Attempt counts from 1. Attempts that a target throttled do not count.
	Attempt int
	// Lease identifies this attempt to the store.
	Lease LeaseID
	// Deadline is when the lease ends unless it is extended.
	Deadline time.Time
	// Trace is for a worker outside, to go on with the action's trace; nil if the
	// action has none. Engine.Lease sets it.
	Trace *TraceContext
}

// ID names the job: the same in every attempt, unique in the store.
func (j *Job) ID() string { return JobID(j.Spec.ID, j.Index) }

// JobID names the job at index of an action: "{action}-{index}".
func JobID(action string, index int64) string {
	return action + "-" + strconv.FormatInt(index, 10)
}

// ParseJobID splits a job's id into its action's id and its index.
func ParseJobID(id string) (action string, index int64, err error) {
	at := strings.LastIndexByte(id, '-')
	if at < 1 {
		return "", 0, fmt.Errorf("job id %q: want {action}-{index}", id)
	}
	index, err = strconv.ParseInt(id[at+1:], 10, 64)
	if err != nil || index < 0 || JobID(id[:at], index) != id {
		return "", 0, fmt.Errorf("job id %q: want {action}-{index}, the index from 0", id)
	}
	return id[:at], index, nil
}

// LeaseID identifies one lease: an action by the store's number for it, a job
// by its index, and the attempt by its fence, which rises with every lease of
// the job, so that a late acknowledgement is recognised.
type LeaseID struct {
	Action uint64
	Index  uint32
	Fence  uint32
}

const leaseIDSize = 8 + 4 + 4 + 4

// String encodes the lease as an opaque token with a checksum.
func (l LeaseID) String() string {
	var raw [leaseIDSize]byte
	binary.BigEndian.PutUint64(raw[0:], l.Action)
	binary.BigEndian.PutUint32(raw[8:], l.Index)
	binary.BigEndian.PutUint32(raw[12:], l.Fence)
	binary.BigEndian.PutUint32(raw[16:], crc32.ChecksumIEEE(raw[:16]))
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// ParseLeaseID decodes what String wrote. A token that is damaged, or was never
// one, is an error.
func ParseLeaseID(token string) (LeaseID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(raw) == leaseIDSize {
		l := LeaseID{
			Action: binary.BigEndian.Uint64(raw[0:]),
			Index:  binary.BigEndian.Uint32(raw[8:]),
			Fence:  binary.BigEndian.Uint32(raw[12:]),
		}
		// This compares the checksum too; and base64 has several spellings.
		if l.String() == token {
			return l, nil
		}
	}
	return LeaseID{}, fmt.Errorf("lease %.40q is not one that a lease request answered", token)
}

// LeaseRequest asks the store for ready jobs.
type LeaseRequest struct {
	// Types are the job types wanted; jobs come from them in turn.
	Types []string
	// Max is the most jobs to lease.
	Max int
	// LeaseFor is the time until the lease's deadline.
	LeaseFor time.Duration
	// Local marks leases that die with the process: they are not stored with
	// their deadline, and opening the store returns their jobs at once. Leases
	// of remote workers survive a restart.
	Local bool
}

// SettlementKind says how an attempt ended, or that it goes on.
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
	// Released hands the job back: it uses no attempt and the job is due at
	// once. A worker that shuts down releases what it did not start.
	Released
	// Extended moves the lease's deadline to LeaseFor from now.
	Extended
)

// Settlement is what a worker reports of one lease.
type Settlement struct {
	Lease LeaseID
	Kind  SettlementKind
	// ResultTruncated says that the result had more than MaxEventResult bytes, and
	// is not in Result.
	ResultTruncated bool
	// Result is the job's result for its event, where the action asks for one.
	Result []byte
	// Values is what the action's aggregates took from the result; the
	// aggregator reduces it. Nil where the action aggregates nothing of it.
	Values []byte
	// Error says why, for FailedForGood, FailedForNow and Throttled; for
	// Succeeded, why the result could not be mapped, if so. At most MaxErrorBytes
	// are kept.
	Error string
	// RetryAfter is what the target or handler asked for; 0 if nothing. It is
	// the least delay for Throttled, and the delay for FailedForNow.
	RetryAfter time.Duration
	// Took is how long the attempt ran.
	Took time.Duration
	// LeaseFor is for Extended.
	LeaseFor time.Duration
}

// MaxErrorBytes is how much of an attempt's error text is kept.
const MaxErrorBytes = 1024

// Verdict is the store's answer to one settlement.
type Verdict uint8

// The verdicts. Only an Accepted settlement changed anything.
const (
	Accepted Verdict = iota + 1
	// Duplicate: this very lease has been settled before.
	Duplicate
	// Expired: the lease has ended, and the job belongs to a later one or waits.
	Expired
	// Unknown: no such lease; its action may have been forgotten.
	Unknown
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
	default:
		return "unknown"
	}
}

// Outcome is the final outcome of one job, as the aggregator reads it. An Error
// of a job that succeeded says why its result could not be mapped.
type Outcome struct {
	Index     int64
	Succeeded bool
	Attempts  int
	Took      time.Duration
	Values    []byte
	Error     string
}

// DeadLetter is a job that failed for good.
type DeadLetter struct {
	Action   string
	Index    int64
	Payload  []byte
	Error    string
	Attempts int
	FailedAt time.Time
}

// NonReadyReason says why a job was turned back.
type NonReadyReason uint8

// The reasons, with the seed's names.
const (
	// RateLimited: the job was ready, but before it could start a limit of ours was
	// lowered, or a window began in which a fractional rate allows one less.
	RateLimited NonReadyReason = iota
	// APIThrottled: the target answered that it is asked too often.
	APIThrottled
	// TransientError: the attempt failed and will be made again.
	TransientError
	nonReadyReasons
)

// String returns the reason as the API spells it.
func (r NonReadyReason) String() string {
	switch r {
	case RateLimited:
		return "rate_limited"
	case APIThrottled:
		return "api_throttled"
	default:
		return "transient_error"
	}
}
