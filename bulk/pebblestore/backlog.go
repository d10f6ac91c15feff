package pebblestore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// changed records that the place of an action among those that wait may have changed: that it
// opened or closed, and how many of its jobs wait or are done, or the tags of its line.
func (s *Store) changed(a *action) {
	if !a.stale {
		a.stale = true
		s.stale = append(s.stale, a)
	}
}

// requeue brings lines up to date, and virtual times.
func (s *Store) requeue() {
	for _, a := range s.stale {
		a.stale = false
		if s.actions[a.number] == a {
			s.queue(a)
		}
	}
	clear(s.stale)
	s.stale = s.stale[:0]
	s.lines.Advance(s.virtual, func(name string) float64 { return s.types[name].virtual })
}

func (s *Store) queue(a *action) {
	jobs := int64(0)
	if a.open() {
		jobs = a.waiting()
	}
	priority := bulk.Priority(a.record.EnteredAt, a.line.tenant.settings.BasePriority, a.record.Size(), a.record.Done(), max(0, s.config.Alpha))
	s.lines.Set(&a.queued, a.holding.of, a.line.tags(), a.spec.Class, priority, jobs)
}

// unqueue takes an action out of lines.
func (s *Store) unqueue(a *action) {
	s.lines.Set(&a.queued, a.holding.of, a.line.tags(), a.spec.Class, 0, 0)
}

func (l *line) tags() bulk.LineTags {
	return bulk.LineTags{Taken: l.tenant.taken, TypeTaken: l.taken, Granted: l.granted}
}

// occupy counts n more jobs of an action that are ready or in flight.
func (s *Store) occupy(a *action, n int64) {
	h := a.holding
	switch before := h.jobs; {
	case n == 0:
	case before+n == 0:
		delete(s.held, h)
	case before == 0:
		s.held[h] = struct{}{}
	}
	h.jobs += n
}

// Backlog implements bulk.Store.
func (s *Store) Backlog(_ context.Context, most int) (bulk.Backlog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	window := s.window(now)
	s.rest(window)
	s.findRates(window)
	s.requeue()
	b := bulk.Backlog{
		Now:        now,
		WindowEnds: bulk.WindowStart(window+1, s.config.Window),
		Left:       s.left(&s.global, now),
		Virtual:    s.virtual,
		Types:      make(map[string]bulk.TypeState, len(s.types)),
		Targets:    map[string]int64{},
		Found:      s.found(),
		Held:       make(map[bulk.Holder]int64, len(s.held)),
		NonReady:   s.nonReady,

		Outbox: int64(s.outbox.next - s.outbox.first), OldestEvent: s.outbox.oldest,
	}
	ends := func(c *counter) { b.WindowEnds = minTime(b.WindowEnds, s.ends(c)) }
	ends(&s.global)
	for name, k := range s.types {
		jobs, lines := s.lines.Waiting(name)
		b.Types[name] = bulk.TypeState{
			Ready: int64(k.ready.len()), InFlight: k.inFlight, Waiting: jobs, Lines: lines,
			Finished: k.finished, Busy: k.busyUntil(now), Virtual: k.virtual, Idle: k.idle,
		}
	}
	for name, t := range s.targets {
		if left := s.leftOf(t, now); left != bulk.NoLimit {
			b.Targets[name] = left
		}
		ends(&t.counter)
	}
	for h := range s.held {
		b.Held[h.of] = h.jobs
	}
	l := backlogLines{s: s, b: &b, now: now, window: window}
	l.add(most)
	return b, s.state
}

// backlogLines adds lines to a backlog.
type backlogLines struct {
	s       *Store
	b       *bulk.Backlog
	now     time.Time
	window  int64
	waiting []waiting
}

// waiting is an action that is added, for itself or for a rest.
type waiting struct {
	*action
	rest bulk.Rest
}

