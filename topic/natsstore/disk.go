package natsstore

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
)

// diskLook is how long one look at the disk's free space holds.
const diskLook = time.Second

// disk refuses writes while too little of the disk is free.
type disk struct {
	dir     string
	reserve int64

	mu     sync.Mutex
	looked time.Time
	free   uint64
	known  bool
}

// check returns topic.ErrFull if adding bytes would reach into the reserve.
func (d *disk) check(now time.Time, adding int) error {
	if d.reserve < 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looked.IsZero() || now.Sub(d.looked) >= diskLook {
		usage, err := vfs.Default.GetDiskUsage(d.dir)
		// Where free space cannot be told, the engine's timeout tells.
		d.known, d.free, d.looked = err == nil, usage.AvailBytes, now
	}
	if !d.known {
		return nil
	}
	if d.free < uint64(d.reserve)+uint64(adding) {
		return fmt.Errorf("%w: %d MiB of the disk are free, %d MiB stay in reserve: free some space, or lower the reserve",
			topic.ErrFull, d.free>>20, d.reserve>>20)
	}
	d.free -= uint64(adding)
	return nil
}
