package pebblestore

import (
	"context"
	"slices"
	"sync"
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

// backlog is what waits, as Fetch reads it. Its mutex is for Fetch alone and is locked before
// Store.mu: while jobs are divided, Store.mu is held for one question at a time.
type backlog struct {
	mu    sync.Mutex
	fair  *bulk.FairQueue
	held  map[bulk.Holder]int64
	stale []*action // memory for the next Store.stale
	moves []move
}

// move is a change of an action, or of its line or holder.
type move struct {
	queued                *bulk.Queued
	of                    bulk.Holder
	tags                  bulk.LineTags
	priority              float64
	jobs, granted, holder int64
}

// requeue brings the backlog up to date.
func (s *Store) requeue() {
	q := &s.backlog
	s.mu.Lock()
	stale := s.stale
	s.stale = q.stale[:0]
	s.mu.Unlock()
	for stale := range slices.Chunk(stale, holdMost) {
		q.moves = q.moves[:0]
		s.mu.Lock()
		for _, a := range stale {
			q.moves = append(q.moves, s.move(a))
		}
		s.mu.Unlock()
		for i := range q.moves {
			q.take(&q.moves[i])
		}
	}
	clear(stale)
	clear(q.moves)
	q.stale = stale
}

// move returns the present state of an action. One that has left has no jobs.
func (s *Store) move(a *action) move {
	a.stale = false
	m := move{queued: &a.queued, of: a.holding.of, tags: a.line.tags(), granted: a.granted, holder: a.holding.jobs}
	if s.actions[a.number] == a && a.open() {
		m.jobs = a.waiting()
		m.priority = bulk.Priority(a.record.EnteredAt, a.line.tenant.settings.BasePriority, a.record.Size(), a.record.Done(), max(0, s.config.Alpha))
	}
	a.target.waiting += m.jobs - a.waited
	a.waited = m.jobs
	return m
}

func (q *backlog) take(m *move) {
	q.fair.Set(m.queued, m.of, m.tags, m.priority, m.jobs, m.granted)
	if m.holder > 0 {
		q.held[m.of] = m.holder
	} else {
		delete(q.held, m.of)
	}
}

func (l *line) tags() bulk.LineTags {
	return bulk.LineTags{Taken: l.tenant.taken, TypeTaken: l.taken, Granted: l.granted}
}

// occupy counts n more jobs of an action that are ready or in flight.
func (s *Store) occupy(a *action, n int64) {
	a.holding.jobs += n
	s.changed(a)
}

// Fetch implements bulk.Store.
func (s *Store) Fetch(_ context.Context, f func(*bulk.Backlog)) error {
	q := &s.backlog
	q.mu.Lock()
	defer q.mu.Unlock()
	s.requeue()
	b, err := s.limits()
	if err != nil {
		return err
	}
	q.fair.Advance(b.Now, b.Virtual, func(name string) float64 { return b.Types[name].Virtual })
	for name, t := range b.Types {
		t.Waiting, t.Lines = q.fair.Waiting(name)
		b.Types[name] = t
	}
	b.Queue, b.Held = q.fair, q.held
	f(b)
	return nil
}

// limits returns a backlog without the jobs that wait or are held.
func (s *Store) limits() (*bulk.Backlog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	window := s.window(now)
	s.rest(window)
	s.findRates(window)
	b := &bulk.Backlog{
		Now:        now,
		WindowEnds: bulk.WindowStart(window+1, s.config.Window),
		Left:       s.left(&s.global, now),
		Virtual:    s.virtual,
		Types:      make(map[string]bulk.TypeState, len(s.types)),
		Found:      s.found(),
		NonReady:   s.nonReady,

		Outbox: int64(s.outbox.next - s.outbox.first), OldestEvent: s.outbox.oldest,
	}
	bounds := bounds{s: s, b: b, window: window}
	bounds.ends(&s.global)
	b.Bounds = bounds
	for name, k := range s.types {
		b.Types[name] = bulk.TypeState{
			Ready: int64(k.ready.len()), InFlight: k.inFlight,
			Finished: k.finished, Busy: k.busyUntil(now), Virtual: k.virtual, Idle: k.idle,
		}
	}
	return b, s.state
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
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	t := x.s.tenants[name]
	if t == nil { // its actions have ended since
		return bulk.Tenant{}.WithDefaults(), 0, x.b.Now
	}
	return t.settings, x.s.left(&t.counter, x.b.Now), x.ends(&t.counter)
}

func (x bounds) Target(name string) int64 {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	t := x.s.targets[name]
	if t == nil {
		return bulk.NoLimit
	}
	left := x.s.leftOf(t, x.b.Now) // in the present window
	x.ends(&t.counter)
	return left
}

func (x bounds) Limiter(of bulk.Holder) int64 {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if l := x.s.limiters[[2]string{of.Tenant, of.Target}]; l != nil {
		return l.allowance(x.window)
	}
	return bulk.NoLimit
}
