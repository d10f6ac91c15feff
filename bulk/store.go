package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors that a Store returns and a caller may branch on.
var (
	// ErrNotFound: there is no action with that id.
	ErrNotFound = errors.New("no such action")
	// ErrNoJob: the action has no such job; see NoJobError.
	ErrNoJob = errors.New("no such job")
	// ErrNoSchedule: there is no schedule with that name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrConflict: another caller made a change first.
	ErrConflict = errors.New("it was changed in the meantime: read it again")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("the store is closed")
	// ErrFull: the store has too little space left to accept more. Accepted jobs
	// continue.
	ErrFull = errors.New("the store is full")
	// ErrBroken: a write failed in a way that leaves the store's state unknown.
	// Acknowledged operations are safe; the process must be restarted.
	ErrBroken = errors.New("the store is broken")
	// ErrUnavailable: the store does not answer, or not in time. The operation may or
	// may not have happened; it can be repeated.
	ErrUnavailable = errors.New("the store is not available")
)

// OffsetError is the error of an upload that begins beyond the jobs received.
type OffsetError struct{ Received int64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("the upload begins beyond the %d jobs received: send from there", e.Received)
}

// ExistsError is the error of creating an action whose id exists with another body.
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("action %q exists with another body: choose another id, or send the same body", e.ID)
}

// NoJobError is the error of asking for a job that the action does not have, or for the first
// that has not ended if there is none. It wraps ErrNoJob.
type NoJobError struct {
	ID string
	// Index is the index that was asked for, or FirstJob; Received counts the action's jobs.
	Index, Received int64
}

func (e *NoJobError) Error() string {
	switch {
	case e.Received == 0:
		return fmt.Sprintf("action %q has no jobs yet: upload some", e.ID)
	case e.Index == FirstJob:
		return fmt.Sprintf("every job of action %q has ended, or was canceled: give the index of one, from 0 to %d", e.ID, e.Received-1)
	}
	return fmt.Sprintf("action %q has no job %d: its jobs have the indexes from 0 to %d", e.ID, e.Index, e.Received-1)
}

// Unwrap returns ErrNoJob.
func (e *NoJobError) Unwrap() error { return ErrNoJob }

// TransitionError is the error of a transition that the action's status does not allow.
type TransitionError struct {
	ID   string
	Why  string
	From Status
	// Total and Received are those of a seal whose total is not the number received.
	Total, Received int64
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("action %q is %s: %s", e.ID, e.From, e.Why)
}

