package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// The bounds of the edge.
const (
	// MaxChunk is the most bytes of one chunk of jobs, after decompression.
	MaxChunk = 32 << 20
	// maxPayloads is the most bytes of all payloads of one chunk. Those of CSV repeat the
	// header, so without a bound a chunk could take a place for hours and fill the store.
	maxPayloads = 32 * MaxChunk
	// defaultUploadMemory is the default of WithUploadMemory.
	defaultUploadMemory = 256 << 20
	// MaxUploads is how many chunks are parsed and stored at one time. Each uses a batch
	// of memory besides its size.
	MaxUploads = 8
	// uploadWait is how long a chunk waits for memory, and then to be stored, before it
	// is refused.
	uploadWait = 10 * time.Second
	// firstPiece and lastPiece bound how much memory a chunk takes at a time.
	firstPiece = 64 << 10
	lastPiece  = 1 << 20
	// speedAfter is added to the time of a chunk that is compared with others.
	speedAfter = 5 * time.Second
	// interruptAgain is how often a chunk that must give way is interrupted: it may
	// just have begun another read.
	interruptAgain = 50 * time.Millisecond

	// batchJobs and batchBytes bound one append to the engine; a larger chunk is
	// appended in several batches.
	batchJobs  = 10_000
	batchBytes = 4 << 20

	// maxAcknowledgement is the most bytes of an acknowledgement, which has results.
	maxAcknowledgement = 8 << 20
	// maxScheduleBody is the most bytes of a schedule: its jobs, and as much again for
	// white space and the rest.
	maxScheduleBody = 2 << 20

	// maxNewJob is the most bytes of a request to enqueue a job: its payload and the rest.
	maxNewJob = bulk.MaxPayloadBytes + 64<<10

	// maxWatches is how many watches are served at one time.
	maxWatches = 1000
	// watchInterval is the interval of reading a watched action.
	watchInterval = 200 * time.Millisecond
	// heartbeat is the interval of the comments of a watch.
	heartbeat = 15 * time.Second

	// csvPage is how many failures are read at one time for a CSV answer.
	csvPage = 500
	// maxScan is how many actions one page of actions looks at.
	maxScan = 10_000

	// maxSettle bounds returning leases after their request ended.
	maxSettle = 5 * time.Second
)

// gate admits a bounded number at one time; others wait. A free place goes to the tenant
// that has the fewest, of those that wait.
type gate struct {
	wait time.Duration

	mu      sync.Mutex
	free    int
	held    map[string]int // by tenant
	waiting []*waiter      // in the order of their arrival
}

type waiter struct {
	tenant   string
	admitted chan struct{}
}

func newGate(places int, wait time.Duration) *gate {
	return &gate{free: places, wait: wait, held: map[string]int{}}
}

// enter returns a function that leaves the gate, or false if no place was free in time or
// ctx ended.
func (g *gate) enter(ctx context.Context, tenant string) (leave func(), ok bool) {
	w := &waiter{tenant: tenant, admitted: make(chan struct{})}
	leave = func() { g.leave(tenant) }
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.admit()
	g.mu.Unlock()
	timer := time.NewTimer(g.wait)
	defer timer.Stop()
	select {
	case <-w.admitted:
		return leave, true
	default:
	}
	select {
	case <-w.admitted:
		return leave, true
	case <-timer.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, w)
	if at < 0 { // it was admitted at the last moment
		return leave, true
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	return nil, false
}

func (g *gate) leave(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	if g.held[tenant]--; g.held[tenant] == 0 {
		delete(g.held, tenant)
	}
	g.admit()
}

// admit fills the free places. g.mu must be held.
func (g *gate) admit() {
	for g.free > 0 && len(g.waiting) > 0 {
		next := 0
		for i, w := range g.waiting {
			if g.held[w.tenant] < g.held[g.waiting[next].tenant] {
				next = i
			}
		}
		w := g.waiting[next]
		g.waiting = slices.Delete(g.waiting, next, next+1)
		g.free--
		g.held[w.tenant]++
		close(w.admitted)
	}
}
