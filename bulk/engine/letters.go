package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// The bounds of one call of FindLetters: it looks at MaxLetterActions actions, and stops reading after
// letterReads reads or letterBytes of payloads. letterPage is how many letters it reads at a time to look
// for some.
const (
	MaxLetterActions = 2000
	letterReads      = 200
	letterBytes      = 8 * bulk.MaxPageBytes
	letterPage       = 500
)

// LetterFilter selects dead letters of actions.
type LetterFilter struct {
	bulk.FailureFilter
	// Action selects the letters of one action; empty selects all that the other fields match. Then a
	// missing action is ErrNotFound.
	Action string
	// Tenant, Type, Target and Callee are those of a Change.
	Tenant, Type, Target, Callee string
	// Sees reports whether letters of a tenant are shown; nil shows all.
	Sees func(tenant string) bool
	// After is Letters.Next of the previous page, or the id of the job before the first; empty for the first page.
	After string
	// Limit is the maximum of letters of a page.
	Limit int
}

// Letter is a dead letter in a list of those of several actions, with the Spec of its action.
type Letter struct {
	bulk.DeadLetter
	Spec *bulk.Spec
}

// Letters is a page of dead letters, in the order of their actions' creation and then by index.
type Letters struct {
	Found []Letter
	// Next is the After of the next page; empty if there are no more. A page may be empty and have a Next.
	Next string
}

// LetterSource is what FindLetters reads: an Engine, or a part of it.
type LetterSource interface {
	Action(ctx context.Context, id string) (bulk.Action, error)
	Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error)
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
}

// FindLetters returns a page of dead letters: at most Limit, with payloads of MaxPageBytes and one more. It
// looks at a bounded part of what there is. A wrong field is a *ChangeError.
func FindLetters(ctx context.Context, source LetterSource, f LetterFilter) (Letters, error) {
	s := letterSearch{source: source, filter: &f, last: f.After}
	if err := checkFilter(&f.FailureFilter); err != nil {
		return s.page, err
	}
	id, from, err := f.start()
	if err != nil {
		return s.page, err
	}
	if id != "" && from >= 0 {
		a, err := source.Action(ctx, id)
		if err != nil && (f.Action != "" || !errors.Is(err, bulk.ErrNotFound)) {
			return s.page, err
		}
		if full, err := s.read(ctx, &a, from); err != nil || full || f.Action != "" {
			return s.page, err
		}
	}
	if f.Action == "" {
		err = s.readAll(ctx, id)
	}
	return s.page, err
}

// start returns the action to begin with, "" for the first of all, and the index; -1 if the action is done.
func (f *LetterFilter) start() (id string, from int64, err error) {
	if f.After == "" {
		return f.Action, 0, nil
	}
	id, index, err := bulk.ParseJobID(f.After)
	switch {
	case err != nil || f.Action != "" && id != f.Action:
		return "", 0, &ChangeError{"after", "want the next of the page before"}
	case index == math.MaxInt64:
		return id, -1, nil
	}
	return id, index + 1, nil
}

// letterSearch is a page of letters that is being collected.
type letterSearch struct {
	source LetterSource
	filter *LetterFilter
	page   Letters
	last   string // the id of the last job that was looked at
	reads  int
	// looked and bytes are of the payloads that were looked at, and of those of the page.
	looked, bytes int
}

// readAll reads the letters of the actions after one.
func (s *letterSearch) readAll(ctx context.Context, after string) error {
	actions, err := s.source.Actions(ctx, bulk.ActionFilter{
		Tenant: s.filter.Tenant, Callee: cmp.Or(s.filter.Callee, s.filter.Type, s.filter.Target), After: after, Look: MaxLetterActions,
	})
	further, more := errors.AsType[*bulk.LookError](err)
	if err != nil && !more {
		return err
	}
	for i := range actions {
		if full, err := s.read(ctx, &actions[i], 0); err != nil || full {
			return err
		}
	}
	if more {
		s.page.Next = bulk.JobID(further.After, math.MaxInt64)
	}
	return nil
}

