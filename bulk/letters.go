package bulk

import (
	"cmp"
	"context"
	"errors"
	"math"
)

// The bounds of one call of FindLetters: it looks at MaxLetterActions actions, and stops reading after
// letterReads reads or letterBytes of payloads. letterPage is how many letters it reads at a time to look
// for some.
const (
	MaxLetterActions = 2000
	letterReads      = 200
	letterBytes      = 8 * MaxPageBytes
	letterPage       = 500
)

// LetterFilter selects dead letters of actions.
type LetterFilter struct {
	FailureFilter
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
	DeadLetter
	Spec *Spec
}

// Letters is a page of dead letters, in the order of their actions' creation and then by index.
type Letters struct {
	Found []Letter
	// Next is the After of the next page; empty if there are no more. A page may be empty and have a Next.
	Next string
}

// LetterSource is what FindLetters reads: an Engine, or a part of it.
type LetterSource interface {
	Action(ctx context.Context, id string) (Action, error)
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]DeadLetter, error)
}

// FindLetters returns a page of dead letters: at most Limit, with payloads of MaxPageBytes and one more. It
// looks at a bounded part of what there is. A wrong field is a *ChangeError.
func FindLetters(ctx context.Context, source LetterSource, f LetterFilter) (Letters, error) {
	s := letterSearch{source: source, filter: &f, last: f.After}
	if err := f.check(); err != nil {
		return s.page, err
	}
	id, from, err := f.start()
	if err != nil {
		return s.page, err
	}
	if id != "" && from >= 0 {
		a, err := source.Action(ctx, id)
		if err != nil && (f.Action != "" || !errors.Is(err, ErrNotFound)) {
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
	id, index, err := ParseJobID(f.After)
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
	actions, err := s.source.Actions(ctx, ActionFilter{
		Tenant: s.filter.Tenant, Callee: cmp.Or(s.filter.Callee, s.filter.Type, s.filter.Target), After: after, Look: MaxLetterActions,
	})
	further, more := errors.AsType[*LookError](err)
	if err != nil && !more {
		return err
	}
	for i := range actions {
		if full, err := s.read(ctx, &actions[i], 0); err != nil || full {
			return err
		}
	}
	if more {
		s.page.Next = JobID(further.After, math.MaxInt64)
	}
	return nil
}

// read adds the letters of an action from an index on, and reports whether the page is full. The action may
// have been forgotten.
func (s *letterSearch) read(ctx context.Context, a *Action, from int64) (full bool, err error) {
	f := s.filter
	for more := f.shows(a); more; {
		if s.reads == letterReads || s.looked >= letterBytes || s.bytes >= MaxPageBytes {
			s.page.Next = s.last
			return true, nil
		}
		want := letterPage
		if !f.Selects() {
			want = f.Limit - len(s.page.Found) + 1
		}
		letters, err := s.source.DeadLetters(ctx, a.ID, from, want)
		if errors.Is(err, ErrNotFound) && f.Action == "" {
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
		more = len(letters) == want || bytes >= MaxPageBytes
	}
	if a.ID != "" {
		s.last = JobID(a.ID, math.MaxInt64)
	}
	return false, nil
}

// shows reports whether letters of an action may be in the list.
func (f *LetterFilter) shows(a *Action) bool {
	is := Change{Tenant: f.Tenant, Type: f.Type, Target: f.Target, Callee: f.Callee}
	return f.mayHave(a) && is.of(a) && (f.Sees == nil || f.Sees(a.Tenant))
}

// add looks at a letter, and returns false if the page has no place for it.
func (s *letterSearch) add(l *DeadLetter, a *Action) bool {
	if s.filter.Match(l) {
		if len(s.page.Found) == s.filter.Limit || s.bytes >= MaxPageBytes {
			return false
		}
		s.page.Found = append(s.page.Found, Letter{*l, &a.Spec})
		s.bytes += len(l.Payload)
	}
	s.last = JobID(a.ID, l.Index)
	return true
}
