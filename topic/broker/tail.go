package broker

import (
	"slices"
	"sort"
	"sync"

	"github.com/sluice-project/sluice/topic"
)

// tails bounds the memory for the newest entries of all partitions: above its limit, the
// entry that was appended first, in any partition, is evicted first.
type tails struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	order []*tail // tail of each entry, oldest first
	stale int     // how many of order are of entries that were cleared: at most half
}

// tail holds the newest entries of one partition, without gaps.
type tail struct {
	all     *tails
	entries []topic.Entry // guarded by all.mu, as all is
	stale   int           // its first places in order are of entries that were cleared
}

// largestOf is the divisor of the limit above which an entry is not kept: few would fit, and it would
// have to be copied out of its producer's request.
const largestOf = 16

// entryOverhead is about the memory that an entry takes in addition to its data.
const entryOverhead = 160

// tailBytes returns the default of topic.Config.TailBytes. On a single server the log's files are
// in the system's cache, and reading them costs little more.
func tailBytes(alone bool) int64 {
	if alone {
		return 4 << 20
	}
	return 128 << 20
}

// keeps reports whether an entry of so many bytes is not too large to be kept.
func (t *tail) keeps(bytes int) bool { return int64(bytes) <= t.all.limit/largestOf }

// push adds the partition's newest entry. If that is too large, nothing is kept, as there would be a gap.
func (t *tail) push(entry topic.Entry) {
	if !t.keeps(len(entry.Data)) {
		t.clear()
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.entries = append(t.entries, entry)
	t.all.order = append(t.all.order, t)
	t.all.bytes += sizeOf(entry)
	for t.all.bytes > t.all.limit {
		t.all.evict()
	}
}

func sizeOf(entry topic.Entry) int64 { return int64(len(entry.Data)) + entryOverhead }

// evict drops the first place in order, and the entry that it stands for.
func (a *tails) evict() {
	oldest := a.order[0]
	a.order[0] = nil
	a.order = a.order[1:]
	if oldest.passes() {
		a.stale--
		return
	}
	a.bytes -= sizeOf(oldest.entries[0])
	oldest.entries[0] = topic.Entry{} // so that its data can go before the array does
	oldest.entries = oldest.entries[1:]
}

// passes reports whether the next place of the tail in order is of a cleared entry, and if so
// removes that.
func (t *tail) passes() bool {
	if t.stale == 0 {
		return false
	}
	t.stale--
	return true
}

// clear drops the partition's entries: they are deleted or in doubt. Their places in order stay
// until they are half of all, so that a node that resigns from many partitions does not search
// all places for each.
func (t *tail) clear() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	for _, entry := range t.entries {
		t.all.bytes -= sizeOf(entry)
	}
	t.stale += len(t.entries)
	t.all.stale += len(t.entries)
	t.entries = nil
	if 2*t.all.stale > len(t.all.order) {
		t.all.order = slices.DeleteFunc(t.all.order, (*tail).passes)
		t.all.stale = 0
	}
}

// from returns the entries, starting with the one that holds the offset, up to maxBytes
// but at least one; nil if that offset is not in memory.
func (t *tail) from(offset int64, maxBytes int) []topic.Entry {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if len(t.entries) == 0 || offset < t.entries[0].Mark.Base {
		return nil
	}
	at := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].Mark.Next > offset })
	end := at
	for size := 0; end < len(t.entries) && (end == at || size < maxBytes); end++ {
		size += len(t.entries[end].Data)
	}
	return slices.Clone(t.entries[at:end])
}

// first returns the first entry in memory with a wanted mark; see index.search.
func (t *tail) first(wanted func(topic.Mark) bool) (topic.Entry, bool) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	at := sort.Search(len(t.entries), func(i int) bool { return wanted(t.entries[i].Mark) })
	if at == 0 || at == len(t.entries) {
		return topic.Entry{}, false // an earlier entry, not in memory, may come first
	}
	return t.entries[at], true
}
