package delay

import (
	"bytes"
	"cmp"
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
	walk, size := s.queue.Walk(), s.cached
	for item := walk.Next(); item != nil && item.due <= until && len(items) < readAheadRecords; item = walk.Next() {
		if item.body != nil {
			continue
		}
		if size += int(item.size); size > cacheBytes {
			break
		}
		items = append(items, item)
	}
	return items
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
