package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// MaxChanged is the most actions that one call of Change changes, and maxLooked the most
	// that it looks at.
	MaxChanged = 1000
	maxLooked  = 10_000
	// changeTime is after which time a call of Change begins no more changes.
	changeTime = 5 * time.Second
	// changePage is how many actions are read at a time, and changeAtOnce how many are changed
	// at a time, so that the store can write several together; replayAtOnce is that of replays,
	// each of which holds a page of payloads.
	changePage   = 500
	changeAtOnce = 16
	replayAtOnce = 4
)

// Verb is what Change does to actions.
type Verb string

// The verbs: the engine's methods with these names.
const (
	DoPause  Verb = "pause"
	DoResume Verb = "resume"
	DoCancel Verb = "cancel"
	DoReplay Verb = "replay"
)

// kinds are the transitions of the verbs that are one.
var kinds = map[Verb]bulk.TransitionKind{DoPause: bulk.Pause, DoResume: bulk.Resume, DoCancel: bulk.Cancel}

// Change selects actions, and says what to do with them. Pausing, resuming and canceling look at
// the actions that have not finished; replaying looks at those that have.
type Change struct {
	Do Verb
	// Action, Tenant, Type, Target, Callee and Status select the actions that match all that are set; Action is
	// an id, Target a target's name, and Callee either a type or that.
	Action, Tenant, Type, Target, Callee string
	Status                               bulk.Status
	// Only selects the failures that are replayed, and the actions that have some.
	Only bulk.FailureFilter
	// All allows a Change that selects by nothing.
	All bool
	// DryRun counts what would be changed, and changes nothing.
	DryRun bool
	// After is Changed.Next of the previous call; empty for the first.
	After string
	// Limit is the most actions to change in this call; 0 is MaxChanged.
	Limit int
}

// Changed counts what one call of Change did.
type Changed struct {
	// Matched counts the actions that were selected; Changed those of them that were changed.
	// The others were changed before, or their status does not allow it.
	Matched, Changed int
	// Jobs counts the jobs of changed actions that had not ended, or that are replayed.
	Jobs int64
	// Next is where to continue; empty if all actions were looked at. Actions that were
	// created since the first call are not looked at.
	Next string
}

// ChangeError is the error of a wrong field of a Change.
type ChangeError struct{ Field, Why string }

func (e *ChangeError) Error() string { return e.Field + ": " + e.Why }

func (c *Change) validate() error {
	switch {
	case kinds[c.Do] == 0 && c.Do != DoReplay:
		return &ChangeError{"do", "want pause, resume, cancel or replay"}
	case c.Limit < 0 || c.Limit > MaxChanged:
		return &ChangeError{"limit", fmt.Sprintf("want 1 to %d", MaxChanged)}
	case c.Only.Selects() && c.Do != DoReplay:
		return &ChangeError{"do", "cause, error, since and until are for replay: leave them out"}
	case c.selects() == c.All: // neither or both
		return &ChangeError{"all", "give action, tenant, type, target, status or the failures, or all: true for every action"}
	}
	return checkFilter(&c.Only)
}

// selects reports whether anything selects actions.
func (c *Change) selects() bool {
	return c.Action+c.Tenant+c.Type+c.Target+c.Callee+string(c.Status) != "" || c.Only.Selects()
}

// match reports whether an action is selected, by a Change that began at a time. Replays that it
// may have made itself are not.
func (c *Change) match(a *bulk.Action, began time.Time) bool {
	if c.Do == DoReplay && a.ReplayOf != "" && c.Action == "" && !a.CreatedAt.Before(began.Add(-time.Millisecond)) {
		return false
	}
	fits := a.FinishedAt.IsZero()
	if c.Do == DoReplay {
		fits = a.Replayable() && (!c.Only.Selects() || mayHaveFailed(&c.Only, a))
	}
	return fits && c.of(a)
}

// of reports whether an action has the tenant, type, target and status that are set.
func (c *Change) of(a *bulk.Action) bool {
	filter := bulk.ActionFilter{Tenant: c.Tenant, Callee: c.Callee, Status: c.Status}
	return filter.Matches(a) && (c.Type == "" || c.Type == a.Type) && (c.Target == "" || c.Target == a.TargetName())
}

// cursor is where a Change continues: after an action, without those created since it began, in
// milliseconds, rounded up.
type cursor struct {
	began time.Time
	after string
}

func parseCursor(text string, now time.Time) (cursor, error) {
	if text == "" {
		return cursor{began: now.Truncate(time.Millisecond).Add(time.Millisecond)}, nil
	}
	ms, after, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return cursor{}, &ChangeError{"after", "want the next of the call before"}
	}
	return cursor{time.UnixMilli(n), after}, nil
}

func (c cursor) text() string { return strconv.FormatInt(c.began.UnixMilli(), 10) + "/" + c.after }

