package natsstore

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// diskPoll is how often the free space is checked.
const diskPoll = time.Second

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
func (d *disk) check(now time.Time, adding int) error { return d.keep(now, adding, d.reserve) }

// checkSmall is check for metadata and entries without data, which are needed to remove
// records and topics: they may use half of the reserve.
func (d *disk) checkSmall(now time.Time, adding int) error { return d.keep(now, adding, d.reserve/2) }

// keep returns topic.ErrFull if adding bytes would leave less than a reserve.
func (d *disk) keep(now time.Time, adding int, reserve int64) error {
	if d.reserve < 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looked.IsZero() || now.Sub(d.looked) >= diskPoll {
		_, free, err := volume(d.dir)
		d.known, d.free, d.looked = err == nil, free, now
	}
	if !d.known {
		return nil
	}
	if d.free < uint64(reserve)+uint64(adding) {
		return fmt.Errorf("%w: %d MiB of the disk are free, %d MiB stay in reserve: free some space, or lower the reserve",
			topic.ErrFull, d.free>>20, reserve>>20)
	}
	d.free -= uint64(adding)
	return nil
}

// Volume implements [topic.Volume].
func (s *Store) Volume() (total, free int64, err error) {
	size, left, err := volume(s.disk.dir)
	return int64(size), int64(left), err
}
