package broker

import (
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/sluice-project/sluice/topic"
)

// index holds the marks of some entries of a log, so that a search in the log starts
// between two neighbors. It is a cache: missing entries are found by binary search,
// and added.
type index struct {
	mu sync.Mutex
	// points are ordered by sequence, at least every bytes of data apart.
	points []point
	every  int64
	// latest is the last entry of the latest read, however near others are: a consumer goes on behind it.
	latest point
}

// point is an entry without its data.
type point struct {
	Sequence uint64
	Mark     topic.Mark
}

const (
	// indexEvery is the initial distance between two points, in bytes of data.
	indexEvery = 256 << 10
	// indexPoints bounds the points; above it, every other one is dropped and the
	// distance between new ones doubles.
	indexPoints = 8192
)

// add adds an entry if it is far enough from the others.
func (x *index) add(entry topic.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sort.Search(len(x.points), func(i int) bool { return x.points[i].Sequence >= entry.Sequence })
	every := max(x.every, indexEvery)
	switch {
	case at < len(x.points) && x.points[at].Mark.Bytes-entry.Mark.Bytes < every:
		return // this entry, or one close after it
	case at > 0 && entry.Mark.Bytes-x.points[at-1].Mark.Bytes < every:
		return
	}
	x.points = slices.Insert(x.points, at, point{entry.Sequence, entry.Mark})
	if len(x.points) > indexPoints {
		x.every = 2 * every
		x.points = everyOther(x.points)
	}
}

// read says which entry was the last of a read.
func (x *index) read(last topic.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.latest = point{last.Sequence, last.Mark}
}

func everyOther(points []point) []point {
	kept := points[:0]
	for i := 0; i < len(points); i += 2 {
		kept = append(kept, points[i])
	}
	return kept
}

// trim removes the points before a sequence.
func (x *index) trim(before uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sort.Search(len(x.points), func(i int) bool { return x.points[i].Sequence >= before })
	x.points = slices.Delete(x.points, 0, at)
	if x.latest.Sequence < before {
		x.latest = point{}
	}
}

// clear removes all points.
func (x *index) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.points, x.latest = nil, point{}
}

// around returns the points next to where wanted begins to hold: wanted does not hold
// for before, and holds for from. The zero point means that none is known.
func (x *index) around(wanted func(topic.Mark) bool) (before, from point) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sort.Search(len(x.points), func(i int) bool { return wanted(x.points[i].Mark) })
	if at > 0 {
		before = x.points[at-1]
	}
	if at < len(x.points) {
		from = x.points[at]
	}
	if l := x.latest; l.Sequence > before.Sequence && !wanted(l.Mark) {
		before = l
	}
	return before, from
}

// search returns the first entry from first to last whose mark is wanted; ok is
// false if there is none. If wanted holds for a mark, it must hold for all later
// ones: true of any "at least", since no field of marks ever falls.
func (x *index) search(ctx context.Context, log topic.Log, first, last uint64, wanted func(topic.Mark) bool) (found topic.Entry, ok bool, err error) {
	before, from := x.around(wanted)
	low, high := first, last+1 // the answer is in low…high; high: none
	if before.Sequence >= first {
		low = before.Sequence + 1
	}
	if from.Sequence >= low && from.Sequence <= last {
		high = from.Sequence
	}
	for low < high {
		middle := low + (high-low)/2
		entry, err := topic.ReadEntry(ctx, log, middle)
		if err != nil {
			return topic.Entry{}, false, err
		}
		x.add(entry)
		if wanted(entry.Mark) {
			high, found, ok = entry.Sequence, entry, true
			if entry.Sequence > middle { // the entries before it were trimmed
				break
			}
		} else {
			low = entry.Sequence + 1
		}
	}
	if high > last {
		return topic.Entry{}, false, nil
	}
	if !ok || found.Sequence != high {
		found, err = topic.ReadEntry(ctx, log, high)
	}
	return found, err == nil, err
}
