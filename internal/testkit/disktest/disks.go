package disktest

import (
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Full is a disk in memory that reports its free space, and on which writes fail when it is full.
type Full struct {
	vfs.FS
	// Free is the free space, in bytes.
	Free atomic.Int64
}

// NewFull returns a disk with so much free space, in bytes.
func NewFull(free int64) *Full {
	d := &Full{}
	d.Free.Store(free)
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if d.Free.Load() <= 0 && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	}))
	return d
}

// GetDiskUsage implements vfs.FS.
func (d *Full) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(d.Free.Load())}, nil
}

// Syncing is a disk in memory that calls a function before each fsync.
type Syncing struct {
	vfs.FS
	before atomic.Pointer[func(path string) error]
}

// NewSyncing returns a disk over another.
func NewSyncing(memory *vfs.MemFS) *Syncing {
	d := &Syncing{}
	d.FS = errorfs.Wrap(memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if before := d.before.Load(); before != nil && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) {
			return (*before)(op.Path)
		}
		return nil
	}))
	return d
}

// Before sets what is called with the path before each fsync, which fails with its error; nil: nothing.
func (d *Syncing) Before(f func(path string) error) {
	if f == nil {
		d.before.Store(nil)
		return
	}
	d.before.Store(&f)
}
