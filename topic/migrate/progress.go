package migrate

import (
	"time"
)

// Phase is the phase of a migration.
type Phase string

// The phases of a migration, in order.
const (
	Looking   Phase = "looking"
	Copying   Phase = "copying"
	Finishing Phase = "finishing" // the source is fenced
	Opening   Phase = "opening"   // it is decided
	Done      Phase = "done"
)

// Progress is the progress of a migration.
type Progress struct {
	Phase Phase
	// Bytes and Entries were copied by this migrator; Total is the bytes to copy when
	// it began.
	Bytes, Entries, Total int64
	// Pause is how long the source has been fenced.
	Pause time.Duration
}

// Progress returns the present progress. It is safe for concurrent use.
func (m *Migrator) Progress() Progress {
	p := Progress{Phase: m.phase.Load().(Phase), Bytes: m.bytes.Load(), Entries: m.records.Load(), Total: m.total.Load()}
	if since := m.fenced.Load(); since != 0 {
		p.Pause = time.Duration(time.Now().UnixNano() - since)
	}
	return p
}

// Result is the result of a migration.
type Result struct {
	Inventory Inventory
	Status    ImportStatus
	// Bytes and Entries were copied by this migrator.
	Bytes, Entries int64
	// Pause is how long neither side has served. Before reports that the migration had
	// been completed before.
	Pause  time.Duration
	Before bool
}