// Store keeps actions and jobs. Each method is one atomic operation and is durable when
// it returns: an acknowledged operation survives a crash, and one that was interrupted
// may or may not have happened. Methods are safe for concurrent use. The store's clock
// decides all deadlines and windows.
//
// The store knows which jobs wait, are ready, are in flight or are due. Which jobs may
// pass is policy: callers pass grants.
type Store interface {
	// Create stores a new action, as Spec.Action makes it. If its id exists with the
	// same Spec, the stored action is returned and created is false; with
	// another, the error is an *ExistsError. A new action beyond Config.QuotaOf is a *QuotaError.
	Create(ctx context.Context, spec Spec) (action Action, created bool, err error)
	// Append adds jobs to an action in status CREATED, or to an open stream, whose jobs
	// can be admitted at once. Offset is the number of jobs
	// that the caller has sent before these: jobs that the store already has are
	// skipped, and an offset beyond them is an *OffsetError. It returns the number of
	// jobs that the action has now. Payloads are copied. At the offset AtEnd it adds the
	// jobs behind all others; up to MaxAtEnd jobs of up to MaxAtEndBytes are consecutive. Jobs
	// beyond Config.QuotaOf are a *QuotaError, with the number of jobs that the action has.
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	// Transition makes one transition of the status machine, as Action.Apply decides.
	// If it was made before, Transition returns the action as it is and ErrNoChange: of
	// several callers that make the same transition, one succeeds.
	Transition(ctx context.Context, id string, transition Transition) (Action, error)
	// Action returns one action with its present counts, or ErrNotFound.
	Action(ctx context.Context, id string) (Action, error)
	// Actions returns the actions that match, in the order of their creation. It does not
	// delay other calls. With a filter it may read all actions, except for Unfinished, unless Look
	// bounds them: then a *LookError says where to continue, beside the actions found so far.
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)

	// Changes returns up to most of the unfinished actions that have changed since an earlier
	// call returned them, each as it is now, and those that have ended. To the first call
	// all unfinished actions have changed. An action changes with its status, and when its
	// jobs start or end or outcomes are reduced. The store has one caller of Changes.
	Changes(ctx context.Context, most int) (Changes, error)

	// Job returns the state of one job, at one moment. With the index FirstJob, it is the job with
	// the least index that has not ended, of an action that is not canceled. It is ErrNotFound
	// for an unknown action, and a *NoJobError for a job that the action does not have.
	Job(ctx context.Context, id string, index int64) (JobState, error)

	// Fetch calls f with what the fetcher's policies need: the jobs that wait, and what the present
	// window still allows. The Queue, the Bounds and the Held of the backlog are good until f returns.
	// It must not call the store, nor take a lock that is held by one who does. Action, and Actions
	// without Unfinished, do not wait for f.
	Fetch(ctx context.Context, f func(*Backlog)) error
	// Admit moves jobs from the lines of their actions into the ready queue, in the
	// order of the grants, as far as limits still allow. It returns how many it moved.
	Admit(ctx context.Context, grants []Grant) (admitted int, err error)
	// Lease puts ready jobs in flight, and charges one attempt of the present window for
	// each. It may return none; it does not wait. While no Lease has asked for a type in
	// the present window and the one before, its ready jobs do not count against limits,
	// and no more of them are admitted. The jobs of one call have at most MaxPageBytes of
	// payloads, or are one job; what does not fit stays ready.
	Lease(ctx context.Context, request LeaseRequest) ([]Job, error)
	// Settle records the outcomes of leases. Verdicts are in the order of the
	// settlements. Many may be recorded in several operations. A repeated settlement has no further
	// effect. With an error there may be verdicts too: those of settlements that were judged; 0 stands for the others.
	Settle(ctx context.Context, settlements []Settlement) ([]Verdict, error)
	// Dispatch returns jobs that are due, or whose lease has expired, to the front of
	// their action's line; at most max. It returns how many it moved, and when the next
	// one is due (zero if none is known).
	Dispatch(ctx context.Context, max int) (moved int, next time.Time, err error)

	// Outcomes returns the outcomes of an action that follow its first `after` batches,
	// some thousand at a time, and the number of the last batch returned; `after` if
	// there are no more yet. Reduced batches may be deleted.
	Outcomes(ctx context.Context, id string, after uint64) (outcomes []Outcome, upTo uint64, err error)
	// DeadLetters returns up to limit dead letters of an action, by index, from an index
	// on. A page ends where its payloads reach MaxPageBytes, so it may be shorter than
	// limit; only an empty page says that there are no more.
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]DeadLetter, error)

	// KeepEvents makes the store keep an event of each transition of an action, and of
	// each job that finishes if its action asks for it, from now on. With 0, and before
	// the first call, it keeps none. An event is recorded in the same atomic operation
	// as what it reports. Opening the store may fail jobs: it keeps their events if it
	// kept any before.
	//
	// No event is ever dropped. While `most` of them wait, calls that would cause more
	// return ErrFull: Create, Append to an action that asks for events of its jobs, and
	// Resume. Accepted jobs continue, so there may be more than `most`.
	KeepEvents(ctx context.Context, most int64) error
	// Events returns the oldest events that have not been published, in the order in
	// which they happened, some hundred at a time and about 4 MiB; none if there are no
	// more yet. They are durable. A repeated call returns the same events with the same
	// IDs. Published takes upTo.
	Events(ctx context.Context) (events []Event, upTo uint64, err error)
	// Published drops the events up to an upTo that Events has returned.
	Published(ctx context.Context, upTo uint64) error

	// Settings returns the stored settings.
	Settings(ctx context.Context) (Settings, error)
	// Set stores one setting, which applies from the next Admit on. A target that is set
	// to Auto has the rate of an AutoRate. The store observes the attempts of each
	// window, and changes the rate when the next window begins. Setting Auto again
	// changes nothing. A store may forget the rate it found at a restart.
	Set(ctx context.Context, change SettingsChange) error

	// StoredOf returns what counts in the quotas of some tenants, of which few may be given, as all are read at once. With an error of
	// a part of the store that does not answer, ErrUnavailable, there are the counts of the others.
	StoredOf(ctx context.Context, tenants []string) (map[string]Stored, error)

	// Secret returns 32 random bytes, which the store has made once and keeps for good:
	// all instances have the same. Keys are derived from it, each for one purpose.
	Secret(ctx context.Context) ([]byte, error)

	// PutSchedule stores a schedule if the stored one has s.Revision (0: there is none),
	// and returns it with its next revision; else it returns ErrConflict. Revisions
	// increase, and a store gives none twice, even after a schedule was removed. With
	// MaxSchedules stored, a new schedule is ErrFull.
	PutSchedule(ctx context.Context, s Schedule) (Schedule, error)
	// RemoveSchedule removes a schedule, or returns ErrNoSchedule.
	RemoveSchedule(ctx context.Context, name string) error
	// Schedules returns all schedules, by name.
	Schedules(ctx context.Context) ([]Schedule, error)

	// Close makes everything durable and releases the store.
	Close() error
}

