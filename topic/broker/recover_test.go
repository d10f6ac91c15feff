package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/storetest"
)

// Records are numbered and given up, and a snapshot of the producers is requested before
// the log was read: the snapshot must not list them as appended.
func TestASnapshotKnowsNothingThatIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultyStore{Store: storetest.NewMemory()}
		b := startBroker(t, store, topic.Config{RetentionInterval: time.Hour})
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "first"))
		send(t, orders, batchOf(anybody, now(), "second"))
		broken := errors.New("broken")
		store.set(func(s *faultyStore) {
			s.write = func(_ topic.Log, _ topic.Entry, done func(error)) { go done(topic.ErrUncertain) }
			s.failRead = func(string) error { return broken } // so that it stays in doubt
		})
		if _, err := trySend(t, orders, batchOf(sender{1, 0, 0}, now(), "lost")); !errors.Is(err, topic.ErrRetry) {
			t.Fatal(err)
		}
		store.set(func(s *faultyStore) { s.failRead = nil })
		if _, err := orders.Partitions()[0].DeleteRecords(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		store.set(func(s *faultyStore) { s.write = nil })
		time.Sleep(time.Minute)
		send(t, orders, batchOf(sender{1, 0, 0}, now(), "lost"))
		if _, values := readAll(t, orders, 1, 1<<20); !slices.Equal(values, []string{"second", "lost"}) {
			t.Errorf("read %q", values)
		}
	})
}

// The first batch of a producer fails, and the second, which was in flight, arrives when
// the partition has recovered: it is not accepted before the first.
func TestASecondBatchIsNotTakenBeforeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", nil)
		store.FailAppends(topic.ErrUncertain, false)
		if _, err := trySend(t, orders, batchOf(sender{1, 0, 5}, now(), "first")); !errors.Is(err, topic.ErrRetry) {
			t.Fatal(err)
		}
		store.FailAppends(nil, false)
		time.Sleep(time.Second)
		if _, err := trySend(t, orders, batchOf(sender{1, 0, 6}, now(), "second")); !errors.Is(err, topic.ErrOutOfOrderSequence) {
			t.Errorf("the second: %v", err)
		}
		send(t, orders, batchOf(sender{1, 0, 5}, now(), "first"))
		send(t, orders, batchOf(sender{1, 0, 6}, now(), "second"))
		if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"first", "second"}) {
			t.Errorf("read %q", values)
		}
	})
}

// The disk is full: producers get that error as long as it lasts, also while the
// partition tries to recover.
func TestAFullDiskIsToldUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "first"))
		store.FailAppends(topic.ErrFull, false)
		for _, value := range []string{"at once", "while it recovers", "later"} {
			_, err := trySend(t, orders, batchOf(anybody, now(), value))
			if !errors.Is(err, topic.ErrRetry) || !errors.Is(err, topic.ErrFull) {
				t.Errorf("%s: %v, want ErrRetry and ErrFull", value, err)
			}
			time.Sleep(time.Minute)
		}
		store.FailAppends(topic.ErrUncertain, false)
		time.Sleep(time.Minute)
		if _, err := trySend(t, orders, batchOf(anybody, now(), "not full")); !errors.Is(err, topic.ErrRetry) || errors.Is(err, topic.ErrFull) {
			t.Errorf("when it is not full any more: %v, want ErrRetry alone", err)
		}
		store.FailAppends(nil, false)
		time.Sleep(time.Minute)
		send(t, orders, batchOf(anybody, now(), "second"))
	})
}

