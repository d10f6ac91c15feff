package bulk

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Job is one leased unit of work, as a handler sees it.
type Job struct {
	// Spec is the Spec of the job's action. It is shared: do not modify it.
	Spec *Spec
	// Index is the job's place within its action, from 0, in upload order.
	Index int64
	// Payload is the uploaded JSON value. Do not modify it.
	Payload []byte
	// Attempt counts from 1. Throttled attempts do not count.
	Attempt int
	// Lease identifies this attempt to the store.
	Lease LeaseID
	// Cost is what the attempt has really cost, which a handler may set for the limits by key with a
	// cost. 0, as at first: what was charged when it began.
	Cost int64
	// Deadline is when the lease ends unless it is extended.
	Deadline time.Time
	// Target has the settings of the target that Spec names; nil if it names none. The engine
	// sets it for its own workers.
	Target *TargetLimits
	// Trace lets a remote worker continue the action's trace; nil if there is none.
	// Engine.Lease sets it.
	Trace *TraceContext
}

// ID returns the job's id: the same in every attempt, unique in the store.
func (j *Job) ID() string { return JobID(j.Spec.ID, j.Index) }

// JobID returns the id of the job at an index of an action: "{action}-{index}".
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

// LeaseID identifies one lease: the action by the store's number for it, the job by its
// index, and the attempt by its fence. The fence increases with every lease of the job,
// so that late acknowledgements are recognised.
type LeaseID struct {
	Action uint64
	Index  uint32
	Fence  uint32
}

const (
	leaseIDSize  = 8 + 4 + 4
	leaseMACSize = 16
)

// LeaseKey makes the tokens by which remote workers name their leases, and checks them: only
// the key can make one, so a worker cannot settle what it was not given.
type LeaseKey struct{ key []byte }

// NewLeaseKey derives the key from the secret of a store.
func NewLeaseKey(secret []byte) (LeaseKey, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "sluice bulk lease 1", sha256.Size)
	return LeaseKey{key}, err
}

// Token returns the token of a lease: its id, and an HMAC-SHA256 of 128 bits, in base64url.
func (k LeaseKey) Token(l LeaseID) string {
	raw := make([]byte, leaseIDSize, leaseIDSize+sha256.Size)
	binary.BigEndian.PutUint64(raw[0:], l.Action)
	binary.BigEndian.PutUint32(raw[8:], l.Index)
	binary.BigEndian.PutUint32(raw[12:], l.Fence)
	mac := hmac.New(sha256.New, k.key)
	_, _ = mac.Write(raw) // it never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(raw)[:leaseIDSize+leaseMACSize])
}

// Parse returns the lease of a token. A token that the key did not make is an error.
func (k LeaseKey) Parse(token string) (LeaseID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(raw) == leaseIDSize+leaseMACSize {
		l := LeaseID{
			Action: binary.BigEndian.Uint64(raw[0:]),
			Index:  binary.BigEndian.Uint32(raw[8:]),
			Fence:  binary.BigEndian.Uint32(raw[12:]),
		}
		// This refuses other spellings in base64 too.
		if hmac.Equal([]byte(k.Token(l)), []byte(token)) {
			return l, nil
		}
	}
	return LeaseID{}, fmt.Errorf("lease %.40q is not one that a lease request answered", token)
}

// State is where a job is, as the API spells counts.
type State string

// The states: see Counts. The last three are final.
const (
	StatePending   State = "pending"
	StateReady     State = "ready"
	StateNonReady  State = "non_ready"
	StateInFlight  State = "in_flight"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateCanceled  State = "canceled"
)

// Ended reports whether the state is final.
func (s State) Ended() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCanceled
}

const (
	// FirstJob is the index by which Store.Job finds the first job that has not ended.
	FirstJob int64 = -1
	// NotKnown is a number in a JobState that the store does not keep, or does not count.
	NotKnown = -1
	// MaxReturned is how many jobs of one action that have returned to its line, or runs of
	// them, Store.Job looks through for one.
	MaxReturned = 10_000
)