// AtEnd is the offset of an append behind all jobs that an action has, and the total of a
// seal of as many as it has.
const AtEnd = -1

// MaxAtEnd and MaxAtEndBytes bound the jobs of one append at the end that are consecutive.
// One payload may exceed the bytes.
const (
	MaxAtEnd      = 4096
	MaxAtEndBytes = 4 << 20
)

// MaxPageBytes bounds the payloads that one call of Lease or DeadLetters returns.
const MaxPageBytes = 8 << 20

// ActionFilter selects actions.
type ActionFilter struct {
	// Tenant, Callee and Status select the actions that match; empty selects all. Callee is a type,
	// or the name of a target.
	Tenant, Callee string
	Status         Status
	// Streams selects the streams of jobs that were enqueued one at a time.
	Streams bool
	// Unfinished selects the actions that still need the watcher. While a part of the store does
	// not answer, its actions are left out; with a Limit the call fails instead.
	Unfinished bool
	// Number selects the action with that number, as in a LeaseID.
	Number uint64
	// After is the id of the last action of the previous page; empty for the first page.
	After string
	// Limit is the maximum of actions to return, and Look that of actions to look at; 0 is no limit.
	Limit, Look int
}

// LookError is the error of a list that has looked at as many actions as its filter allows. After is the last of them.
type LookError struct{ After string }

func (e *LookError) Error() string {
	return fmt.Sprintf("no more actions are looked at: continue after %q", e.After)
}

// Matches reports whether an action has the filter's tenant, callee and status, and is a stream if only those are selected.
func (f *ActionFilter) Matches(a *Action) bool {
	return (f.Tenant == "" || a.Tenant == f.Tenant) && (f.Callee == "" || a.Type == f.Callee || a.TargetName() == f.Callee) &&
		(f.Status == "" || a.Status == f.Status) && (a.Stream || !f.Streams)
}

// Marks returns what the JSON of the Spec of every action that matches contains, however the rest of it is. To look for
// them is much faster than to decode the JSON.
func (f *ActionFilter) Marks() (marks [][]byte) {
	if f.Streams {
		marks = append(marks, []byte(`"stream":true`))
	}
	for _, text := range []string{f.Tenant, f.Callee} {
		if text == "" {
			continue
		}
		if mark, err := json.Marshal(text); err == nil { // always
			marks = append(marks, mark)
		}
	}
	return marks
}

// Changes is what has happened to actions.
type Changes struct {
	Actions []Unfinished
	// Ended has the ids of actions that are no longer unfinished, or were forgotten. They
	// ended before actions with the same ids in Actions were created.
	Ended []string
	// More reports whether there are more changes.
	More bool
}

// Unfinished is what the loops follow of an unfinished action: much less than an Action, as there is one
// for each change. Fields are as in an Action.
type Unfinished struct {
	// Spec is the store's: it must not be changed.
	Spec                  *Spec
	Status                Status
	Open                  bool
	CreatedAt             time.Time
	Total, Done, InFlight int64
	Batches, Reduced      uint64
	Partial               []byte
	Error                 string
}

// Unfinished returns what the loops follow of an action, with the store's pointer to its Spec.
func (a *Action) Unfinished(spec *Spec) Unfinished {
	return Unfinished{
		Spec: spec, Status: a.Status, Open: a.Open, CreatedAt: a.CreatedAt,
		Total: a.Total, Done: a.Done(), InFlight: a.InFlight,
		Batches: a.Batches, Reduced: a.Reduced, Partial: a.Partial, Error: a.Error,
	}
}