// The broker stops during an append, which then fails.
func TestAnAppendThatFailsDuringStopIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", nil)
		store.Hold()
		store.FailAppends(topic.ErrUncertain, false)
		var under [3]*broker.Appending
		for i := range under {
			var err error
			if under[i], err = orders.Append(t.Context(), 0, []topic.Batch{batchOf(anybody, now(), "x")}); err != nil {
				t.Fatal(err)
			}
		}
		stopped := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			stopped <- b.Stop(ctx)
		}()
		synctest.Wait()
		began := time.Now()
		store.Release()
		if err := <-stopped; err != nil || time.Since(began) > time.Second {
			t.Errorf("stop: %v after %v", err, time.Since(began))
		}
		for _, appending := range under {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, _, err := appending.Wait(ctx); !errors.Is(err, topic.ErrRetry) {
				t.Errorf("append: %v", err)
			}
			cancel()
		}
	})
}

// Of two entries in flight the first is lost and the second arrives late, when the
// partition has recovered: it names a sequence that is taken by then.
func TestALateEntryIsFencedAfterARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultyStore{Store: storetest.NewMemory()}
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "first"))
		var log topic.Log
		var late []topic.Entry
		var fail func(error)
		store.set(func(s *faultyStore) {
			s.write = func(l topic.Log, entry topic.Entry, done func(error)) {
				log, late = l, append(late, entry)
				if fail == nil {
					fail = done
				}
			}
		})
		large := strings.Repeat("x", 300<<10)
		var under []*broker.Appending
		for range 4 {
			appending, err := orders.Append(t.Context(), 0, []topic.Batch{batchOf(anybody, now(), large)})
			if err != nil {
				t.Fatal(err)
			}
			under = append(under, appending)
		}
		synctest.Wait()
		if len(late) != 4 {
			t.Fatalf("%d entries under way", len(late))
		}
		// The first fails; it was not written.
		store.set(func(s *faultyStore) { s.write = nil })
		fail(topic.ErrUncertain)
		for _, appending := range under {
			if _, _, err := appending.Wait(t.Context()); !errors.Is(err, topic.ErrRetry) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		for _, entry := range late {
			written := make(chan error, 1)
			log.Append(entry, func(err error) { written <- err })
			if err := <-written; !errors.Is(err, topic.ErrFenced) {
				t.Errorf("entry %d came late: %v", entry.Sequence, err)
			}
		}
		send(t, orders, batchOf(anybody, now(), "next"))
		if _, values := readAll(t, orders, 0, 1<<20); !slices.Equal(values, []string{"first", "next"}) {
			t.Errorf("read %d values", len(values))
		}
	})
}