// JobState is the state of one job at one moment.
type JobState struct {
	// Number is the store's number of the job's action, as in a Waiting.
	Number uint64
	Index  int64
	State  State
	// Attempts counts the attempts that were made, with the present one of a job in flight.
	// Throttled attempts do not count. It may be NotKnown once the job has ended.
	Attempts int
	// Reason is why the job was turned back, if it is non-ready.
	Reason NonReadyReason
	// Key is the key that a job waits for which is KeyLimited, and KeyHeld how many jobs with it are in
	// flight.
	Key     JobKey
	KeyHeld int64
	// At is when a non-ready job is due, when the lease of a job in flight ends, and when a job
	// failed; else zero. It is zero too if the dead letter of the failed job is gone.
	At time.Time
	// Before is how many jobs of the action go before a pending one. It is NotKnown if the job
	// has returned to the line behind MaxReturned others.
	Before int64
	// Error is why the job failed, as its dead letter has it: empty once that was replayed.
	Error string
	// Result is the result of a job that succeeded, where Spec.KeepResults asks for it.
	// ResultTruncated reports whether it was larger than MaxEventResult, and was not kept.
	Result          []byte
	ResultTruncated bool
}

// LeaseRequest asks the store for ready jobs.
type LeaseRequest struct {
	// Types are the requested job types. Jobs are taken from them in rotation.
	Types []string
	// Workers is how many workers the process has for each of the types, and knows of remote
	// ones; 0 if it is not known.
	Workers int64
	// Max is the maximum of jobs to lease. MaxPageBytes is a bound too.
	Max int
	// LeaseFor is the time until the lease's deadline.
	LeaseFor time.Duration
	// Local marks leases that end with the process: their deadline is not stored, and
	// opening the store returns their jobs at once. Leases of remote workers survive a
	// restart.
	Local bool
}

// Outcome is the final outcome of one job, for the aggregator. The Error of a job that succeeded is why
// its result could not be mapped; Values is what the aggregates took from the result.
type Outcome struct {
	Index     int64
	Succeeded bool
	Attempts  int
	Took      time.Duration
	Values    []byte
	Error     string
}

// DeadLetter is a job that failed permanently.
type DeadLetter struct {
	Action   string
	Index    int64
	Payload  []byte
	Error    string
	Attempts int
	FailedAt time.Time
}

// NonReadyReason is why a job was turned back.
type NonReadyReason uint8

// The reasons, with the seed's names.
const (
	// RateLimited: the job was ready, but before it started a limit of ours was
	// lowered, or a window began in which a fractional rate allows one less.
	RateLimited NonReadyReason = iota
	// APIThrottled: the target throttled the attempt.
	APIThrottled
	// TransientError: the attempt failed and will be retried.
	TransientError
	// KeyLimited: a limit by its key allowed the job no attempt; see Tenant.Keys.
	KeyLimited
	nonReadyReasons
)

// String returns the reason as the API spells it.
func (r NonReadyReason) String() string {
	switch r {
	case RateLimited:
		return "rate_limited"
	case APIThrottled:
		return "api_throttled"
	case KeyLimited:
		return "key_limited"
	default:
		return "transient_error"
	}
}

// CauseTimeout is the cause of a failure without an answer in time.
const CauseTimeout = "timeout"

// FailureFilter selects dead letters by why and when their jobs failed. The zero value selects all.
type FailureFilter struct {
	// Cause selects those whose Cause it is: a status of HTTP such as 503, a class of them such as
	// 5xx, or CauseTimeout.
	Cause string `json:"cause,omitempty"`
	// Error selects those whose message contains it, in upper or lower case; at most MaxErrorBytes.
	Error string `json:"error,omitempty"`
	// Since and Until select those that failed at Since or later, and before Until; zero is no bound.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// answered is how webhook.StatusError begins, and also what other workers may write.
var answered = regexp.MustCompile(`\btarget \S+ answered ([1-9][0-9]{2})\b`)

// Cause returns why a job failed, of its error: the status of HTTP with which its target answered,
// CauseTimeout if the error says that something timed out, or "".
func Cause(text string) string {
	if found := answered.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	text = strings.ToLower(text)
	for _, words := range []string{"timed out", "timeout", "deadline exceeded"} {
		if strings.Contains(text, words) {
			return CauseTimeout
		}
	}
	return ""
}

// Selects reports whether the filter is set.
func (f *FailureFilter) Selects() bool { return *f != FailureFilter{} }

// Match reports whether the filter selects a dead letter.
func (f *FailureFilter) Match(l *DeadLetter) bool {
	if l.FailedAt.Before(f.Since) || !f.Until.IsZero() && !l.FailedAt.Before(f.Until) ||
		!strings.Contains(strings.ToLower(l.Error), strings.ToLower(f.Error)) {
		return false
	}
	if f.Cause == "" {
		return true
	}
	class, isClass := strings.CutSuffix(f.Cause, "xx")
	cause := Cause(l.Error)
	return cause == f.Cause || isClass && cause != CauseTimeout && strings.HasPrefix(cause, class)
}

// MaxPayloadBytes bounds the payload of one job.
const MaxPayloadBytes = 1 << 20