// read adds the letters of an action from an index on, and reports whether the page is full. The action may
// have been forgotten.
func (s *letterSearch) read(ctx context.Context, a *bulk.Action, from int64) (full bool, err error) {
	f := s.filter
	for more := f.shows(a); more; {
		if s.reads == letterReads || s.looked >= letterBytes || s.bytes >= bulk.MaxPageBytes {
			s.page.Next = s.last
			return true, nil
		}
		want := letterPage
		if !f.Selects() {
			want = f.Limit - len(s.page.Found) + 1
		}
		letters, err := s.source.DeadLetters(ctx, a.ID, from, want)
		if errors.Is(err, bulk.ErrNotFound) && f.Action == "" {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		bytes := 0
		for i := range letters {
			bytes += len(letters[i].Payload)
			if !s.add(&letters[i], a) {
				s.page.Next = s.last
				return true, nil
			}
			from = letters[i].Index + 1
		}
		s.reads, s.looked = s.reads+1, s.looked+bytes
		more = len(letters) == want || bytes >= bulk.MaxPageBytes
	}
	if a.ID != "" {
		s.last = bulk.JobID(a.ID, math.MaxInt64)
	}
	return false, nil
}

// shows reports whether letters of an action may be in the list.
func (f *LetterFilter) shows(a *bulk.Action) bool {
	is := Change{Tenant: f.Tenant, Type: f.Type, Target: f.Target, Callee: f.Callee}
	return mayHaveFailed(&f.FailureFilter, a) && is.of(a) && (f.Sees == nil || f.Sees(a.Tenant))
}

// add looks at a letter, and returns false if the page has no place for it.
func (s *letterSearch) add(l *bulk.DeadLetter, a *bulk.Action) bool {
	if s.filter.Match(l) {
		if len(s.page.Found) == s.filter.Limit || s.bytes >= bulk.MaxPageBytes {
			return false
		}
		s.page.Found = append(s.page.Found, Letter{*l, &a.Spec})
		s.bytes += len(l.Payload)
	}
	s.last = bulk.JobID(a.ID, l.Index)
	return true
}

// Replay runs the dead letters of a finished action, or of a stream, again, in a new action with
// the id "{id}.replay-{n}" and Spec.ReplayOf set; a long id is cut and has a digest. Those that the
// filter does not select stay. The dead letters are removed once the new action is sealed. A call that was
// interrupted can be repeated: it continues where it stopped, and with another filter it first completes the replay that
// was interrupted. Of a stream that has not finished, it runs those that precede the first job that has not
// ended: the others can be replayed later. A wrong field of the filter is a *ChangeError.
func (e *Engine) Replay(ctx context.Context, id string, only bulk.FailureFilter) (bulk.Action, error) {
	if err := checkFilter(&only); err != nil {
		return bulk.Action{}, err
	}
	only = normalFilter(only)
	for {
		again, err := e.replayNext(ctx, id, only)
		if err != nil || partOf(&again) == only {
			return again, err
		}
	}
}

// partOf returns which dead letters a replay runs again.
func partOf(a *bulk.Action) bulk.FailureFilter {
	if a.ReplayPart == nil {
		return bulk.FailureFilter{}
	}
	return a.ReplayPart.FailureFilter
}

// replayNext makes the next replay of an action: the one that was interrupted, or else that of the
// dead letters that a filter selects.
func (e *Engine) replayNext(ctx context.Context, id string, only bulk.FailureFilter) (bulk.Action, error) {
	old, err := e.store.Action(ctx, id)
	if err != nil {
		return old, err
	}
	replayed := bulk.Transition{Kind: bulk.Replayed, From: uint64(old.Replays)}
	if _, err := old.Apply(replayed, old.FinishedAt); err != nil {
		return old, err
	}
	part := bulk.ReplayPart{FailureFilter: only, Below: 0}
	if part.Below, err = e.ended(ctx, &old); err != nil {
		return old, err
	}
	again, err := e.store.Action(ctx, bulk.ReplayID(id, old.Replays+1))
	if errors.Is(err, bulk.ErrNotFound) || err == nil && again.ReplayOf != id {
		again, err = e.createReplay(ctx, &old, part)
	}
	if err != nil {
		return again, err
	}
	if again.ReplayPart != nil {
		part = *again.ReplayPart
	}
	if again.ReplayPart == nil || again.Status == bulk.Created {
		var below int64
		if again.Total, below, err = e.resend(ctx, &again, part); err != nil {
			return again, err
		}
		if again.ReplayPart == nil {
			replayed.Total = below
		}
	}
	if again.Status == bulk.Created {
		if again, err = e.Seal(ctx, again.ID, again.Total); err != nil {
			return again, err
		}
	}
	if again.ReplayPart != nil && !again.EnteredAt.IsZero() { // else it was canceled before it had all of them
		if err := e.dropLetters(ctx, id, part); err != nil {
			return again, err
		}
	}
	if _, err = e.store.Transition(ctx, id, replayed); errors.Is(err, bulk.ErrNoChange) {
		err = nil // by another call
	}
	return again, err
}

// createReplay creates the next replay of an action's dead letters, if a part has any.
func (e *Engine) createReplay(ctx context.Context, old *bulk.Action, part bulk.ReplayPart) (again bulk.Action, err error) {
	some, err := e.countLetters(ctx, old.ID, part, 1)
	if err != nil {
		return *old, err
	}
	if some == 0 {
		return *old, &bulk.TransitionError{ID: old.ID, From: old.Status, Why: "it has no dead letters to replay"}
	}
	spec := old.Spec
	spec.ID, spec.ReplayOf, spec.ReplayPart, spec.Stream = bulk.ReplayID(old.ID, old.Replays+1), old.ID, nil, false
	if part.Selects() {
		spec.ReplayPart = &part
	}
	if err := e.completeTarget(ctx, &spec); err != nil {
		return *old, err
	}
	again, _, err = e.create(ctx, spec, linksOf(old.Trace)...)
	if errors.As(err, new(*bulk.ExistsError)) { // another call has created it, or somebody an action with its id
		if made, _ := e.store.Action(ctx, spec.ID); made.ReplayOf == old.ID {
			return made, nil
		}
	}
	return again, err
}

// resend appends the dead letters of a part to their replay. If an interrupted call has sealed the replay, it
// has only the first of them. It returns how many the replay has, and the index below which they were.
func (e *Engine) resend(ctx context.Context, again *bulk.Action, part bulk.ReplayPart) (sent, below int64, err error) {
	for letters, err := range e.selected(ctx, again.ReplayOf, part, replayBatch) {
		if err != nil {
			return sent, below, err
		}
		if again.Status != bulk.Created {
			letters = letters[:min(int64(len(letters)), again.Received-sent)]
		}
		if len(letters) == 0 {
			break
		}
		payloads := make([][]byte, len(letters))
		for i, letter := range letters {
			payloads[i], below = letter.Payload, letter.Index+1
		}
		if again.Status == bulk.Created {
			if _, err := e.store.Append(ctx, again.ID, sent, payloads); err != nil {
				return sent, below, err
			}
		}
		sent += int64(len(letters))
	}
	return sent, below, nil
}

// dropLetters removes the dead letters of a part, which have a replay.
func (e *Engine) dropLetters(ctx context.Context, id string, part bulk.ReplayPart) error {
	for letters, err := range e.selected(ctx, id, part, bulk.MaxDropped) {
		if err != nil {
			return err
		}
		drop := bulk.Transition{Kind: bulk.DropLetters}
		for i := range letters {
			drop.Letters = append(drop.Letters, letters[i].Index)
		}
		if _, err := e.store.Transition(ctx, id, drop); err != nil {
			return err
		}
	}
	return nil
}

// countLetters counts the dead letters of a part, and stops after the first ones that are as many as `enough`.
func (e *Engine) countLetters(ctx context.Context, id string, part bulk.ReplayPart, enough int64) (n int64, err error) {
	batch := countBatch
	if !part.Selects() {
		batch = int(min(enough, countBatch))
	}
	for letters, err := range e.selected(ctx, id, part, batch) {
		if n += int64(len(letters)); err != nil || n >= enough {
			return n, err
		}
	}
	return n, nil
}

// selected returns the dead letters of a part, by index, some at a time, of so many that are read at a time. After
// an error there are no more.
func (e *Engine) selected(ctx context.Context, id string, part bulk.ReplayPart, batch int) iter.Seq2[[]bulk.DeadLetter, error] {
	return func(yield func([]bulk.DeadLetter, error) bool) {
		for from := int64(0); ; {
			letters, err := e.store.DeadLetters(ctx, id, from, batch)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(letters) == 0 || letters[0].Index >= part.Below {
				return
			}
			from = letters[len(letters)-1].Index + 1
			letters = slices.DeleteFunc(letters, func(l bulk.DeadLetter) bool { return l.Index >= part.Below || !part.Match(&l) })
			if len(letters) > 0 && !yield(letters, nil) {
				return
			}
		}
	}
}

// ended returns an index below which all jobs of an action have ended: its dead letters there stay
// as they are.
func (e *Engine) ended(ctx context.Context, a *bulk.Action) (int64, error) {
	if !a.FinishedAt.IsZero() {
		return math.MaxInt64, nil
	}
	first, err := e.store.Job(ctx, a.ID, bulk.FirstJob)
	var none *bulk.NoJobError
	if errors.As(err, &none) {
		return none.Received, nil
	}
	return first.Index, err
}

// replayBatch is how many dead letters are read at a time to be sent, and countBatch to be counted; MaxPageBytes
// bounds them too.
const replayBatch, countBatch = 64, 1000

var causes = regexp.MustCompile(`^([1-9]([0-9]{2}|xx)|` + bulk.CauseTimeout + `)?$`)

// checkFilter returns a *ChangeError if a field of the filter is wrong.
func checkFilter(f *bulk.FailureFilter) error {
	switch {
	case !causes.MatchString(f.Cause):
		return &ChangeError{"cause", "want a status such as 503, a class such as 5xx, or " + bulk.CauseTimeout}
	case len(f.Error) > bulk.MaxErrorBytes:
		return &ChangeError{"error", fmt.Sprintf("want at most %d bytes", bulk.MaxErrorBytes)}
	case !f.Until.IsZero() && !f.Until.After(f.Since):
		return &ChangeError{"until", "want a time after since"}
	}
	return nil
}

// normalFilter returns the filter as stores keep it, with times as exact as theirs.
func normalFilter(f bulk.FailureFilter) bulk.FailureFilter {
	f.Since, f.Until = f.Since.UTC().Truncate(time.Millisecond), f.Until.UTC().Truncate(time.Millisecond)
	return f
}

// mayHaveFailed reports whether jobs of an action may have failed in the filter's time.
func mayHaveFailed(f *bulk.FailureFilter, a *bulk.Action) bool {
	return a.Failed > 0 && (a.FinishedAt.IsZero() || !a.FinishedAt.Before(f.Since)) && (f.Until.IsZero() || a.CreatedAt.Before(f.Until))
}