// The end of the log is lost, as by a power failure within the sync interval, but not
// the metadata, which says that records up to 3 were deleted.
func TestNoRecordIsAppendedBelowTheStart(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	send(t, orders, batchOf(anybody, now(), "a", "b", "c", "d"))
	if _, err := orders.Partitions()[0].DeleteRecords(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	stopBroker(t, b)
	store = store.Reopen()
	store.Cut(fmt.Sprintf("records-%s-0", orders.ID()), 0)
	for restart := range 2 {
		b = startBroker(t, store, topic.Config{})
		orders, _ = b.Topic("orders")
		if ends := orders.Partitions()[0].Ends(); ends.Start > ends.HighWatermark {
			t.Errorf("%+v: it begins after its end", ends)
		}
		base := send(t, orders, batchOf(anybody, now(), fmt.Sprint(restart)))
		if _, values := readAll(t, orders, base, 1<<20); base != int64(3+restart) || !slices.Equal(values, []string{fmt.Sprint(restart)}) {
			t.Errorf("appended at %d, read %q", base, values)
		}
		stopBroker(t, b)
		store = store.Reopen()
	}
}

// A start reads of each partition what was appended since the last snapshot of its producers, at
// most 4 MiB and a few entries, and nothing after an orderly stop. It knows the producers.
func TestAStartReadsWhatIsNew(t *testing.T) {
	const entry, count = 250 << 10, 70
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	value := strings.Repeat("x", entry)
	for i := range int32(count) {
		send(t, orders, batchOf(sender{1, 0, i}, now(), value))
	}
	until.True(t, "a snapshot is stored every 4 MiB", func() bool {
		item, err := store.Meta().Get(t.Context(), catalog.NamesOf(orders.ID(), 0, 0).Snapshot)
		var stored struct{ Sequence uint64 }
		return err == nil && json.Unmarshal(item.Value, &stored) == nil && stored.Sequence > count-17
	})
	killed := &faultyStore{Store: store.Reopen()}
	stopBroker(t, b)
	stopped := &faultyStore{Store: store.Reopen()}
	for name, test := range map[string]struct {
		store *faultyStore
		most  int64
	}{"killed": {killed, 4<<20 + 3*(entry+100)}, "stopped": {stopped, 2 * (entry + 100)}} {
		b := startBroker(t, test.store, topic.Config{})
		orders, _ := b.Topic("orders")
		if read := test.store.read.Load(); read > test.most {
			t.Errorf("%s: the start read %d bytes, want at most %d", name, read, test.most)
		}
		if base := send(t, orders, batchOf(sender{1, 0, count - 1}, now(), value)); base != count-1 {
			t.Errorf("%s: the last batch was sent again and has offset %d, want %d", name, base, count-1)
		}
	}
}

// The log of a partition that was led before is missing: that is an error that names it, and the
// partition does not begin again at offset 0. The others are served.
func TestAMissingLogIsNotMadeAgain(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	other := create(t, b, "other", nil)
	send(t, orders, batchOf(anybody, now(), "a"))
	send(t, other, batchOf(anybody, now(), "a"))
	stopBroker(t, b)
	store = store.Reopen()
	lost := catalog.NamesOf(orders.ID(), 0, 0).Records
	if err := store.DeleteLog(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, store, topic.Config{})
	orders, _ = b.Topic("orders")
	if _, err := trySend(t, orders, batchOf(anybody, now(), "b")); !errors.Is(err, topic.ErrRetry) || !strings.Contains(err.Error(), lost) {
		t.Errorf("append: %v, want an ErrRetry that names %s", err, lost)
	}
	if leader := orders.Partitions()[0].Leader(); leader != -1 {
		t.Errorf("node %d leads the partition, want none", leader)
	}
	if _, err := store.OpenLog(t.Context(), lost, nil); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("the log is there again: %v", err)
	}
	other, _ = b.Topic("other")
	if base := send(t, other, batchOf(anybody, now(), "b")); base != 1 {
		t.Errorf("appended to the other at %d, want 1", base)
	}
	if err := b.Delete(t.Context(), "orders"); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// A server stops between the creation of a topic and of its logs: the next start makes them.
func TestLogsThatWereNeverMadeAreMade(t *testing.T) {
	memory := storetest.NewMemory()
	store := &faultyStore{Store: memory, failOpen: func(string) error { return topic.ErrUncertain }}
	b := startBroker(t, store, topic.Config{})
	if _, err := b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}, false); err == nil {
		t.Fatal("the topic is created without its log")
	}
	memory = memory.Reopen()
	stopBroker(t, b)
	b = startBroker(t, memory, topic.Config{})
	orders, err := b.Topic("orders")
	if err != nil {
		t.Fatal(err)
	}
	if base := send(t, orders, batchOf(anybody, now(), "a")); base != 0 {
		t.Errorf("appended at %d", base)
	}
}

// A broker that registers itself and claims a partition keeps what a later version has written
// about both.
func TestAStartKeepsFieldsOfLaterVersions(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	create(t, b, "orders", nil)
	stopBroker(t, b)
	store = store.Reopen()
	for _, key := range []string{catalog.TopicsPrefix + "orders", catalog.NodeKey(1)} {
		item, err := store.Meta().Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		later := append(bytes.TrimSuffix(item.Value, []byte("}")), []byte(`,"later":[1]}`)...)
		if _, err := store.Meta().Put(t.Context(), key, later, item.Revision); err != nil {
			t.Fatal(err)
		}
	}
	b = startBroker(t, store, topic.Config{Advertise: topic.Advertised{Host: "other", Port: 9}})
	orders, _ := b.Topic("orders")
	send(t, orders, batchOf(anybody, now(), "a"))
	for key, changed := range map[string]string{catalog.TopicsPrefix + "orders": `"epoch":2`, catalog.NodeKey(1): `"host":"other"`} {
		item, err := store.Meta().Get(t.Context(), key)
		if text := string(item.Value); err != nil || !strings.Contains(text, `"later":[1]`) || !strings.Contains(text, changed) {
			t.Errorf("%s is %s, %v; want %s, and what was there", key, text, err, changed)
		}
	}
}

