package bulk

import "time"

// Report is what a worker reports of one lease: a Settlement, with the result
// from which the engine takes the values that the action's aggregates read.
type Report struct {
	Lease LeaseID
	Kind  SettlementKind
	// Result is one JSON value or nil, of a job that succeeded.
	Result []byte
	// Error says why, where the attempt did not succeed.
	Error string
	// RetryAfter is what the target or handler asked for; 0 if nothing.
	RetryAfter time.Duration
	// Took is how long the attempt ran.
	Took time.Duration
	// LeaseFor is for Extended.
	LeaseFor time.Duration
}
