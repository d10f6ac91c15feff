package migrate_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A compacted topic is moved with what compaction has left of it, and is compacted in the cluster; a cluster
// with a node that does not know compacted topics is refused.
func TestACompactedTopicMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := startServer(t, storetest.NewMemory())
		defer source.stop()
		prices := source.create("prices", 1, map[string]string{"cleanup.policy": "compact", "max.compaction.lag.ms": "1"})
		sendKeyed(t, prices, 10)
		time.Sleep(time.Minute)
		store := storetest.NewMemory()
		earlier, err := catalog.Node{ID: 1}.Encode()
		must(t, err)
		revision, err := store.Meta().Put(t.Context(), catalog.NodeKey(1), earlier, 0)
		must(t, err)
		mover := func() *migrate.Migrator {
			return migrate.New(source.export, migrate.NewImport(store), migrate.Options{})
		}
		if _, err := mover().Check(t.Context()); !errors.Is(err, topic.ErrInvalidSetting) {
			t.Errorf("check of a compacted topic: %v, want an ErrInvalidSetting", err)
		}
		if _, err := mover().Run(t.Context()); !errors.Is(err, topic.ErrInvalidSetting) {
			t.Fatalf("a compacted topic: %v, want an ErrInvalidSetting", err)
		}
		must(t, store.Meta().Delete(t.Context(), catalog.NodeKey(1), revision))
		_, err = mover().Run(t.Context())
		must(t, err)
		target := startServer(t, store)
		defer target.stop()
		moved, err := target.broker.Topic("prices")
		must(t, err)
		fetched, err := moved.Read(t.Context(), 0, 0, 1<<20)
		must(t, err)
		batches, err := topic.SplitBatches(fetched.Data[0])
		must(t, err)
		if ends := moved.Partitions()[0].Ends(); len(batches) != 1 || batches[0].Base() != 9 || ends.Start != 0 || ends.HighWatermark != 10 {
			t.Errorf("%d batches, the first at %d, from %d to %d: want one, at 9, from 0 to 10", len(batches), batches[0].Base(), ends.Start, ends.HighWatermark)
		}
		sendKeyed(t, moved, 10)
		time.Sleep(time.Minute)
		fetched, err = moved.Read(t.Context(), 0, 0, 1<<20)
		must(t, err)
		left := recordsIn(t, fetched)
		if !slices.Equal(left, []int64{19}) {
			t.Errorf("records at %v are left after another compaction, want one, at 19", left)
		}
	})
}

// sendKeyed sends records with one key.
func sendKeyed(t *testing.T, to *broker.Topic, count int) {
	t.Helper()
	for i := range count {
		b, err := topic.NewBatch([]topic.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: fmt.Append(nil, i)}}, topic.BatchOptions{})
		must(t, err)
		appending, err := to.Append(t.Context(), 0, []topic.Batch{b})
		must(t, err)
		_, _, err = appending.Wait(t.Context())
		must(t, err)
	}
}

// recordsIn returns the offsets of the records that were fetched.
func recordsIn(t *testing.T, fetched broker.Fetched) (offsets []int64) {
	t.Helper()
	batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
	must(t, err)
	for _, b := range batches {
		for record, err := range b.Records() {
			must(t, err)
			offsets = append(offsets, record.Offset)
		}
	}
	return offsets
}
