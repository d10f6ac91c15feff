package broker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
	"github.com/sluice-project/sluice/topic/txn"
)

// keyed makes a batch of records, each of a key and a value separated by "=", without value for a
// tombstone.
func keyed(from sender, transactional bool, records ...topic.Record) topic.Batch {
	for i := range records {
		records[i].Offset, records[i].Timestamp = int64(i), now()
	}
	options := topic.BatchOptions{Transactional: transactional}
	if from.id >= 0 {
		options.Producer = &topic.BatchProducer{ID: from.id, Epoch: from.epoch, Sequence: from.sequence}
	}
	b, err := topic.NewBatch(records, options)
	if err != nil {
		panic(err)
	}
	return b
}

// put is a record of about 2 KB, which begins with its value.
func put(key, value string) topic.Record {
	return topic.Record{Key: []byte(key), Value: append([]byte(value+" "), make([]byte, 2000)...)}
}

func tombstone(key string) topic.Record { return topic.Record{Key: []byte(key)} }

// compacted settings make compaction begin with the least amount.
func compacted(more ...string) map[string]string {
	settings := map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
	for i := 0; i < len(more); i += 2 {
		settings[more[i]] = more[i+1]
	}
	return settings
}

// fill updates keys until more than the least amount is not compacted, and waits for the compaction.
func fill(t *testing.T, to *broker.Topic, latest map[string]string) {
	t.Helper()
	for i := range 700 {
		key, value := fmt.Sprint("key", i%20), fmt.Sprint(len(latest), "-", i, "-", now())
		send(t, to, keyed(anybody, false, put(key, value)))
		latest[key] = value
	}
	time.Sleep(16 * time.Second)
	synctest.Wait()
}

// latestOf reads a partition from an offset, and returns the last value of each key and how many records there
// are. From each offset a read returns a batch that goes on after it.
func latestOf(t testing.TB, from *broker.Topic, offset int64) (latest map[string]string, count int) {
	t.Helper()
	latest = map[string]string{}
	for end := from.Partitions()[0].Ends().HighWatermark; offset < end; {
		fetched, err := from.Read(t.Context(), 0, offset, 5000)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
		if err != nil || len(batches) == 0 || batches[0].Next() <= offset {
			t.Fatalf("%d batches at %d of %d: %v", len(batches), offset, end, err)
		}
		for _, b := range batches {
			for r, err := range b.Records() {
				switch {
				case err != nil:
					t.Fatal(err)
				case b.Control() || r.Offset < offset:
				case r.Value == nil:
					count++
					delete(latest, string(r.Key))
				default:
					count++
					latest[string(r.Key)] = string(r.Value[:slices.Index(r.Value, ' ')])
				}
			}
			offset = b.Next()
		}
	}
	return latest, count
}

func TestCompactionKeepsTheLastRecordOfEachKey(t *testing.T) {
	for name, tail := range map[string]int64{"memory": 64 << 20, "log": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewMemory()
				config := topic.Config{TailBytes: tail}
				b := startBroker(t, store, config)
				orders := create(t, b, "orders", compacted())
				latest := map[string]string{}
				repeated := sender{7, 0, 0}
				base := send(t, orders, keyed(repeated, false, put("key1", "first")))
				began := now()
				for round := range 3 {
					fill(t, orders, latest)
					p := orders.Partitions()[0]
					ends := p.Ends()
					bytes, err := p.Bytes(t.Context())
					if err != nil || bytes > 100_000 || ends.Start != 0 || ends.HighWatermark != int64(1+700*(round+1)) {
						t.Fatalf("%d bytes from %d to %d, %v", bytes, ends.Start, ends.HighWatermark, err)
					}
					got, count := latestOf(t, orders, 0)
					if !maps.Equal(got, latest) || count != 20 {
						t.Fatalf("round %d: %d records of %v, want %v", round, count, got, latest)
					}
					for offset := int64(0); offset < ends.HighWatermark; offset += 37 {
						latestOf(t, orders, offset)
					}
					if offset, _, err := p.OffsetAt(t.Context(), began); err != nil || offset != ends.HighWatermark-20 {
						t.Fatalf("first record of %d is %d, %v; want the first that is left, %d", began, offset, err, ends.HighWatermark-20)
					}
					// The state of producers is as before.
					if again := send(t, orders, keyed(repeated, false, put("key1", "first"))); again != base {
						t.Fatalf("a repeated batch got offset %d, had %d", again, base)
					}
					stopBroker(t, b)
					store = store.Reopen()
					b = startBroker(t, store, config)
					orders, _ = b.Topic("orders")
					if got, count := latestOf(t, orders, 0); !maps.Equal(got, latest) || count != 20 {
						t.Fatalf("after a restart: %d records of %v, want %v", count, got, latest)
					}
				}
			})
		})
	}
}

