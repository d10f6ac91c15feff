package room

import "time"

// unbounded is a capacity that no room reaches, and that a double holds exactly.
const unbounded = 1 << 52

// parkTerms lets in a batch at each tick. A batch belongs to the tick that was
// last; From keeps it from being called before, should the store's clock have
// jumped back. If nobody looked for so long that half of the stay is over, the
// batch lapses, so that nobody is called whose visit would end at once.
func parkTerms(t *Terms, r *Room, now time.Time) {
	s := &r.Settings
	opening := r.Opening()
	tick, _, ok := TickAt(opening, s.Interval, now)
	if !ok {
		tick = opening
	}
	t.Capacity, t.Calls = unbounded, s.Batch
	t.TTL = s.Stay
	t.Tick = tick.UnixMilli()
	t.From = tick
	if late := tick.Add(s.Stay / 2); t.Until.IsZero() || late.Before(t.Until) {
		t.Until = late
	}
}
