package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors that a Store returns and a caller may branch on.
var (
	// ErrNotFound: there is no action of that id.
	ErrNotFound = errors.New("no such action")
	// ErrNoSchedule: there is no schedule of that name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrConflict: somebody else has changed it meanwhile.
	ErrConflict = errors.New("it was changed meanwhile: read it again")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("the store is closed")
	// ErrFull: the store has too little room left to accept more. What it has
	// accepted goes on.
	ErrFull = errors.New("the store is full")
	// ErrBroken: a write failed in a way that leaves the store's state unknown.
	// Everything acknowledged is safe; the process must be started again.
	ErrBroken = errors.New("the store is broken")
	// ErrUnavailable: the store does not answer now, or not in time. The call may have
	// happened; it may be made again.
	ErrUnavailable = errors.New("the store is not available")
)

// OffsetError: an upload began beyond what the action has received.
type OffsetError struct{ Received int64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("the upload begins beyond the %d jobs received: send from there", e.Received)
}

// ExistsError: an action of that id exists with another body.
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("action %q exists with another body: choose another id, or send the same body", e.ID)
}

// MoveError: the action's status does not allow that move.
type MoveError struct {
	ID   string
	Why  string
	From Status
	// Total and Received are those of a seal that did not add up.
	Total, Received int64
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("action %q is %s: %s", e.ID, e.From, e.Why)
}

// Store keeps actions and jobs, and moves them atomically. Each method is one
// atomic move and is durable when it returns: a move that was answered survives
// a crash, and one that was not may or may not have happened. Methods are safe
// for concurrent use. The store's clock decides all deadlines and windows.
//
// Which jobs wait, are ready, are in flight or are due is the store's knowledge;
// who may pass is policy, and comes from outside as grants.
type Store interface {
	// Create stores a new action in status CREATED. If its id exists with the
	// same Spec, the stored action is returned and created is false; with
	// another, the error is an *ExistsError.
	Create(ctx context.Context, spec Spec) (action Action, created bool, err error)
	// Append adds jobs to an action in status CREATED. Offset is how many jobs
	// the caller has sent before these: jobs the store already has are skipped,
	// and an offset beyond what it has is an *OffsetError. It returns how many
	// jobs the action now has. Payloads are copied.
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	// Move makes one move of the status machine, as Action.Apply decides it. Of a
	// move that had been made before it returns the action as it is and
	// ErrNoChange, so that of several who make one move, one knows that it did.
	Move(ctx context.Context, id string, move Move) (Action, error)
	// Action returns one action with its present counts, or ErrNotFound.
	Action(ctx context.Context, id string) (Action, error)
	// Actions returns the actions that match, in the order of their creation.
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)

	// Backlog returns what the fetcher's policies need: who waits, and what the
	// present window still allows.
	Backlog(ctx context.Context) (Backlog, error)
	// Admit moves jobs from the lines of their actions into the ready queue, in
	// the order of the grants, each at most what limits still allow. It returns
	// how many it moved.
	Admit(ctx context.Context, grants []Grant) (admitted int, err error)
	// Lease takes ready jobs in flight, charging one attempt of the present
	// window for each. It may return none; it does not wait. While no Lease has
	// asked for a type in the present window and the one before, its ready jobs
	// take nothing of what limits leave to others, and no more of them are admitted.
	Lease(ctx context.Context, request LeaseRequest) ([]Job, error)
	// Settle records what became of leases. Verdicts are in the order of the
	// settlements.
	Settle(ctx context.Context, settlements []Settlement) ([]Verdict, error)
	// Dispatch returns jobs to the front of their action's line: those that are
	// due, and those whose lease has expired; at most max. It returns how many
	// it moved, and when the next one is due (zero if none is known).
	Dispatch(ctx context.Context, max int) (moved int, next time.Time, err error)

	// Outcomes returns the outcomes of an action that follow its first `after`
	// batches, some thousand at a time, and the number of batches they reach to;
	// that is `after` when there are no more yet. Batches that were reduced may be gone.
	Outcomes(ctx context.Context, id string, after uint64) (outcomes []Outcome, upTo uint64, err error)
	// DeadLetters returns up to limit dead letters of an action with an index of
	// at least from, by index.
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]DeadLetter, error)

	// KeepEvents makes the store keep an event of each move of an action, and of
	// each job that is done for good of actions that ask for it, from now on; with 0
	// it keeps no more of them, as it does before the first call. An event is
	// recorded in the atomic move that it tells of. Opening the store may fail jobs:
	// it keeps their events if it kept any before.
	//
	// No event is ever dropped. While `most` of them wait, what would bring others
	// is refused with ErrFull: Create, Append to an action that asks for events of
	// its jobs, and Resume. What was accepted goes on, so that there may be more.
	KeepEvents(ctx context.Context, most int64) error
	// Events returns the oldest events that have not been published, in the order
	// in which they happened, some hundred at a time and about 4 MiB; none if there
	// are no more yet. They are durable. Called again, it returns the same, with the
	// same IDs. upTo is what to tell Published.
	Events(ctx context.Context) (events []Event, upTo uint64, err error)
	// Published drops the events up to an upTo that Events has returned.
	Published(ctx context.Context, upTo uint64) error

	// Settings returns the settings that were stored.
	Settings(ctx context.Context) (Settings, error)
	// Set stores one setting; it holds from the next Admit on. A target that is set
	// to Auto has the rate of an AutoRate, which the store feeds with what became of
	// the attempts of each window, and asks for the rate when another window begins;
	// within a window it stands. To set it so again changes nothing. Whether what was
	// found survives a restart is the store's choice.
	Set(ctx context.Context, change SettingsChange) error

	// PutSchedule stores a schedule if the stored one has s.Revision (0: there is
	// none), and returns it with its next revision; else ErrConflict. Revisions rise,
	// and none is given twice in a store, also after a schedule was removed. A new one
	// beyond MaxSchedules is ErrFull.
	PutSchedule(ctx context.Context, s Schedule) (Schedule, error)
	// RemoveSchedule removes a schedule, or returns ErrNoSchedule.
	RemoveSchedule(ctx context.Context, name string) error
	// Schedules returns all schedules, by name.
	Schedules(ctx context.Context) ([]Schedule, error)

	// Close makes everything durable and releases the store.
	Close() error
}

