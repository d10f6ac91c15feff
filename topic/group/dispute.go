package group

import (
	"slices"
	"time"
)

// Two nodes that cannot reach each other, while the other nodes reach both, each take
// the other for dead. Without a wait, each would claim the other's slots right after the
// other has claimed them.

// A node that loses a slot to a node that it takes for dead waits before it claims the
// slot again: disputeMin at first, twice as long each time, at most disputeMax.
const (
	disputeMin = time.Second
	disputeMax = time.Minute
)

// slotDispute is a node's history with a slot.
type slotDispute struct {
	held   bool          // the node owned it at the last look
	wait   time.Duration // after the last of several losses in a row
	notYet time.Time     // earliest time of the next claim
}

// look records whether this node owns the slot now, and which node holds it.
func (d *slotDispute) look(now time.Time, held bool, holder int32, members membership) {
	switch {
	case held:
		d.held = true
	case holder == 0 || holder == members.self: // it was just claimed
	case slices.Contains(members.alive, holder):
		*d = slotDispute{}
	case d.held:
		d.held = false
		d.wait = min(max(2*d.wait, disputeMin), disputeMax)
		d.notYet = now.Add(d.wait)
	}
}
