package topic

import (
	"slices"
	"time"
)

// Two nodes that cannot reach each other, while others reach both, take each other
// for dead. Each would claim the slots of the other as soon as that has claimed them.

// A node that loses a slot to one that it takes for dead waits before it claims it
// anew: disputeMin at first, twice as long each time, at most disputeMax.
const (
	disputeMin = time.Second
	disputeMax = time.Minute
)

// slotDispute is how a node fares with a slot.
type slotDispute struct {
	held   bool          // it had it at the last look
	wait   time.Duration // after the last loss in a row
	notYet time.Time     // it does not claim it before
}

// look notes whether this node has the slot now, and of whom it is.
func (d *slotDispute) look(now time.Time, held bool, holder int32, members membership) {
	switch {
	case held:
		d.held = true
	case holder == 0 || holder == members.self: // it has just claimed it
	case slices.Contains(members.alive, holder):
		*d = slotDispute{}
	case d.held:
		d.held = false
		d.wait = min(max(2*d.wait, disputeMin), disputeMax)
		d.notYet = now.Add(d.wait)
	}
}