// A tombstone stays for delete.retention.ms after the compaction that has removed the values, and what it
// deleted does not come back.
func TestTombstonesStayForTheDeleteRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", compacted("delete.retention.ms", "60000"))
		latest := map[string]string{}
		send(t, orders, keyed(anybody, false, put("gone", "value"), put("key1", "old")))
		send(t, orders, keyed(anybody, false, tombstone("gone"), tombstone("key1")))
		for _, test := range []struct {
			wait  time.Duration
			count int
		}{{0, 21}, {0, 21}, {time.Minute, 20}} {
			time.Sleep(test.wait)
			fill(t, orders, latest)
			if got, count := latestOf(t, orders, 0); !maps.Equal(got, latest) || count != test.count {
				t.Fatalf("%d records of %v, want %d of %v", count, got, test.count, latest)
			}
		}
	})
}

// Records younger than min.compaction.lag.ms stay; max.compaction.lag.ms begins a compaction of any amount.
func TestCompactionLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", compacted("min.cleanable.dirty.ratio", "1", "min.compaction.lag.ms", "3600000", "max.compaction.lag.ms", "7200000"))
		for i := range 3 {
			send(t, orders, keyed(anybody, false, put("key", strconv.Itoa(i))))
			time.Sleep(50 * time.Minute)
		}
		// They are 150, 100 and 50 minutes old.
		if got, count := latestOf(t, orders, 0); count != 2 || got["key"] != "2" {
			t.Errorf("%d records, the last is %q; want 2", count, got["key"])
		}
		time.Sleep(3 * time.Hour)
		if got, count := latestOf(t, orders, 0); count != 1 || got["key"] != "2" {
			t.Errorf("%d records, the last is %q; want 1", count, got["key"])
		}
	})
}

// Aborted records go and do not count, records of an open transaction stay, and a marker goes after its
// records; consumers of committed records see the same before and after.
func TestCompactionOfTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", compacted("delete.retention.ms", "0"))
		latest := map[string]string{}
		transact := func(id string, records ...topic.Record) txn.Producer { return transacted(t, b, orders, id, records...) }
		end := func(id string, of txn.Producer, commit bool) {
			if err := b.Transactions().End(t.Context(), id, of, commit); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		end("aborts", transact("aborts", put("a", "aborted"), put("key3", "aborted")), false)
		end("commits", transact("commits", put("b", "committed"), put("key4", "superseded")), true)
		latest["b"] = "committed"
		check := func(control int) {
			t.Helper()
			if values := committedOf(t, orders); slices.ContainsFunc(values, func(v string) bool { return len(v) > 7 && v[:7] == "aborted" }) {
				t.Error("an aborted record is shown")
			}
			if got := controls(t, orders); got != control {
				t.Errorf("%d markers, want %d", got, control)
			}
		}
		fill(t, orders, latest)
		got, count := latestOf(t, orders, 0)
		if !maps.Equal(got, latest) || count != 21 {
			t.Fatalf("%d records of %v, want 21 of %v", count, got, latest)
		}
		check(2)
		fill(t, orders, latest) // the marker of the aborted one has no records
		check(2)
		fill(t, orders, latest) // and its delete retention is over
		check(1)

		open := transact("open", put("key5", "open"))
		latest["key5"] = "open"
		fill(t, orders, latest)
		if _, count := latestOf(t, orders, 0); count != 21+1+700 {
			t.Errorf("%d records, want those after the first of an open transaction to stay", count)
		}
		end("open", open, true)
		fill(t, orders, latest)
		if got, count := latestOf(t, orders, 0); count != 21 || !maps.Equal(got, latest) {
			t.Errorf("%d records of %v, want 21 of %v", count, got, latest)
		}
		stopBroker(t, b)
		b = startBroker(t, store.Reopen(), topic.Config{})
		orders, _ = b.Topic("orders")
		if ends := orders.Partitions()[0].Ends(); ends.LastStable != ends.HighWatermark {
			t.Errorf("%+v: a transaction is open after a restart", ends)
		}
	})
}

