package delay

import (
	"context"

	"github.com/sluice-project/sluice/topic"
)

// Bounds of one step of compaction.
const (
	trimEntries = 256
	trimBytes   = 1 << 20
	// rewriteEntries bounds the entries whose live records are joined into one.
	rewriteEntries = 1024
)

// tidy trims the log before the first live record. When little of a long log is live,
// tidy rewrites the oldest live records, to trim their entries.
func (d *Queue) tidy(ctx context.Context) error {
	for {
		d.mu.Lock()
		entries, size := len(d.state.entries), d.state.bytes
		before := d.state.forget(d.next)
		entries, size = entries-len(d.state.entries), size-d.state.bytes
		sparse := d.state.bytes > d.config.CompactBytes && d.state.live < d.state.bytes/4
		d.trimmable.entries += entries
		d.trimmable.bytes += size
		trim := d.trimmable.entries > 0 && (d.trimmable.entries >= trimEntries || d.trimmable.bytes >= trimBytes || len(d.state.items) == 0)
		d.mu.Unlock()
		if trim {
			if err := d.log.Trim(ctx, before); err != nil {
				return err
			}
			d.trimmable.entries, d.trimmable.bytes = 0, 0
		}
		if !sparse {
			return nil
		}
		if progress, err := d.rewrite(ctx); err != nil || !progress {
			return err
		}
	}
}

// rewrite writes the live records of the oldest entries again.
func (d *Queue) rewrite(ctx context.Context) (progress bool, err error) {
	d.mu.Lock()
	var oldest []delayEntry
	for size, entries := int64(0), d.state.entries; len(entries) > 0 && size < delayReadBytes && len(oldest) < rewriteEntries; entries = entries[1:] {
		oldest = append(oldest, entries[0])
		size += int64(entries[0].bytes)
	}
	d.mu.Unlock()
	moved := delayMove{kind: delayRewrite}
	var items []*delayItem
	size := 0
	for _, entry := range oldest {
		if entry.live == 0 {
			continue
		}
		found, err := d.log.Read(ctx, entry.sequence, 1)
		if err != nil {
			return false, err
		}
		live, records, whole := d.liveOf(found, entry.sequence)
		if !whole || size > 0 && size+int(entry.bytes) > topic.EntryBytes {
			break
		}
		for i, record := range records {
			size += len(record.Body)
			items = append(items, live[i])
			moved.records = append(moved.records, record)
			moved.orders = append(moved.orders, live[i].order)
		}
	}
	if len(items) == 0 {
		return false, nil
	}
	return true, d.do(ctx, &delayRequest{alone: true, move: func() (delayMove, error) {
		still := delayMove{kind: delayRewrite}
		for i, item := range items {
			if item.status == pending { // not canceled since
				still.records = append(still.records, moved.records[i])
				still.orders = append(still.orders, moved.orders[i])
			}
		}
		if len(still.records) == 0 {
			return delayMove{}, nil
		}
		return still, nil
	}})
}

// liveOf returns the live records of an entry; whole is false if it cannot be read, or
// if the outcome of some records is open.
func (d *Queue) liveOf(entries []topic.Entry, sequence uint64) (items []*delayItem, records []topic.DelayedRecord, whole bool) {
	if len(entries) == 0 || entries[0].Sequence != sequence {
		return nil, nil, false
	}
	moves, err := readDelayEntry(entries[0].Data)
	if err != nil {
		return nil, nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, record := range recordsOf(moves) {
		item := d.state.items[record.ID]
		if item == nil || item.sequence != sequence || int(item.index) != i {
			continue
		}
		if item.status != pending {
			return nil, nil, false
		}
		items = append(items, item)
		records = append(records, record)
	}
	return items, records, true
}
