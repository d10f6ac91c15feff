package pebblestore

import (
	"context"
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

// requeue brings the fair queue up to date, and virtual times.
func (s *Store) requeue(now time.Time) {
	for _, a := range s.stale {
		a.stale = false
		if s.actions[a.number] == a {
			s.queue(a)
		}
	}
	clear(s.stale)
	s.stale = s.stale[:0]
	s.fair.Advance(now, s.virtual, func(name string) float64 { return s.types[name].virtual })
}

func (s *Store) queue(a *action) {
	jobs := int64(0)
	if a.open() {
		jobs = a.waiting()
	}
	priority := bulk.Priority(a.record.EnteredAt, a.line.tenant.settings.BasePriority, a.record.Size(), a.record.Done(), max(0, s.config.Alpha))
	s.fair.Set(&a.queued, a.holding.of, a.line.tags(), priority, jobs, a.granted)
}

// unqueue takes an action out of the fair queue.
func (s *Store) unqueue(a *action) {
	s.fair.Set(&a.queued, a.holding.of, a.line.tags(), 0, 0, a.granted)
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

// Fetch implements bulk.Store.
func (s *Store) Fetch(_ context.Context, f func(*bulk.Backlog)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	window := s.window(now)
	s.rest(window)
	s.requeue(now)
	s.findRates(window)
	b := bulk.Backlog{
		Now:        now,
		WindowEnds: bulk.WindowStart(window+1, s.config.Window),
		Left:       s.left(&s.global, now),
		Virtual:    s.virtual,
		Queue:      s.fair,
		Types:      make(map[string]bulk.TypeState, len(s.types)),
		Found:      s.found(),
		Held:       make(map[bulk.Holder]int64, len(s.held)),
		NonReady:   s.nonReady,

		Outbox: int64(s.outbox.next - s.outbox.first), OldestEvent: s.outbox.oldest,
	}
	bounds := bounds{s: s, b: &b, window: window}
	bounds.ends(&s.global)
	b.Bounds = bounds
	for name, k := range s.types {
		jobs, lines := s.fair.Waiting(name)
		b.Types[name] = bulk.TypeState{
			Ready: int64(k.ready.len()), InFlight: k.inFlight, Waiting: jobs, Lines: lines,
			Finished: k.finished, Busy: k.busyUntil(now), Virtual: k.virtual, Idle: k.idle,
		}
	}
	for h := range s.held {
		b.Held[h.of] = h.jobs
	}
	if s.state == nil {
		f(&b)
	}
	return s.state
}

// bounds implements bulk.Bounds.
type bounds struct {
	s      *Store
	b      *bulk.Backlog
	window int64
}

// ends lowers the end of the backlog's window to that of a limit, and returns the latter.
func (x bounds) ends(c *counter) time.Time {
	ends := x.s.ends(c)
	x.b.WindowEnds = minTime(x.b.WindowEnds, ends)
	return ends
}

func (x bounds) Tenant(name string) (settings bulk.Tenant, left int64, ends time.Time) {
	t := x.s.tenants[name]
	return t.settings, x.s.leftOfTenant(t, x.b.Now), x.ends(&t.counter)
}

func (x bounds) Target(name string) int64 {
	t := x.s.targets[name]
	if t == nil {
		return bulk.NoLimit
	}
	left := x.s.leftOf(t, x.b.Now) // in the present window
	x.ends(&t.counter)
	return left
}

func (x bounds) Limiter(of bulk.Holder) int64 {
	if l := x.s.limiters[[2]string{of.Tenant, of.Target}]; l != nil {
		return l.allowance(x.window)
	}
	return bulk.NoLimit
}
