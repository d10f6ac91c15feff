package compact_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/compact"
	"github.com/sluice-project/sluice/topic/filestore"
)

var names = catalog.NamesOf(topic.ID{1}, 0, 0)

// disk takes an image before each operation that changes it, as a power cut would leave it.
type disk struct {
	*vfs.MemFS
	mu     sync.Mutex
	random *rand.Rand
	on     bool
	images []*vfs.MemFS
	whole  []bool // the new generation had been committed
	done   bool
}

func (d *disk) inject(op errorfs.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		d.images = append(d.images, d.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: d.random.IntN(3) * 50, RNG: d.random}))
		d.whole = append(d.whole, d.done)
	}
	return nil
}

func (d *disk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func storeOn(t *testing.T, fs vfs.FS, interval time.Duration) *filestore.Store {
	t.Helper()
	s, err := filestore.Open("data", filestore.Options{FS: fs, SyncInterval: interval, SegmentBytes: 20_000, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// update is the last entry's mark, and what each key had after each offset.
type update struct {
	mark     topic.Mark
	sequence uint64
	values   []map[string]string // by the offset after
}

// update appends n entries with one record each.
func (u *update) add(t *testing.T, log topic.Log, random *rand.Rand, n int) {
	for range n {
		value := topic.Record{Offset: u.mark.Next, Timestamp: u.mark.Next, Key: fmt.Append(nil, "key", random.IntN(20)), Value: make([]byte, random.IntN(3000))}
		now := map[string]string{}
		if len(u.values) > 0 {
			now = maps.Clone(u.values[len(u.values)-1])
		}
		if random.IntN(5) == 0 {
			value.Value = nil
			delete(now, string(value.Key))
		} else {
			copy(value.Value, fmt.Sprint(value.Offset))
			now[string(value.Key)] = string(value.Value)
		}
		b, err := topic.NewBatch([]topic.Record{value}, topic.BatchOptions{Base: value.Offset})
		if err != nil {
			t.Fatal(err)
		}
		u.sequence++
		u.values = append(u.values, now)
		u.mark.Base, u.mark.Next, u.mark.MaxTimestamp = u.mark.Next, u.mark.Next+1, u.mark.Next
		u.mark.Bytes += int64(len(b))
		appended(t, log, topic.Entry{Sequence: u.sequence, Mark: u.mark, Data: b})
	}
}

// compactOnce compacts all of a log but its last two entries, and marks when that counts.
func compactOnce(t *testing.T, log *compact.Log, u *update, now int64, committed func()) {
	t.Helper()
	all := entriesOf(t, log)
	first, last := all[0], all[len(all)-3]
	pass := &compact.Pass{
		Options: compact.Options{Now: now, Aborted: func(topic.Batch) bool { return false }}, Source: log, Unpacker: unpacker,
		First: first.Mark, FirstSequence: first.Sequence, Last: last.Mark, LastSequence: last.Sequence,
		Before: first.Mark.Bytes - int64(len(first.Data)), From: log.Record().Next, Pace: func(context.Context) error { return nil },
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(pass.Find(t.Context(), max(first.Sequence, log.Record().Last+1)))
	guard := func(context.Context) (topic.Guard, error) { return topic.Guard{Key: "none"}, nil }
	made, err := log.Begin(t.Context(), guard, []int32{1}, pass.LastSequence+1-pass.Entries())
	must(err)
	bytes, err := pass.Copy(t.Context(), func(e topic.Entry) error {
		appended(t, made, e)
		return nil
	})
	must(err)
	must(log.Commit(t.Context(), guard, made, pass.LastSequence, pass.Last, bytes, pass.Next()))
	committed()
	log.Use(made)
	must(log.Settle(t.Context()))
}

// The power fails before each write, sync, rename and removal of two compactions. Afterwards
// there is a log whose keys have the values that they had at its end, with everything that was durable, and
// it takes appends.
func TestPowerCutAtEachWrite(t *testing.T) {
	t.Parallel()
	for name, interval := range map[string]time.Duration{"synced": 0, "at intervals": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(interval)))
			d := &disk{MemFS: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(2, uint64(interval)))}
			s := storeOn(t, errorfs.Wrap(d.MemFS, errorfs.InjectorFunc(d.inject)), interval)
			if _, err := s.OpenLog(t.Context(), names.Records, []int32{1}); err != nil {
				t.Fatal(err)
			}
			log, err := compact.Open(t.Context(), s, names)
			if err != nil {
				t.Fatal(err)
			}
			u := &update{mark: topic.Mark{MaxTimestamp: topic.NoTimestamp}}
			for round := range 2 {
				u.add(t, log, random, 60)
				d.set(func() { d.on, d.done = true, interval == 0 })
				compactOnce(t, log, u, int64(round), func() { d.set(func() { d.done = true }) })
				d.set(func() { d.on = false })
				if entries := entriesOf(t, log); len(entries) > 15 {
					t.Errorf("%d entries are left", len(entries))
				}
				for i, image := range d.images {
					checkImage(t, fmt.Sprint("image ", i), image, interval, u, d.whole[i])
				}
				t.Logf("%d images", len(d.images))
				d.images, d.whole = nil, nil
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// checkImage checks a disk: whole reports that nothing may be lost.
func checkImage(t *testing.T, name string, image vfs.FS, interval time.Duration, u *update, whole bool) {
	t.Helper()
	s := storeOn(t, image, interval)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	log, err := compact.Open(t.Context(), s, names)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for range 2 { // the second time it has removed what was left over
		all := entriesOf(t, log)
		if len(all) == 0 && !whole {
			return
		}
		end := all[len(all)-1]
		if got := valuesOf(t, all); end.Sequence > u.sequence || !maps.Equal(got, u.values[end.Mark.Next-1]) {
			t.Fatalf("%s: %d keys at offset %d, want %d; %v\nlog %+v, %d to %d", name, len(got), end.Mark.Next, len(u.values[end.Mark.Next-1]), whole, log.Record(), all[0].Sequence, end.Sequence)
		}
		if whole && end.Sequence != u.sequence {
			t.Fatalf("%s: ends with entry %d, want %d", name, end.Sequence, u.sequence)
		}
		if all[0].Mark.Base != 0 {
			t.Fatalf("%s: begins at offset %d", name, all[0].Mark.Base)
		}
		if err := log.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again := &update{mark: topic.Mark{MaxTimestamp: topic.NoTimestamp}}
	all := entriesOf(t, log)
	again.mark, again.sequence, again.values = all[len(all)-1].Mark, all[len(all)-1].Sequence, slices.Clip(u.values[:all[len(all)-1].Mark.Next])
	again.add(t, log, rand.New(rand.NewPCG(3, 3)), 5)
	compactOnce(t, log, again, 0, func() {})
	if got := valuesOf(t, entriesOf(t, log)); !maps.Equal(got, again.values[len(again.values)-1]) {
		t.Fatalf("%s: %d keys after another compaction", name, len(got))
	}
	if err := compact.Delete(t.Context(), s, names); err != nil {
		t.Fatal(err)
	}
}

// valuesOf returns the last value of each key that has one.
func valuesOf(t *testing.T, entries []topic.Entry) map[string]string {
	values := map[string]string{}
	for i, e := range entries {
		if i > 0 && e.Sequence != entries[i-1].Sequence+1 {
			t.Fatalf("entry %d follows %d", e.Sequence, entries[i-1].Sequence)
		}
		batches, err := topic.SplitBatches(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for r, err := range b.Records() {
				switch {
				case err != nil:
					t.Fatal(err)
				case r.Value == nil:
					delete(values, string(r.Key))
				default:
					values[string(r.Key)] = string(r.Value)
				}
			}
		}
	}
	return values
}
