package delay

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Entries hold many records, which need not be due together: a read of an entry includes
// records that are due soon.
const (
	readAheadTime    = 10 * time.Second
	readAheadRecords = 10_000
	readAheadBytes   = 1 << 20 // of the log at a time
)

// bodies returns the bodies of records, read from the log if they are not in memory.
func (d *Queue) bodies(ctx context.Context, items []*delayItem) (map[*delayItem][]byte, error) {
	bodies := make(map[*delayItem][]byte, len(items))
	var missing, soon []*delayItem
	d.mu.Lock()
	for _, item := range items {
		switch {
		case item.status == gone:
		case item.body != nil:
			bodies[item] = item.body
		default:
			missing = append(missing, item)
		}
	}
	if len(missing) > 0 {
		soon = d.state.soon(time.Now().Add(readAheadTime).UnixMilli(), d.config.CacheBytes)
	}
	d.mu.Unlock()
	if err := d.read(ctx, bodies, slices.Concat(missing, soon)); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, item := range soon {
		if item.status == pending && item.body == nil {
			item.body = bytes.Clone(bodies[item]) // not to retain the whole entry
			d.state.cached += len(item.body)
		}
	}
	return bodies, nil
}

// soon returns pending records that are due by until and not in memory, in the order in
// which they are due, as many as fit into the cache.
func (s *delayState) soon(until int64, cacheBytes int) (items []*delayItem) {
	if len(s.queue) == 0 {
		return nil
	}
	// The next of the queue is among the children of those taken.
	next := soonQueue{s.queue, []int{0}}
	for size := s.cached; next.Len() > 0 && len(items) < readAheadRecords; {
		at := heap.Pop(&next).(int)
		item := s.queue[at]
		if item.due > until {
			break
		}
		if item.body == nil {
			if size += int(item.size); size > cacheBytes {
				break
			}
			items = append(items, item)
		}
		for child := 2*at + 1; child <= 2*at+2 && child < len(s.queue); child++ {
			heap.Push(&next, child)
		}
	}
	return items
}

// soonQueue is a heap of positions in a delayQueue.
type soonQueue struct {
	queue  delayQueue
	places []int
}

func (q soonQueue) Len() int           { return len(q.places) }
func (q soonQueue) Less(i, j int) bool { return q.queue.Less(q.places[i], q.places[j]) }
func (q soonQueue) Swap(i, j int)      { q.places[i], q.places[j] = q.places[j], q.places[i] }

// Push implements [heap.Interface].
func (q *soonQueue) Push(place any) { q.places = append(q.places, place.(int)) }

// Pop implements [heap.Interface].
func (q *soonQueue) Pop() any {
	last := len(q.places) - 1
	place := q.places[last]
	q.places = q.places[:last]
	return place
}

// read reads records from the log.
func (d *Queue) read(ctx context.Context, bodies map[*delayItem][]byte, items []*delayItem) error {
	wanted := map[uint64][]*delayItem{}
	var sequences []uint64
	for _, item := range items {
		if wanted[item.sequence] == nil {
			sequences = append(sequences, item.sequence)
		}
		wanted[item.sequence] = append(wanted[item.sequence], item)
	}
	slices.Sort(sequences)
	var read []topic.Entry // result of the last read
	for _, sequence := range sequences {
		at, found := slices.BinarySearchFunc(read, sequence, func(e topic.Entry, sequence uint64) int { return cmp.Compare(e.Sequence, sequence) })
		if !found {
			var err error
			if read, err = d.log.Read(ctx, sequence, readAheadBytes); err != nil {
				return err
			}
			at = 0
		}
		if err := takeBodies(bodies, read[at:], sequence, wanted[sequence]); err != nil {
			return err
		}
	}
	return nil
}

// takeBodies finds records in the first of some entries.
func takeBodies(bodies map[*delayItem][]byte, entries []topic.Entry, sequence uint64, items []*delayItem) error {
	if len(entries) == 0 || entries[0].Sequence != sequence {
		return fmt.Errorf("%w: entry %d of a delay log is missing", topic.ErrCorrupt, sequence)
	}
	moves, err := readDelayEntry(entries[0].Data)
	if err != nil {
		return fmt.Errorf("entry %d: %w", sequence, err)
	}
	records := recordsOf(moves)
	for _, item := range items {
		if int(item.index) >= len(records) || records[item.index].ID != item.id {
			return fmt.Errorf("%w: entry %d of a delay log has no record %q", topic.ErrCorrupt, sequence, item.id)
		}
		bodies[item] = records[item.index].Body
	}
	return nil
}

// recordsOf returns the records of an entry, in the order of their indexes.
func recordsOf(moves []delayMove) (records []topic.DelayedRecord) {
	for _, move := range moves {
		records = append(records, move.records...)
	}
	return records
}
