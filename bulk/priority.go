package bulk

import "time"

// Priority orders actions: the highest goes first. It is, in milliseconds,
//
//	-now + base_priority + ALPHA · (-1 + total / max(1, total - done))
//
// where now is when the action entered the fair queue: older actions first, then the
// tenant's base priority, and a boost for actions with few jobs left (shortest job
// first). The boost is 0 at the start, ALPHA at one half, and
// ALPHA · (total-1) when a single job is left.
func Priority(enteredAt time.Time, basePriority, total, done int64, alpha time.Duration) float64 {
	left := max(1, total-done)
	boost := float64(alpha.Milliseconds()) * (-1 + float64(total)/float64(left))
	return -float64(enteredAt.UnixMilli()) + float64(basePriority) + boost
}