// Backlog is the jobs that wait, and the limits that hold, at one moment.
type Backlog struct {
	// Now is the store's time; WindowEnds is when the present window ends.
	Now, WindowEnds time.Time
	// Left is how many more jobs the global limit admits in this window. NoLimit if
	// there is no limit.
	Left int64
	// Virtual is the virtual time of the division among tenants; see Divide.
	Virtual float64
	// Queue has the jobs that wait, and Bounds what limits leave of them: see Store.Fetch.
	Queue  *FairQueue
	Bounds Bounds
	// Lines has one line for each tenant and type with jobs that wait, and Targets how many more
	// jobs each limited target of them admits, by name: see Backlog.List.
	Lines   []Line
	Targets map[string]int64
	// Types has the state of each job type, by name.
	Types map[string]TypeState
	// Found has the rate, in attempts per second, of each target that is set to Auto,
	// by name; see AutoRate.
	Found map[string]float64
	// Held counts the jobs that are ready or in flight, by who holds them.
	Held map[Holder]int64
	// NonReady counts the jobs that were turned back, by reason.
	NonReady [nonReadyReasons]int64
	// Outbox counts the events that wait to be published. OldestEvent is when the first
	// of them happened; zero if there is none.
	Outbox      int64
	OldestEvent time.Time
}

// Bounds tells what limits leave at the moment of a Backlog. To ask for the bound of a limit with a
// window may lower the backlog's WindowEnds.
type Bounds interface {
	// Tenant returns a tenant's settings, how many more jobs its own limit admits in the present
	// window, and when that ends.
	Tenant(name string) (settings Tenant, left int64, ends time.Time)
	// Target returns how many more jobs a target admits.
	Target(name string) int64
	// Limiter returns how many more jobs congestion control admits of a tenant to a target in
	// this window.
	Limiter(of Holder) int64
}

// Holder is a tenant's jobs of one type against one target; see Spec.Callee.
type Holder struct{ Tenant, Type, Target string }

// NoLimit is the value of a limit that is not set.
const NoLimit int64 = 1<<63 - 1

// Line is the jobs of one tenant that wait for the workers of one type.
type Line struct {
	Tenant, Type string
	Settings     Tenant
	// Taken is the tenant's tag in the division of the global limit, TypeTaken
	// the line's in the division of its type's workers; see Divide.
	Taken, TypeTaken float64
	// Granted counts the jobs of the line that were admitted: every tenth grant is for
	// the low class.
	Granted int64
	// Left is how many more jobs the tenant's own limit admits in this window. Lines of
	// one tenant share it.
	Left    int64
	Waiting []Waiting
}

// Waiting is one action in a tenant's line.
type Waiting struct {
	// Number is the store's number of the action, for a Grant.
	Number uint64
	Class  Class
	// Key is that of the Spec. HadTurn reports whether it had its turn, among the keys of its line
	// and class, in their present round; see Divide.
	Key     string
	HadTurn bool
	// Priority is that of the function Priority.
	Priority float64
	// Jobs is how many jobs can be admitted now.
	Jobs   int64
	Target string
	// Left is how many more jobs congestion control admits for the action's limiter
	// (tenant and target) in this window; NoLimit if nothing is throttled.
	Left int64
}

// TypeState is the state of one job type.
type TypeState struct {
	Ready, InFlight int64
	// Workers is how many workers other processes have as well, as their last lease requests
	// said; 0 if the store is for one process.
	Workers int64
	// Waiting counts the jobs that wait to be admitted, and Lines the lines that have any.
	Waiting int64
	Lines   int
	// Finished counts the attempts that ended since the store was opened, without those
	// throttled or released.
	Finished int64
	// Busy is how long any of its jobs were in flight since the store was opened.
	Busy time.Duration
	// Virtual is the virtual time of the division among the type's lines.
	Virtual float64
	// Idle reports whether jobs are ready and no worker asks for them: see Lease.
	Idle bool
}

// Grant admits up to Jobs jobs of one action.
type Grant struct {
	Number uint64
	Jobs   int64
	// Cost is the worker time of each job, in seconds, to be charged to its line; 0 is 1.
	Cost float64
}