// transacted begins a transaction with records.
func transacted(t *testing.T, b *broker.Broker, in *broker.Topic, id string, records ...topic.Record) txn.Producer {
	t.Helper()
	got, err := b.Transactions().Init(t.Context(), id, 15*time.Minute, nil)
	if err == nil {
		err = b.Transactions().AddPartitions(t.Context(), id, got, map[string][]int32{in.Name(): {0}})
	}
	if err == nil {
		err = trySendOf(t, in, id, keyed(sender{got.ID, got.Epoch, 0}, true, records...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// controls counts the markers of a partition.
func controls(t *testing.T, of *broker.Topic) (count int) {
	for offset, end := int64(0), of.Partitions()[0].Ends().HighWatermark; offset < end; {
		fetched, err := of.Read(t.Context(), 0, offset, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		batches, _ := topic.SplitBatches(slices.Concat(fetched.Data...))
		for _, b := range batches {
			if b.Control() {
				count++
			}
			offset = b.Next()
		}
	}
	return count
}

// Consumers read a topic, its view, and what a time's offset is, while it is written and compacted: each sees
// offsets that rise, and at the end the last value of each key.
func TestReadersDuringCompaction(t *testing.T) {
	for _, tail := range []int64{1, 64 << 20} {
		synctest.Test(t, func(t *testing.T) {
			b := startBroker(t, storetest.NewMemory(), topic.Config{TailBytes: tail})
			orders := create(t, b, "orders", compacted())
			view, err := b.Create(t.Context(), topic.Spec{Name: "odd", Settings: map[string]string{
				"sluice.view.of": "orders", "sluice.view.where": `key.endsWith("1")`,
			}}, false)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var readers sync.WaitGroup
			for range 3 {
				readers.Go(func() {
					for ctx.Err() == nil {
						latestOf(t, orders, rand.Int64N(orders.Partitions()[0].Ends().HighWatermark+1))
						if offsets, _ := readAll(t, view, 0, 5000); !slices.IsSorted(offsets) {
							t.Errorf("offsets of the view are %v", offsets)
						}
						if _, _, err := orders.Partitions()[0].OffsetAt(ctx, now()-rand.Int64N(30_000)); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
					}
				})
			}
			latest := map[string]string{}
			for i := range 4000 {
				key, value := fmt.Sprint("key", i%50), strconv.Itoa(i)
				send(t, orders, keyed(anybody, false, put(key, value)))
				latest[key] = value
				time.Sleep(15 * time.Millisecond)
			}
			stop()
			readers.Wait()
			if got, count := latestOf(t, orders, 0); !maps.Equal(got, latest) || count > 1500 {
				t.Errorf("%d records, of %d keys, want %d", count, len(got), len(latest))
			}
		})
	}
}

func TestCompactedTopicsRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", compacted())
		_, err := trySend(t, orders, keyed(anybody, false, put("key", "1"), topic.Record{Value: []byte("no key")}))
		wrong, ok := errors.AsType[*topic.RecordError](err)
		if !ok || wrong.Record != 1 || !errors.Is(err, topic.ErrInvalidRecord) {
			t.Errorf("a record without a key: %v; want an ErrInvalidRecord that names record 1", err)
		}
		send(t, orders, keyed(anybody, false, put("", "the empty key is one")))
		p := orders.Partitions()[0]
		if _, err := p.DeleteRecords(t.Context(), 1); !errors.Is(err, topic.ErrCompacted) {
			t.Errorf("records of a compacted topic are deleted: %v", err)
		}
		both := "compact,delete"
		if err := b.Alter(t.Context(), "orders", map[string]*string{"cleanup.policy": &both}, false, false); err != nil {
			t.Fatal(err)
		}
		if start, err := p.DeleteRecords(t.Context(), 1); start != 1 || err != nil {
			t.Errorf("compact,delete: start %d, %v; want 1", start, err)
		}
	})
}

// With compact,delete, retention removes what compaction has left, also over a restart.
func TestCompactionAndRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", compacted("cleanup.policy", "compact,delete", "retention.ms", "3600000"))
		send(t, orders, keyed(anybody, false, put("only", "once")))
		latest := map[string]string{}
		fill(t, orders, latest)
		if _, count := latestOf(t, orders, 0); count != 21 {
			t.Errorf("%d records, want 21", count)
		}
		time.Sleep(50 * time.Minute)
		fill(t, orders, latest)
		time.Sleep(20 * time.Minute)
		for range 2 {
			ends := orders.Partitions()[0].Ends()
			if ends.Start == 0 {
				t.Error("old records were not removed")
			}
			if got, count := latestOf(t, orders, ends.Start); !maps.Equal(got, latest) || count != 20 {
				t.Errorf("%d records from %d on, want 20", count, ends.Start)
			}
			stopBroker(t, b)
			b = startBroker(t, store.Reopen(), topic.Config{})
			orders, _ = b.Topic("orders")
		}
	})
}
