package engine

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// TickAt returns the last tick that is not after now, and its index. Ticks are at the
// opening, which has index 0, and then every interval; ok is false before the opening.
// Times are to the millisecond, and the interval is at least 1 ms.
func TickAt(opening time.Time, interval time.Duration, now time.Time) (tick time.Time, index int64, ok bool) {
	first, every := opening.UnixMilli(), max(interval.Milliseconds(), 1)
	since := now.UnixMilli() - first
	if since < 0 {
		return time.Time{}, 0, false
	}
	index = since / every
	return time.UnixMilli(first + index*every).UTC(), index, true
}

// NextTick returns the first tick after now: before the opening, that is the opening.
func NextTick(opening time.Time, interval time.Duration, now time.Time) time.Time {
	tick, _, ok := TickAt(opening, interval, now)
	if !ok {
		return time.UnixMilli(opening.UnixMilli()).UTC()
	}
	return tick.Add(max(interval.Truncate(time.Millisecond), time.Millisecond))
}

// unbounded is a capacity that no room reaches, and that a float64 holds exactly.
const unbounded = 1 << 52

// parkTerms lets in a batch at each tick. A batch belongs to the last tick; From keeps it
// from being called earlier if the store's clock jumps back. If no Expire came until half
// of the stay is over, the batch lapses, so that no visit ends right after the call.
func parkTerms(t *room.Terms, r *Room, now time.Time) {
	s := &r.Settings
	opening := r.Opening()
	tick, _, ok := TickAt(opening, s.Interval, now)
	if !ok {
		tick = opening
	}
	t.Capacity, t.Calls = unbounded, r.Limit()
	t.TTL = s.Stay
	t.Tick = tick.UnixMilli()
	t.From = tick
	if late := tick.Add(s.Stay / 2); t.Until.IsZero() || late.Before(t.Until) {
		t.Until = late
	}
}
