package engine

import "testing"

// TestNextWriteWaitsForTheCallersOfTheLast: the next caller leads when all callers of a write have returned.
func TestNextWriteWaitsForTheCallersOfTheLast(t *testing.T) {
	next := &enqueuer{turn: make(chan bool, 1)}
	s, in := &streams{}, &intake{busy: true, waiting: []*enqueuer{next}}
	in.out.Store(2)
	s.returned(in)
	if next.leads {
		t.Error("a caller leads while one of the last write has yet to return")
	}
	s.returned(in)
	if !next.leads || len(next.turn) != 1 || !in.busy {
		t.Error("all callers of the last write have returned: want the one that waits to lead")
	}
	in.waiting = nil
	in.out.Store(1)
	if s.returned(in); in.busy {
		t.Error("nobody waits, but the intake is busy")
	}
}
