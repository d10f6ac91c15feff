package move

import (
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Phase is what a move is at.
type Phase string

// The phases of a move, in their order.
const (
	Looking   Phase = "looking"
	Copying   Phase = "copying"
	Finishing Phase = "finishing" // the source is fenced
	Opening   Phase = "opening"   // it is decided
	Done      Phase = "done"
)

// Progress is how far a move is.
type Progress struct {
	Phase Phase
	// Bytes and Entries were copied by this mover; Total is what there was to copy
	// when it began, in bytes.
	Bytes, Entries, Total int64
	// Pause is how long the source has been fenced.
	Pause time.Duration
}

// Progress returns how far it is. It may be called at any time.
func (m *Mover) Progress() Progress {
	p := Progress{Phase: m.phase.Load().(Phase), Bytes: m.bytes.Load(), Entries: m.records.Load(), Total: m.total.Load()}
	if since := m.fenced.Load(); since != 0 {
		p.Pause = time.Duration(time.Now().UnixNano() - since)
	}
	return p
}

// Result is what a move has come to.
type Result struct {
	Inventory topic.Inventory
	Status    topic.ImportStatus
	// Bytes and Entries were copied by this mover.
	Bytes, Entries int64
	// Pause is how long neither has served. Before says that all was done before.
	Pause  time.Duration
	Before bool
}
