package pebblestore

import (
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/keys"
	"github.com/sluice-project/sluice/internal/ranks"
)

const (
	reasonRateLimited = uint8(bulk.RateLimited)
	reasonThrottled   = uint8(bulk.APIThrottled)
	reasonTransient   = uint8(bulk.TransientError)
	reasonKeyLimited  = uint8(bulk.KeyLimited)
)

// job is a job that was admitted and has not finished. Other jobs are not in memory.
type job struct {
	action   *action
	index    uint32
	fence    uint32
	attempts uint16
	crashes  uint8
	reason   uint8
	phase    phase
	local    bool
	// lapsed reports whether the last lease expired, or ended with its process.
	lapsed bool
	// at is the deadline of a job in flight, the due time of a non-ready one, or when it began to wait
	// for its key.
	at time.Time
	// place is the job's place in the heap of its phase.
	place int
	// key is what the job waits for, if it is non-ready, or what has kept a place for it since then.
	// Charge is what its attempt will be charged there.
	key    *keyed
	charge int64
}

// action is an action that has not finished.
type action struct {
	number uint64
	// upload is held while jobs are appended, and while the action is sealed or
	// canceled.
	upload sync.Mutex
	// bytes is the size of the payloads. It is changed under both upload and Store.mu.
	bytes int64

	record  bulk.Action
	spec    *bulk.Spec
	config  bulk.TypeConfig
	line    *line
	target  *target
	limiter *limiter
	holding *holding

	// queued is the action's place in the backlog; it belongs to backlog.mu. Stale reports whether it
	// must be set again, and waited is how many of its jobs waited when it was.
	queued bulk.Queued
	stale  bool
	waited int64
	// granted counts the jobs that were admitted since the store was opened.
	granted int64
	// slot is its place in line.actions.
	slot int

	// next is the first job that was never admitted.
	next int64
	// returned has the jobs that precede next in the line.
	returned queue
	jobs     map[uint32]*job
	// finals has, for each job before next that is finished, the fence of the
	// lease that finished it, and succeededBit.
	finals []uint8
	logs   map[uint32]pageLog

	// jobEvents reports whether the action asks for events of its jobs.
	jobEvents bool

	// The call in progress adds these to the action's log, outcomes and events.
	writer   jobWriter
	outcomes []bulk.Outcome
	ended    []bulk.JobResult
	touched  bool

	untold bool // it has changed since Changes returned it
}

// pageLog is the length of a page's log, and the call that last appended to it.
type pageLog struct {
	bytes int
	call  uint64
}

const (
	succeededBit = 1 << 7
	fenceMask    = succeededBit - 1
)

// waiting counts the jobs that could be admitted.
func (a *action) waiting() int64 { return a.record.Received - a.next + int64(a.returned.len()) }

// stored is what the action adds to what its tenant has stored.
func (a *action) stored() bulk.Stored {
	return bulk.Stored{Actions: 1, Jobs: a.record.Received, Bytes: a.bytes}
}

// open reports whether the action's jobs may be admitted.
func (a *action) open() bool { return a.record.Status == bulk.Running && !a.record.Paused }

// final returns how a job ended; 0 if it has not.
func (a *action) final(index uint32) uint8 {
	if int(index) < len(a.finals) {
		return a.finals[index]
	}
	return 0
}

func (a *action) setFinal(index, fence uint32, ok bool) {
	for int(index) >= len(a.finals) {
		a.finals = append(a.finals, make([]uint8, max(64, min(int(a.record.Received)-len(a.finals), len(a.finals)+1)))...)
	}
	a.finals[index] = finalOf(fence, ok)
}

func finalOf(fence uint32, ok bool) uint8 {
	f := uint8(max(1, min(fence, fenceMask)))
	if ok {
		f |= succeededBit
	}
	return f
}

// line has the actions of one tenant and type.
type line struct {
	tenant  *tenant
	jobType *jobType
	taken   float64 // its tag in the division of the type's workers
	granted int64   // admitted jobs
	actions []*action
}

// holding counts the jobs of a holder that are ready or in flight.
type holding struct {
	of    bulk.Holder
	jobs  int64
	users int // unfinished actions
}

// tenant is a tenant that has unfinished actions, or settings.
type tenant struct {
	name     string
	settings bulk.Tenant
	taken    float64 // its tag in the division of the global limit
	counter  counter
	lines    map[string]*line
	// keys are those of its settings; keyed has the keys with attempts or jobs, and aside counts the
	// jobs that wait for one.
	keys  *keys.Keys
	keyed map[bulk.JobKey]*keyed
	aside int64
	// stored counts what counts in the tenant's quota; appends that are under way are counted.
	stored bulk.Stored
}

// jobType is a job type.
type jobType struct {
	name     string
	ready    queue
	inFlight int64
	finished int64
	// busy is how long jobs were in flight, without the time since busySince.
	busy      time.Duration
	busySince time.Time
	virtual   float64
	lines     int
	// asked is the window in which workers last asked for the type's jobs, or its ready
	// queue stopped being empty.
	asked int64
	// idle reports whether no workers ask for the type: its ready jobs hold no slots.
	idle bool
}

// launched counts a job in flight, and landed reverses that.
func (k *jobType) launched(now time.Time) {
	if k.inFlight++; k.inFlight == 1 {
		k.busySince = now
	}
}

func (k *jobType) landed(now time.Time) {
	if k.inFlight--; k.inFlight == 0 {
		k.busy += now.Sub(k.busySince)
	}
}

// busyUntil returns how long jobs were in flight.
func (k *jobType) busyUntil(now time.Time) time.Duration {
	if k.inFlight == 0 {
		return k.busy
	}
	return k.busy + now.Sub(k.busySince)
}

// counter counts the attempts and jobs that are charged to one limit.
type counter struct {
	users    int // unfinished actions that are charged to it
	limit    bulk.Limit
	window   int64 // of the limit
	started  int64
	ready    int64
	inFlight int64
}

// roll begins the window with that index.
func (c *counter) roll(window int64) {
	if window != c.window {
		c.window, c.started = window, 0
	}
}

// queue is a first-in, first-out queue of jobs.
type queue struct {
	items []*job
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

// at returns the job with n jobs before it.
func (q *queue) at(n int) *job { return q.items[q.head+n] }

func (q *queue) push(j *job) { q.items = append(q.items, j) }

func (q *queue) pop() *job {
	j := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return j
}

// remove removes the jobs for which f is true, and returns them in order.
func (q *queue) remove(f func(*job) bool) (removed []*job) {
	kept := make([]*job, 0, q.len())
	for _, j := range q.items[q.head:] {
		if f(j) {
			removed = append(removed, j)
		} else {
			kept = append(kept, j)
		}
	}
	q.items, q.head = kept, 0
	return removed
}

// prepend puts jobs in front, in order.
func (q *queue) prepend(jobs []*job) {
	q.items = append(append(make([]*job, 0, len(jobs)+q.len()), jobs...), q.items[q.head:]...)
	q.head = 0
}

// newTimeline returns an empty heap of jobs by time.
func newTimeline() ranks.Heap[*job] {
	return ranks.New(func(j, o *job) bool {
		if j.at.Equal(o.at) {
			return j.index < o.index
		}
		return j.at.Before(o.at)
	}, func(j *job) *int { return &j.place })
}
