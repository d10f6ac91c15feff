package view

import (
	"slices"
	"sync"
)

// hiddenRangesMax is how many ranges are remembered for a partition of a view.
const hiddenRangesMax = 1024

// HiddenRanges remembers which offsets of a partition a filter hides, so that
// consumers that begin in such a range need not scan it again. Of too many, the
// one that was of no use longest is forgotten.
type HiddenRanges struct {
	mu     sync.Mutex
	uses   uint64
	ranges []hiddenRange // in order, not touching each other
}

// hiddenRange is the offsets from from to before to.
type hiddenRange struct {
	from, to int64
	used     uint64
}

// After returns the end of the range that holds an offset, or the offset itself
// if there is none. A range beyond the high watermark is of a log that was cut
// back: then all is forgotten.
func (h *HiddenRanges) After(offset, highWatermark int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.ranges); n > 0 && h.ranges[n-1].to > highWatermark {
		h.ranges = nil
	}
	for i := range h.ranges {
		if r := &h.ranges[i]; r.from <= offset && offset < r.to {
			h.uses++
			r.used = h.uses
			return r.to
		}
	}
	return offset
}

// Add remembers that the offsets from from to before to are hidden.
func (h *HiddenRanges) Add(from, to int64) {
	if from >= to {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uses++
	added := hiddenRange{from, to, h.uses}
	h.ranges = slices.DeleteFunc(h.ranges, func(r hiddenRange) bool {
		touches := r.from <= added.to && added.from <= r.to
		if touches {
			added.from, added.to = min(added.from, r.from), max(added.to, r.to)
		}
		return touches
	})
	if len(h.ranges) == hiddenRangesMax {
		oldest := 0
		for i := range h.ranges {
			if h.ranges[i].used < h.ranges[oldest].used {
				oldest = i
			}
		}
		h.ranges = slices.Delete(h.ranges, oldest, oldest+1)
	}
	at, _ := slices.BinarySearchFunc(h.ranges, added.from, func(r hiddenRange, from int64) int { return int(min(max(r.from-from, -1), 1)) })
	h.ranges = slices.Insert(h.ranges, at, added)
}