func (l *backlogLines) add(most int) {
	if s := l.s; most <= 0 || s.lines.Actions() <= most {
		s.lines.All(func(q *bulk.Queued) { l.waiting = append(l.waiting, waiting{s.actions[q.Number], bulk.NoRest}) })
	} else {
		l.first(most)
	}
	slices.SortFunc(l.waiting, func(x, y waiting) int { return cmp.Compare(x.number, y.number) })
	for _, w := range l.waiting {
		l.addAction(w)
	}
	for _, w := range l.waiting {
		w.line.listed = 0
	}
}

// first adds the actions that are served first.
func (l *backlogLines) first(most int) {
	s := l.s
	if l.window != s.parked {
		s.parked = l.window
		s.lines.UnparkAll()
	}
	usedUp := map[*tenant]bool{}
	able := func(target string) bool { return !l.atMost(target) }
	ableOf := func(q *bulk.Queued) bool {
		a := s.actions[q.Number]
		if s.left(&a.line.tenant.counter, l.now) > 0 {
			return a.limiter.allowance(l.window) > 0
		}
		usedUp[a.line.tenant] = true
		return false
	}
	listed := 0
	s.lines.First(most, able, ableOf, func(q *bulk.Queued, rest bulk.Rest) {
		l.waiting = append(l.waiting, waiting{s.actions[q.Number], rest})
		if rest == bulk.NoRest {
			listed++
		}
	})
	l.b.More = listed < s.lines.Actions()
	l.b.Tenants = s.weigh(l.window)
	for t := range usedUp {
		l.park(t, most)
	}
}

func (l *backlogLines) atMost(target string) bool {
	left, limited := l.b.Targets[target]
	return limited && left <= 0
}

// park leaves a tenant whose limit is used up out of the backlogs until one of its jobs ends,
// or the next window. The first `most` of them are shown once, without their actions. With a
// pace, windows are short, and there is nothing to gain.
func (l *backlogLines) park(t *tenant, most int) {
	ends := l.s.ends(&t.counter)
	l.b.WindowEnds = minTime(l.b.WindowEnds, ends)
	if t.counter.limit.Window(l.s.config.Window) == l.s.config.Window {
		l.s.lines.Park(t.name)
	}
	for _, line := range t.lines {
		if len(l.b.Lines) < most {
			l.b.Lines = append(l.b.Lines, bulk.Line{Tenant: t.name, Type: line.jobType.name, Settings: t.settings})
		}
	}
}

// weigh returns the weights of some tenants that wait, as they were at its first call in the
// window.
func (s *Store) weigh(window int64) map[string]float64 {
	if s.weights != nil && s.weighed == window {
		return s.weights
	}
	s.weighed, s.weights = window, map[string]float64{}
	for _, name := range s.lines.Tenants(bulk.MaxTenants) {
		s.weights[name] = s.tenants[name].settings.Weight
	}
	return s.weights
}

func (l *backlogLines) addAction(w waiting) {
	line, t := w.line, w.line.tenant
	at := line.listed - 1
	if at < 0 || w.rest == bulk.RestOfLines {
		at = len(l.b.Lines)
		l.b.Lines = append(l.b.Lines, bulk.Line{
			Tenant: t.name, Type: line.jobType.name, Settings: t.settings, Rest: w.rest == bulk.RestOfLines,
			Taken: t.taken, TypeTaken: line.taken, Granted: line.granted, Left: l.s.left(&t.counter, l.now),
		})
		l.b.WindowEnds = minTime(l.b.WindowEnds, l.s.ends(&t.counter))
	}
	if w.rest != bulk.RestOfLines {
		line.listed = at + 1
	}
	l.b.Lines[at].Waiting = append(l.b.Lines[at].Waiting, bulk.Waiting{
		Number: w.number, Class: w.spec.Class, EnteredAt: w.record.EnteredAt,
		Total: w.record.Size(), Done: w.record.Done(), Jobs: w.action.waiting(),
		Target: w.target.name, Left: w.limiter.allowance(l.window), Rest: w.rest != bulk.NoRest,
	})
}
