package pebblekv

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// diskLook is how long a reading of the free space is used.
const diskLook = time.Second

// Disk refuses new work while too little of the disk is free.
type Disk struct {
	fs      vfs.FS
	dir     string
	reserve int64
	full    error

	mu     sync.Mutex
	looked time.Time
	free   uint64
	known  bool
}

// NewDisk returns the disk of a directory. Reserve is the bytes that stay free; 0: no
// reserve. Check wraps full when the reserve is reached.
func NewDisk(fs vfs.FS, dir string, reserve int64, full error) *Disk {
	return &Disk{fs: fs, dir: dir, reserve: reserve, full: full}
}

// Check returns an error if adding that many bytes would use the reserve.
func (d *Disk) Check(now time.Time, adding int) error {
	if d.reserve <= 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looked.IsZero() || now.Sub(d.looked) >= diskLook {
		usage, err := d.fs.GetDiskUsage(d.dir)
		// Where the free space is unknown, writes fail when the disk is full.
		d.known, d.free, d.looked = err == nil, usage.AvailBytes, now
	}
	if !d.known {
		return nil
	}
	if d.free < uint64(d.reserve)+uint64(adding) {
		return fmt.Errorf("%w: %d MiB of the disk are free, %d MiB stay in reserve: free some space, or lower disk_reserve",
			d.full, d.free>>20, d.reserve>>20)
	}
	d.free -= uint64(adding)
	return nil
}
