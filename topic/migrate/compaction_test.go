package migrate_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A topic that is compacted is refused; once it is no longer, what compaction has left of it is moved.
func TestACompactedTopicIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := startServer(t, storetest.NewMemory())
		defer source.stop()
		prices := source.create("prices", 1, map[string]string{"cleanup.policy": "compact", "max.compaction.lag.ms": "1"})
		for i := range 10 {
			b, err := topic.NewBatch([]topic.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: fmt.Append(nil, i)}}, topic.BatchOptions{})
			must(t, err)
			appending, err := prices.Append(t.Context(), 0, []topic.Batch{b})
			must(t, err)
			_, _, err = appending.Wait(t.Context())
			must(t, err)
		}
		time.Sleep(time.Minute)
		store := storetest.NewMemory()
		move := func() error {
			_, err := migrate.New(source.export, migrate.NewImport(store), migrate.Options{}).Run(t.Context())
			return err
		}
		if err := move(); !errors.Is(err, topic.ErrInvalidSetting) {
			t.Fatalf("a compacted topic: %v, want an ErrInvalidSetting", err)
		}
		policy := "delete"
		must(t, source.broker.Alter(t.Context(), "prices", map[string]*string{"cleanup.policy": &policy}, false, false))
		must(t, move())
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
	})
}
