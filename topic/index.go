package topic

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
)

// index knows some entries of a log by their marks, so that a search in the log
// begins between two neighbours. It is a cache: what is missing is found by
// binary search, and remembered.
type index struct {
	mu sync.Mutex
	// points are ordered by sequence, at least every bytes of data apart.
	points []point
	every  int64
}

// point is an entry without its data.
type point struct {
	Sequence uint64
	Mark     Mark
}

const (
	// indexEvery is how many bytes of data are between two points, at first.
	indexEvery = 256 << 10
	// indexPoints is the most points; above it, every other one is dropped and
	// new ones are twice as far apart.
	indexPoints = 8192
)

// add remembers an entry if it is far enough from the others.
func (x *index) add(entry Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sort.Search(len(x.points), func(i int) bool { return x.points[i].Sequence >= entry.Sequence })
	every := max(x.every, indexEvery)
	switch {
	case at < len(x.points) && x.points[at].Mark.Bytes-entry.Mark.Bytes < every:
		return // that entry, or one close behind it
	case at > 0 && entry.Mark.Bytes-x.points[at-1].Mark.Bytes < every:
		return
	}
	x.points = slices.Insert(x.points, at, point{entry.Sequence, entry.Mark})
	if len(x.points) > indexPoints {
		x.every = 2 * every
		x.points = everyOther(x.points)
	}
}

func everyOther(points []point) []point {
	kept := points[:0]
	for i := 0; i < len(points); i += 2 {
		kept = append(kept, points[i])
	}
	return kept
}

// trim forgets the points before a sequence.
func (x *index) trim(before uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sort.Search(len(x.points), func(i int) bool { return x.points[i].Sequence >= before })
	x.points = slices.Delete(x.points, 0, at)
}

// clear forgets all points.
func (x *index) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.points = nil
}

// around returns the points next to where wanted begins to hold: before has not
// got it, from has. Either may be the zero point: none is known.
func (x *index) around(wanted func(Mark) bool) (before, from point) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sort.Search(len(x.points), func(i int) bool { return wanted(x.points[i].Mark) })
	if at > 0 {
		before = x.points[at-1]
	}
	if at < len(x.points) {
		from = x.points[at]
	}
	return before, from
}

// search returns the first entry from first up to last whose mark is wanted;
// ok is false if there is none. wanted must hold for all marks after one for
// which it holds: true of any "at least", since no field of marks ever falls.
func (x *index) search(ctx context.Context, log Log, first, last uint64, wanted func(Mark) bool) (found Entry, ok bool, err error) {
	before, from := x.around(wanted)
	low, high := first, last+1 // the answer is in low…high; high: none before
	if before.Sequence >= first {
		low = before.Sequence + 1
	}
	if from.Sequence >= low && from.Sequence <= last {
		high = from.Sequence
	}
	for low < high {
		middle := low + (high-low)/2
		entry, err := readEntry(ctx, log, middle)
		if err != nil {
			return Entry{}, false, err
		}
		x.add(entry)
		if wanted(entry.Mark) {
			high, found, ok = entry.Sequence, entry, true
			if entry.Sequence > middle { // what was before it is trimmed
				break
			}
		} else {
			low = entry.Sequence + 1
		}
	}
	if high > last {
		return Entry{}, false, nil
	}
	if !ok || found.Sequence != high {
		found, err = readEntry(ctx, log, high)
	}
	return found, err == nil, err
}

// readEntry returns the first entry from a sequence on.
func readEntry(ctx context.Context, log Log, sequence uint64) (Entry, error) {
	entries, err := log.Read(ctx, sequence, 1)
	if err != nil {
		return Entry{}, err
	}
	if len(entries) == 0 {
		return Entry{}, fmt.Errorf("read entry %d: %w", sequence, ErrNotFound)
	}
	return entries[0], nil
}
