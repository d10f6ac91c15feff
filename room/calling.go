package room

import "time"

// The rules in this file are pure, and stores apply them inside their operations.
// Lua scripts repeat them to stay atomic: redisstore/lua/call.lua (Callable, Lapsed,
// Silent, ServiceAway, and Next of lanes.go), expire.lua (Callable, PlaceEnd, ServiceAway, Tends), enter.lua (MayEnter),
// claim.lua and ask.lua (PassEnd), renew.lua (Renewable) and room.lua (Event). The
// tables in storetest/rules.go test this file and every store, scripts included. All
// times are milliseconds of the store's clock.

// Batch is the progress of the last tick at which visitors were called.
type Batch struct {
	// Tick is the tick, and Left how many visitors may still be called at it.
	Tick, Left int64
}

// Callable returns how many visitors may be called now, when so many are active and
// the last batch is that one; 0 or less if nobody may be. Expiring reports whether the
// operation is Expire, which alone begins and continues batches. The calls count
// against next; what remains of it when the line or the free slots end lapses.
func (t *Terms) Callable(now, active int64, last Batch, expiring bool) (calls int64, next Batch) {
	if t.Capacity <= 0 || now < millis(t.From) || !before(now, t.Until) {
		return 0, last
	}
	free := t.Capacity - active
	if t.Tick == 0 {
		return free, last
	}
	if !expiring || t.Tick > now || t.Tick < last.Tick {
		return 0, last
	}
	if t.Tick > last.Tick {
		last = Batch{Tick: t.Tick, Left: t.Calls}
	}
	if free <= 0 {
		last.Left = 0
	}
	return min(free, last.Left), last
}

// ServiceAway reports whether the service counts as away, when Expire was last called
// then; 0 means never.
func (t *Terms) ServiceAway(now, expired int64) bool {
	return expired == 0 || now-expired > t.Away.Milliseconds()
}

// Tending is what decides who tends a room.
type Tending struct {
	// Tender is the instance that does; "": none.
	Tender string
	// Expired is when an Expire last acted; 0: never. Ends is when the first claim window or
	// pass ends; 0: nobody is active.
	Expired, Ends int64
	// Last is the last batch.
	Last Batch
}

// Tends reports whether an Expire acts: that of the tender, and that of another once the
// tender has not acted for Tend, or is late by Late with what is due. Next is when an Expire
// of another instance would act, if nothing changes.
func (t *Terms) Tends(now int64, last Tending) (acts bool, next int64) {
	next = last.Expired + t.Tend.Milliseconds()
	if last.Ends != 0 {
		next = min(next, last.Ends+t.Late.Milliseconds())
	}
	if _, batch := t.Callable(now, 0, last.Last, true); batch.Tick != last.Last.Tick {
		next = min(next, t.Tick+t.Late.Milliseconds())
	}
	free := t.Tender == "" || last.Tender == "" || last.Tender == t.Tender || now < last.Expired
	return free || now >= next, next
}

// Lapsed returns the last batch after a visitor has entered a line in which so many
// waited. If nobody did, the ticks until now called nobody: the visitor is too late for them.
func (t *Terms) Lapsed(now, waiting int64, last Batch) Batch {
	if calls, next := t.Callable(now, 0, last, true); waiting == 0 && t.Tick != 0 && calls > 0 {
		return Batch{Tick: next.Tick}
	}
	return last
}

// Silent reports whether a visitor who asked last then is skipped instead of called.
func (t *Terms) Silent(now, asked int64) bool { return now-asked >= t.Abandon.Milliseconds() }

// PlaceEnd returns when a visitor who waits, and asked last then, loses the place.
func (t *Terms) PlaceEnd(asked int64) int64 { return asked + (t.Abandon + t.Grace).Milliseconds() }

// MayEnter returns why a visitor may not enter while so many wait; nil if one may.
func (t *Terms) MayEnter(now, waiting int64) error {
	switch {
	case now < millis(t.EnterFrom):
		return ErrNotOpen
	case !before(now, t.EnterUntil):
		return ErrEnded
	case waiting >= t.MaxWaiting:
		return ErrLineFull
	}
	return nil
}

// ByDraw reports whether the place of a visitor who enters a lane now is decided by lottery:
// lanes but the first are without.
func (t *Terms) ByDraw(now int64, lane int) bool {
	return lane == 0 && !t.DrawUntil.IsZero() && before(now, t.DrawUntil)
}

// PassEnd returns when the pass of a visitor ends who claims or, if passes slide, asks
// now. Tick is the tick at which the visitor was called, 0 if none.
func (t *Terms) PassEnd(now, tick int64) int64 {
	if tick != 0 && !t.Sliding {
		now = tick
	}
	return now + t.TTL.Milliseconds()
}

// Renewable reports whether a pass may be renewed that was renewed so often before.
func (t *Terms) Renewable(renewals int64) bool { return !t.Sliding && renewals < int64(t.Renewals) }

// Event returns the event which tells that a visitor is gone for the reason.
func (r Reason) Event() EventType {
	switch r {
	case Left:
		return VisitorLeft
	case Expired:
		return VisitorExpired
	case Revoked:
		return VisitorRevoked
	}
	return VisitorAbandoned
}

// millis returns a time in milliseconds, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// before reports whether now is before an end; the zero time is never reached.
func before(now int64, end time.Time) bool { return end.IsZero() || now < end.UnixMilli() }