// Change pauses, resumes, cancels or replays the actions that match, in the order of their
// creation: at most MaxChanged in a call, of 10,000 that it looks at, and for about five seconds.
// It is idempotent. An action that cannot be changed is no error. A wrong field is a *ChangeError. A dry run of a
// replay reads the dead letters, unless the action has finished, was never replayed, and all are selected.
func (e *Engine) Change(ctx context.Context, c Change) (done Changed, err error) {
	if err := c.validate(); err != nil {
		return done, err
	}
	if c.Limit == 0 {
		c.Limit = MaxChanged
	}
	began := time.Now()
	at, err := parseCursor(c.After, began)
	if err != nil {
		return done, err
	}
	if c.Action != "" {
		a, err := e.store.Action(ctx, c.Action)
		if err != nil {
			return done, err
		}
		return done, e.changeSome(ctx, &c, []bulk.Action{a}, at.began, &done)
	}
	size := changePage
	if c.Do != DoReplay {
		size = maxLooked // they are in memory
	}
	for looked := 0; looked < maxLooked; looked += size {
		page, err := e.store.Actions(ctx, bulk.ActionFilter{Unfinished: c.Do != DoReplay, After: at.after, Limit: size})
		if errors.Is(err, bulk.ErrNotFound) {
			err = &ChangeError{"after", "the action that it names is gone: leave it out, which begins again"}
		}
		if err != nil {
			return done, err
		}
		last := len(page) < size
		for len(page) > 0 {
			if done.Changed >= c.Limit || time.Since(began) > changeTime {
				done.Next = at.text()
				return done, nil
			}
			if page[0].CreatedAt.After(at.began) {
				return done, nil
			}
			n := c.group(page, at.began, c.Limit-done.Changed)
			if err := e.changeSome(ctx, &c, page[:n], at.began, &done); err != nil {
				return done, err
			}
			at.after, page = page[n-1].ID, page[n:]
		}
		if last {
			return done, nil
		}
	}
	done.Next = at.text()
	return done, nil
}

// group returns how many actions of a page come next: up to so many that match as are changed at
// a time.
func (c *Change) group(page []bulk.Action, began time.Time, left int) (n int) {
	matched := 0
	for n < len(page) && matched < min(changeAtOnce, left) {
		if c.match(&page[n], began) {
			matched++
		}
		n++
	}
	return n
}

// changeSome changes the actions that match, at the same time, and counts them.
func (e *Engine) changeSome(ctx context.Context, c *Change, actions []bulk.Action, began time.Time, done *Changed) error {
	var group errgroup.Group
	if group.SetLimit(changeAtOnce); c.Do == DoReplay {
		group.SetLimit(replayAtOnce)
	}
	jobs := make([]int64, len(actions)) // -1: not changed
	for i := range actions {
		a := &actions[i]
		jobs[i] = -1
		if !c.match(a, began) {
			continue
		}
		done.Matched++
		group.Go(func() (err error) {
			jobs[i], err = e.changeOne(ctx, c, a)
			return err
		})
	}
	err := group.Wait()
	for _, n := range jobs {
		if n >= 0 {
			done.Changed++
			done.Jobs += n
		}
	}
	return err
}

// changeOne changes an action, and returns how many of its jobs that concerns; -1 if the action
// does not allow the change, or does not need it.
func (e *Engine) changeOne(ctx context.Context, c *Change, a *bulk.Action) (jobs int64, err error) {
	if c.Do == DoReplay {
		return e.replayOne(ctx, c, a)
	}
	if _, err := a.Apply(bulk.Transition{Kind: kinds[c.Do]}, time.Now()); err != nil {
		return -1, nil //nolint:nilerr // It is not changed.
	}
	if !c.DryRun {
		_, err = map[Verb]func(context.Context, string) (bulk.Action, error){
			DoPause: e.Pause, DoResume: e.Resume, DoCancel: e.Cancel,
		}[c.Do](ctx, a.ID)
	}
	return refusedOr(a.Received-a.Done(), err)
}

func (e *Engine) replayOne(ctx context.Context, c *Change, a *bulk.Action) (jobs int64, err error) {
	if a.Failed == 0 {
		return -1, nil
	}
	if !c.DryRun {
		again, err := e.Replay(ctx, a.ID, c.Only)
		return refusedOr(again.Total, err)
	}
	if a.Replays == 0 && !a.FinishedAt.IsZero() && !c.Only.Selects() {
		return a.Failed, nil
	}
	part := bulk.ReplayPart{FailureFilter: c.Only}
	if part.Below, err = e.ended(ctx, a); err == nil {
		jobs, err = e.countLetters(ctx, a.ID, part, math.MaxInt64)
	}
	if jobs == 0 {
		jobs = -1
	}
	return refusedOr(jobs, err)
}

// refusedOr returns the jobs, or -1 if the error is a refusal of one action.
func refusedOr(jobs int64, err error) (int64, error) {
	var transition *bulk.TransitionError
	var denied *bulk.DeniedError
	if errors.As(err, &transition) || errors.As(err, &denied) || errors.Is(err, bulk.ErrNotFound) {
		return -1, nil
	}
	return jobs, err
}
