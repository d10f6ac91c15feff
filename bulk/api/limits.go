package api

import (
	"context"
	"time"
)

// The bounds of the edge.
const (
	// MaxChunk is the most bytes of one chunk of jobs, after decompression.
	MaxChunk = 32 << 20
	// MaxUploads is how many chunks are read and parsed at one time. Each uses its
	// size and a batch of memory, up to twice its size if it is compressed or of
	// unknown length.
	MaxUploads = 8
	// uploadWait is how long a chunk waits before it is refused.
	uploadWait = 10 * time.Second

	// batchJobs and batchBytes bound one append to the engine; a larger chunk is
	// appended in several batches.
	batchJobs  = 10_000
	batchBytes = 4 << 20

	// maxAcknowledgement is the most bytes of an acknowledgement, which has results.
	maxAcknowledgement = 8 << 20
	// maxScheduleBody is the most bytes of a schedule: its jobs, and as much again for
	// white space and the rest.
	maxScheduleBody = 2 << 20

	// maxWatches is how many watches are served at one time.
	maxWatches = 1000
	// watchInterval is the interval of reading a watched action.
	watchInterval = 200 * time.Millisecond
	// heartbeat is the interval of the comments of a watch.
	heartbeat = 15 * time.Second

	// csvPage is how many failures are read at one time for a CSV answer.
	csvPage = 500
	// maxScan is how many actions one page of dead letters reads.
	maxScan = 1000

	// maxSettle bounds returning leases after their request ended.
	maxSettle = 5 * time.Second
)

// gate admits a bounded number at one time; others wait.
type gate struct {
	slots chan struct{}
	wait  time.Duration
}

func newGate(slots int, wait time.Duration) *gate {
	return &gate{slots: make(chan struct{}, slots), wait: wait}
}

// enter returns a function that leaves the gate, or false if none was free in time or
// ctx ended.
func (g *gate) enter(ctx context.Context) (leave func(), ok bool) {
	leave = func() { <-g.slots }
	select {
	case g.slots <- struct{}{}:
		return leave, true
	default:
	}
	if g.wait <= 0 {
		return nil, false
	}
	timer := time.NewTimer(g.wait)
	defer timer.Stop()
	select {
	case g.slots <- struct{}{}:
		return leave, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}
