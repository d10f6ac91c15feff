package compact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// recordFormat is the number of the format of records.
const recordFormat = 1

// Record is what the metadata has of a compacted log.
type Record struct {
	Format int `json:"format"`
	// Log is the clean generation that counts, empty before the first; it is in place of the
	// entries up to Last, whose mark Mark is.
	Log  string     `json:"log,omitempty"`
	Last uint64     `json:"last,omitempty"`
	Mark topic.Mark `json:"mark"`
	// Shift is what is added to the bytes in the marks of its entries, so that the last of them has
	// Mark.
	Shift int64 `json:"shift,omitempty"`
	// Next is the offset before which everything is compacted.
	Next int64 `json:"next,omitempty"`
	// Other is a generation that is being made, or was replaced.
	Other string `json:"other,omitempty"`
	// Number is how many generations were begun.
	Number uint64 `json:"number"`
}

// Log is a log of records with its clean generation. It is a topic.Log whose sequences have no
// gaps: those of the generation end where those of the rest begin.
type Log struct {
	topic.Log // what follows the generation
	store     topic.Store
	names     catalog.Names
	clean     atomic.Pointer[generation]

	// The one caller of Refresh, Begin, Commit, Use and Settle owns the rest.
	record   Record
	revision uint64
	settled  bool
	// doubt is why it is not known what the metadata has: then nothing may be removed.
	doubt error
}

// generation is a clean generation.
type generation struct {
	topic.Log
	name  string
	last  uint64
	shift int64
}

// Open opens the log of a partition, which exists.
func Open(ctx context.Context, store topic.Store, names catalog.Names) (*Log, error) {
	main, err := store.OpenLog(ctx, names.Records, nil)
	if err != nil {
		return nil, err
	}
	l := &Log{Log: main, store: store, names: names}
	made, err := l.Refresh(ctx)
	if made != nil {
		l.Use(made)
	}
	return l, err
}

// Refresh reads the record again: another node may have compacted the log, or it is not known
// what was stored. It returns the generation that counts, for Use, if that is not the one that is read.
func (l *Log) Refresh(ctx context.Context) (made topic.Log, err error) {
	meta := l.store.Meta()
	if l.doubt != nil {
		if err := meta.Sync(ctx); err != nil {
			return nil, err
		}
	}
	record, revision, err := ReadRecord(ctx, meta, l.names)
	if err != nil || l.doubt == nil && revision == l.revision {
		return nil, err
	}
	if clean := l.clean.Load(); record.Log != "" && (clean == nil || clean.name != record.Log) {
		if made, err = l.whole(ctx, record); err != nil {
			return nil, fmt.Errorf("clean generation %s: %w", record.Log, err)
		}
	}
	l.record, l.revision, l.settled, l.doubt = record, revision, false, nil
	return made, nil
}

// whole opens the generation that counts, once it is seen as a whole: a node that lags would not
// have its end, and the entries after it would be taken for the next ones.
func (l *Log) whole(ctx context.Context, record Record) (topic.Log, error) {
	made, err := l.store.OpenLog(ctx, record.Log, nil)
	if err != nil {
		return nil, err
	}
	_, last, err := made.Ends(ctx)
	if err == nil && last < record.Last {
		err = fmt.Errorf("it ends at entry %d, want %d", last, record.Last)
	}
	return made, err
}

// ReadRecord returns the record of a partition and its revision; 0 if it has none.
func ReadRecord(ctx context.Context, meta topic.Meta, names catalog.Names) (Record, uint64, error) {
	item, err := catalog.Get(ctx, meta, names.Compaction)
	if err != nil || item.Revision == 0 {
		return Record{}, 0, err
	}
	record, err := decode(item)
	return record, item.Revision, err
}

func decode(item topic.Item) (record Record, err error) {
	if err := json.Unmarshal(item.Value, &record); err != nil {
		return record, fmt.Errorf("metadata of %s: %w", item.Key, err)
	}
	if record.Format > recordFormat {
		return record, fmt.Errorf("metadata of %s: format %d; this version reads %d: upgrade this node", item.Key, record.Format, recordFormat)
	}
	return record, nil
}

// Generations returns the logs that a record names: the one that counts, and another one that may
// exist.
func (r Record) Generations() []string {
	return slices.DeleteFunc([]string{r.Log, r.Other}, func(name string) bool { return name == "" })
}

// Delete removes the generations of a partition, and their record. It is idempotent. No leader may
// make another one from then on.
func Delete(ctx context.Context, store topic.Store, names catalog.Names) error {
	record, revision, err := ReadRecord(ctx, store.Meta(), names)
	if err != nil || revision == 0 {
		return err
	}
	for _, name := range record.Generations() {
		err = errors.Join(err, store.DeleteLog(ctx, name))
	}
	if err == nil {
		err = store.Meta().Delete(ctx, names.Compaction, revision)
	}
	if errors.Is(err, topic.ErrNotFound) {
		return nil // another node has done it
	}
	return err
}

// AllGenerations returns the logs that the records of all partitions name.
func AllGenerations(ctx context.Context, meta topic.Meta) (map[string]bool, error) {
	items, err := meta.List(ctx, catalog.CompactionsPrefix)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, item := range items {
		record, err := decode(item)
		if err != nil {
			return nil, err
		}
		for _, name := range record.Generations() {
			named[name] = true
		}
	}
	return named, nil
}

