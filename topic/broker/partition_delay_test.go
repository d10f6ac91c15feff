package broker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// delayedBatch returns a batch of records with these delays: "" for none.
func delayedBatch(t *testing.T, from *topic.BatchProducer, waits ...string) topic.Batch {
	t.Helper()
	var records []topic.Record
	for i, wait := range waits {
		record := topic.Record{Offset: int64(i), Timestamp: now(), Value: []byte("after " + wait)}
		if wait != "" {
			record.Headers = []topic.Header{{Key: "sluice-delay", Value: []byte(wait)}, {Key: "sluice-id", Value: []byte("id " + wait)}}
		}
		records = append(records, record)
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{Producer: from})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

var delays = map[string]string{"sluice.delay.enable": "true"}

func TestDelayedRecordsAppearWhenTheyAreDueAlsoAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", delays) // and produced to at once
		time.Sleep(300 * time.Microsecond)       // less than a whole millisecond is rounded up
		began := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
		if base := send(t, orders, delayedBatch(t, nil, "30m", "", "10m", "20m")); base != 0 {
			t.Fatalf("offset %d", base)
		}
		if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"after "}) {
			t.Fatalf("at once: %q", values)
		}
		if waiting, err := b.Delayed(t.Context(), "orders", 2); err != nil || len(waiting) != 2 || waiting[0].ID != "id 10m" || !waiting[0].DeliverAt.Equal(began.Add(10*time.Minute)) {
			t.Errorf("waiting: %+v, %v", waiting, err)
		}
		time.Sleep(10*time.Minute - time.Millisecond)
		if end := orders.Partitions()[0].Ends().HighWatermark; end != 4 {
			t.Errorf("a record appeared before it was due: high watermark %d", end)
		}
		time.Sleep(time.Second)
		if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"after ", "after 10m"}) {
			t.Errorf("after 10 minutes: %q", values)
		}
		stopBroker(t, b)
		b = startBroker(t, store.Reopen(), topic.Config{})
		orders, _ = b.Topic("orders")
		if err := b.CancelDelayed(t.Context(), "orders", "id 20m"); err != nil {
			t.Error(err)
		}
		for _, gone := range []string{"id 20m", "id 10m", "never"} {
			if err := b.CancelDelayed(t.Context(), "orders", gone); !errors.Is(err, topic.ErrNotFound) {
				t.Errorf("cancel %q: %v", gone, err)
			}
		}
		time.Sleep(time.Hour)
		if offsets, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"after ", "after 10m", "after 30m"}) || !slices.Equal(offsets[:3], []int64{1, 4, 5}) {
			t.Errorf("in the end: %q at %d", values, offsets)
		}
	})
}

func TestADelayedBatchThatIsSentAgainAppearsOnce(t *testing.T) {
	for name, stored := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewMemory()
				b := startBroker(t, store, topic.Config{})
				orders := create(t, b, "orders", delays)
				synctest.Wait()
				batch := func(n int) topic.Batch {
					return delayedBatch(t, &topic.BatchProducer{ID: 7, Sequence: int32(2 * n)}, fmt.Sprintf("%dm", 5+n), "")
				}
				send(t, orders, batch(0))
				store.FailAppendsTo("records-", topic.ErrUncertain, stored)
				if _, err := trySend(t, orders, batch(1)); !errors.Is(err, topic.ErrRetry) {
					t.Fatal(err)
				}
				store.FailAppends(nil, false)
				time.Sleep(time.Minute)
				for range 2 {
					send(t, orders, batch(1))
				}
				time.Sleep(time.Hour)
				send(t, orders, batch(1)) // long after its record appeared
				time.Sleep(time.Hour)
				if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"after ", "after ", "after 5m", "after 6m"}) {
					t.Errorf("read %q", values)
				}
			})
		})
	}
}

// An append waits for delayed records that cannot be read, but not if its topic is
// deleted in the meantime.
func TestAnAppendWaitsForNoDelaysOfADeletedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		b := startBroker(t, memory, topic.Config{})
		create(t, b, "orders", delays)
		stopBroker(t, b)
		b = startBroker(t, &faultyStore{Store: memory.Reopen(), failOpen: failing("delayed-")}, topic.Config{})
		orders, _ := b.Topic("orders")
		appended := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := trySend(t, orders, delayedBatch(t, nil, "10m"))
			appended <- err
		}()
		synctest.Wait()
		if err := b.Delete(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if err := <-appended; !errors.Is(err, topic.ErrRetry) || time.Since(began) > time.Second {
			t.Errorf("append: %v after %v", err, time.Since(began))
		}
	})
}

func TestDelaysCanBeTurnedOnAndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", nil)
		send(t, orders, delayedBatch(t, nil, "10m")) // not unpacked: it is there at once
		on := "true"
		if err := b.Alter(t.Context(), "orders", map[string]*string{"sluice.delay.enable": &on}, false, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		send(t, orders, delayedBatch(t, nil, "20m"))
		if err := b.Alter(t.Context(), "orders", map[string]*string{"sluice.delay.enable": nil}, false, false); err != nil {
			t.Fatal(err)
		}
		send(t, orders, delayedBatch(t, nil, "30m"))
		if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"after 10m", "after 30m"}) {
			t.Errorf("at once: %q", values)
		}
		time.Sleep(time.Hour)
		if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"after 10m", "after 30m", "after 20m"}) {
			t.Errorf("in the end: %q", values)
		}
		if err := b.Delete(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
	})
}