// ActionFilter selects actions.
type ActionFilter struct {
	// Tenant and Status select those that match; empty selects all.
	Tenant string
	Status Status
	// Unfinished selects the actions that the watcher must still drive.
	Unfinished bool
	// Number selects the action of that number of the store, as in a LeaseID.
	Number uint64
	// After is the id of the last action of the page before; empty for the first.
	After string
	// Limit is the most actions to return; 0 is no limit.
	Limit int
}

// Backlog is what waits, and what may pass, at one moment.
type Backlog struct {
	// Now is the store's time; WindowEnds is when the present window ends.
	Now, WindowEnds time.Time
	// Left is how many more jobs the global limit lets into the ready queue in
	// this window. NoLimit if there is none.
	Left int64
	// Virtual is the virtual time of the division among tenants; see Divide.
	Virtual float64
	// Lines has one line for each tenant and type with jobs that wait.
	Lines []Line
	// Types says how each job type does, by name.
	Types map[string]TypeState
	// Targets has what each limited target still allows, by name.
	Targets map[string]int64
	// Found has the rate, in attempts per second, that holds in this window for each
	// target whose rate is to be found, by name; see AutoRate.
	Found map[string]float64
	// NonReady counts the jobs that were turned back, by reason.
	NonReady [nonReadyReasons]int64
	// Outbox counts the events that wait to be published, and OldestEvent is when
	// the first of them happened; zero if there is none.
	Outbox      int64
	OldestEvent time.Time
}

// NoLimit stands where a limit is not set.
const NoLimit int64 = 1<<63 - 1

// Line is what one tenant has waiting for the workers of one type.
type Line struct {
	Tenant, Type string
	Settings     Tenant
	// Taken is the tenant's tag in the division of the global limit, TypeTaken
	// the line's in the division of its type's workers; see Divide.
	Taken, TypeTaken float64
	// Granted counts the jobs of the line that were admitted; every so many-th
	// turn is for the low class.
	Granted int64
	// Left is what the tenant's own limit still allows in this window. Lines of
	// one tenant share it.
	Left    int64
	Waiting []Waiting
}

// Waiting is one action in a tenant's line.
type Waiting struct {
	// Number is the store's number of the action: what a Grant names.
	Number uint64
	Class  Class
	// EnteredAt is when the action entered the fair queue.
	EnteredAt time.Time
	// Total and Done count the action's jobs.
	Total, Done int64
	// Jobs is how many jobs can be admitted now.
	Jobs   int64
	Target string
	// Left is what congestion control lets the action's limiter (tenant and
	// target) have in this window; NoLimit where nothing is throttled.
	Left int64
}

// TypeState is how one job type does.
type TypeState struct {
	Ready, InFlight int64
	// Waiting counts the jobs that wait to be admitted.
	Waiting int64
	// Finished counts the attempts that ended other than throttled or released,
	// since the store was opened.
	Finished int64
	// Busy is for how long any of its jobs were in flight, since the store was
	// opened.
	Busy time.Duration
	// Virtual is the virtual time of the division among the type's lines.
	Virtual float64
	// Idle says that jobs are ready and nobody asks for them: see Lease.
	Idle bool
}

// Grant admits up to Jobs jobs of one action.
type Grant struct {
	Number uint64
	Jobs   int64
}
