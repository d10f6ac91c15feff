package migrate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A transaction that is open during the migration is committed in the other store.
func TestAnOpenTransactionIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := startServer(t, storetest.NewMemory())
		defer source.stop()
		orders := source.create("orders", 1, nil)
		p, err := source.broker.Transactions().Init(t.Context(), "till", 10*time.Minute, nil)
		must(t, err)
		must(t, source.broker.Transactions().AddPartitions(t.Context(), "till", p, map[string][]int32{"orders": {0}}))
		record, err := topic.NewBatch([]topic.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte("x")}}, topic.BatchOptions{
			Transactional: true, Producer: &topic.BatchProducer{ID: p.ID, Epoch: p.Epoch},
		})
		must(t, err)
		appending, err := orders.AppendTransactional(t.Context(), "till", 0, []topic.Batch{record})
		must(t, err)
		_, _, err = appending.Wait(t.Context())
		must(t, err)

		store := storetest.NewMemory()
		_, err = migrate.New(source.export, migrate.NewImport(store), migrate.Options{}).Run(t.Context())
		must(t, err)
		if err := source.broker.Transactions().End(t.Context(), "till", p, true); err == nil {
			t.Error("the source still commits")
		}
		target := startServer(t, store)
		defer target.stop()
		time.Sleep(time.Minute)
		moved, err := target.broker.Topic("orders")
		must(t, err)
		if ends := moved.Partitions()[0].Ends(); ends.LastStable != 0 || ends.HighWatermark != 1 {
			t.Errorf("ends %+v, want the transaction open", ends)
		}
		must(t, target.broker.Transactions().End(t.Context(), "till", p, true))
		if ends := moved.Partitions()[0].Ends(); ends.LastStable != 2 || ends.HighWatermark != 2 {
			t.Errorf("ends %+v, want the record and its marker", ends)
		}
	})
}