// The end of the log is lost, but not the snapshot that knows the batches in it: they are
// accepted when they are sent again, and are known afterwards.
func TestProducersOfALostEndAreForgotten(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	for i, value := range []string{"a", "b", "c"} {
		send(t, orders, batchOf(sender{1, 0, int32(i)}, now(), value))
	}
	send(t, orders, batchOf(sender{2, 0, 0}, now(), "d"))
	if _, err := orders.Partitions()[0].DeleteRecords(t.Context(), 1); err != nil { // stores a snapshot
		t.Fatal(err)
	}
	stopBroker(t, b)
	store = store.Reopen()
	store.Cut(fmt.Sprintf("records-%s-0", orders.ID()), 2)
	for range 2 { // the second time the log is as long as it was
		b = startBroker(t, store, topic.Config{})
		orders, _ = b.Topic("orders")
		send(t, orders, batchOf(sender{1, 0, 2}, now(), "c"))
		send(t, orders, batchOf(sender{2, 0, 0}, now(), "d"))
		if _, values := readAll(t, orders, 1, 1<<20); !slices.Equal(values, []string{"b", "c", "d"}) {
			t.Errorf("read %q", values)
		}
		stopBroker(t, b)
		store = store.Reopen()
	}
}

// A request's batches for a partition are one entry, whose size is bounded.
func TestAnAppendThatIsTooLargeForAnEntryIsRefused(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{MaxMessageBytes: 7 << 20})
	orders := create(t, b, "orders", nil)
	large := strings.Repeat("x", 4<<20)
	if _, err := trySend(t, orders, batchOf(anybody, now(), large), batchOf(anybody, now(), large)); !errors.Is(err, topic.ErrRecordTooLarge) {
		t.Errorf("two batches of 4 MiB: %v", err)
	}
	send(t, orders, batchOf(anybody, now(), large), batchOf(anybody, now(), "small"))
}

// The log of delayed records of a partition that was led before is missing: that is an error that
// names it, however the topic got its delays.
func TestAMissingDelayLogIsNotMadeAgain(t *testing.T) {
	for name, created := range map[string]map[string]string{"created so": delays, "altered": nil} {
		t.Run(name, func(t *testing.T) {
			store := storetest.NewMemory()
			b := startBroker(t, store, topic.Config{})
			orders := create(t, b, "orders", created)
			yes := "true"
			if err := b.Alter(t.Context(), "orders", map[string]*string{"sluice.delay.enable": &yes}, false, false); err != nil {
				t.Fatal(err)
			}
			send(t, orders, delayedBatch(t, nil, "30m"))
			stopBroker(t, b)
			store = store.Reopen()
			lost := catalog.NamesOf(orders.ID(), 0, 0).Delays
			if err := store.DeleteLog(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
			b = startBroker(t, store, topic.Config{})
			orders, _ = b.Topic("orders")
			if _, err := trySend(t, orders, batchOf(anybody, now(), "b")); !errors.Is(err, topic.ErrRetry) || !strings.Contains(err.Error(), lost) {
				t.Errorf("append: %v, want an ErrRetry that names %s", err, lost)
			}
			if _, err := store.OpenLog(t.Context(), lost, nil); !errors.Is(err, topic.ErrNoLog) {
				t.Errorf("the log is there again: %v", err)
			}
			if err := b.Delete(t.Context(), "orders"); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
}
