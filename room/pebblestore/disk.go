package pebblestore

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/room"
)

// diskLook is how long one look at the disk's free space holds.
const diskLook = time.Second

// disk refuses new work while too little of the disk is free.
type disk struct {
	fs      vfs.FS
	dir     string
	reserve int64

	mu     sync.Mutex
	looked int64 // in milliseconds
	seen   bool
	free   uint64
	known  bool
}

// check returns room.ErrFull if adding bytes would reach into the reserve.
func (d *disk) check(now int64, adding int) error {
	if d.reserve <= 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.seen || now-d.looked >= diskLook.Milliseconds() {
		usage, err := d.fs.GetDiskUsage(d.dir)
		// Where free space cannot be told, the disk itself says when it is full.
		d.known, d.free, d.looked, d.seen = err == nil, usage.AvailBytes, now, true
	}
	if !d.known {
		return nil
	}
	if d.free < uint64(d.reserve)+uint64(adding) {
		return fmt.Errorf("%w: %d MiB of the disk are free, %d MiB stay in reserve: free some space, or lower disk_reserve",
			room.ErrFull, d.free>>20, d.reserve>>20)
	}
	d.free -= uint64(adding)
	return nil
}

// pebbleLogger hands Pebble's messages to slog. Pebble calls Fatalf when it
// cannot go on; commit turns the panic into room.ErrBroken.
type pebbleLogger struct{ log *slog.Logger }

// Infof drops what Pebble says of its daily work.
func (l pebbleLogger) Infof(string, ...any) {}

// Errorf logs an error.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf logs an error and panics.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.log.Error("pebble: " + fmt.Sprintf(format, args...))
	panic(fmt.Sprintf(format, args...))
}