// Ends implements [topic.Log].
func (l *Log) Ends(ctx context.Context) (first, last uint64, err error) {
	clean := l.clean.Load()
	first, last, err = l.Log.Ends(ctx)
	if clean == nil || err != nil {
		return first, last, err
	}
	cleanFirst, _, err := clean.Ends(ctx)
	if cleanFirst <= clean.last {
		first = cleanFirst
	} else {
		first = max(first, clean.last+1)
	}
	return first, last, err
}

// Read implements [topic.Log]: it returns entries of the generation, or of the rest.
func (l *Log) Read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	clean := l.clean.Load()
	if clean == nil {
		return l.Log.Read(ctx, from, maxBytes)
	}
	if from <= clean.last {
		entries, err := clean.Read(ctx, from, maxBytes)
		if err != nil || len(entries) > 0 {
			return clean.shifted(entries), err
		}
	}
	return l.Log.Read(ctx, max(from, clean.last+1), maxBytes)
}

// shifted returns entries with the marks that they have in the whole log.
func (g *generation) shifted(entries []topic.Entry) []topic.Entry {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Mark.Bytes += g.shift
	}
	return entries
}

// Trim implements [topic.Log].
func (l *Log) Trim(ctx context.Context, before uint64) error {
	if clean := l.clean.Load(); clean != nil {
		if err := clean.Trim(ctx, min(before, clean.last+1)); err != nil || before <= clean.last {
			return err
		}
	}
	return l.Log.Trim(ctx, before)
}

// Compacted reports whether it has a clean generation.
func (l *Log) Compacted() bool { return l.clean.Load() != nil }

// Record returns the present record.
func (l *Log) Record() Record { return l.record }

// Guard returns a condition of a change: that this broker leads the partition.
type Guard func(context.Context) (topic.Guard, error)

// Begin makes the next generation on nodes, and returns it. Its first entry has the sequence first.
func (l *Log) Begin(ctx context.Context, guard Guard, nodes []int32, first uint64) (topic.Log, error) {
	if err := l.Settle(ctx); err != nil {
		return nil, err
	}
	next := l.record
	next.Number++
	next.Other = l.names.Clean + strconv.FormatUint(next.Number, 10)
	if err := l.put(ctx, guard, next); err != nil {
		return nil, err
	}
	l.settled = false
	return l.store.MakeLog(ctx, next.Other, nodes, first)
}

// Commit makes a generation count that has the entries up to the sequence last, whose mark
// mark is, with so many bytes; next is the offset before which it is compacted. This log reads it
// after Use.
func (l *Log) Commit(ctx context.Context, guard Guard, made topic.Log, last uint64, mark topic.Mark, bytes, next int64) error {
	for _, log := range []topic.Log{made, l.Log} {
		if syncer, ok := log.(topic.Syncer); ok {
			if err := syncer.Sync(ctx); err != nil {
				return err
			}
		}
	}
	record := l.record
	record.Log, record.Other = l.record.Other, l.record.Log
	record.Last, record.Mark, record.Shift, record.Next = last, mark, mark.Bytes-bytes, next
	return l.put(ctx, guard, record)
}

// Use makes the log read a generation that counts.
func (l *Log) Use(made topic.Log) {
	l.clean.Store(&generation{made, l.record.Log, l.record.Last, l.record.Shift})
}

// Settle removes what the generation has replaced, and one that was not made whole.
func (l *Log) Settle(ctx context.Context) error {
	if l.settled || l.revision == 0 || l.doubt != nil {
		return l.doubt
	}
	if l.record.Log != "" {
		if err := l.Log.Trim(ctx, l.record.Last+1); err != nil {
			return err
		}
	}
	if l.record.Other != "" {
		if err := l.store.DeleteLog(ctx, l.record.Other); err != nil {
			return err
		}
	}
	l.settled = true
	return nil
}

// put stores the record, if the guard holds.
func (l *Log) put(ctx context.Context, guard Guard, record Record) error {
	record.Format = recordFormat
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // or it would not be known what was stored
	for attempt := 1; ; attempt++ {
		condition, err := guard(ctx)
		if err != nil {
			return err
		}
		revision, err := l.store.Meta().Put(ctx, l.names.Compaction, value, l.revision, condition)
		if err != nil {
			revision, err = l.stored(ctx, value, err)
		}
		if revision > 0 {
			l.record, l.revision = record, revision
			return nil
		}
		// The guard may have changed, as when a setting has.
		if !errors.Is(err, topic.ErrConflict) || l.doubt != nil || attempt == catalog.StoreAttempts {
			return err
		}
	}
}

// stored returns the revision of a value if it was stored, after a write that has failed: otherwise 0
// and why it failed.
func (l *Log) stored(ctx context.Context, value []byte, failed error) (uint64, error) {
	meta := l.store.Meta()
	err := meta.Sync(ctx)
	var item topic.Item
	if err == nil {
		item, err = catalog.Get(ctx, meta, l.names.Compaction)
	}
	switch {
	case err == nil && item.Revision > 0 && string(item.Value) == string(value):
		return item.Revision, nil
	case err != nil || item.Revision != l.revision:
		l.doubt = fmt.Errorf("%s may have changed: %w", l.names.Compaction, errors.Join(failed, err))
	}
	return 0, failed
}
