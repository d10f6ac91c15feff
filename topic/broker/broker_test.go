package broker_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

func now() int64 { return time.Now().UnixMilli() }

// startBroker returns a broker over a store, stopped at the end of the test.
func startBroker(t *testing.T, store topic.Store, config topic.Config, options ...broker.Option) *broker.Broker {
	t.Helper()
	b, err := broker.New(store, config, options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopBroker(t, b) })
	return b
}

func stopBroker(t *testing.T, b *broker.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// create creates a topic with one partition and these settings.
func create(t *testing.T, b *broker.Broker, name string, settings map[string]string) *broker.Topic {
	t.Helper()
	made, err := b.Create(t.Context(), topic.Spec{Name: name, Partitions: 1, Settings: settings}, false)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// send appends batches, waits, and returns the offset.
func send(t *testing.T, to *broker.Topic, batches ...topic.Batch) int64 {
	t.Helper()
	base, err := trySend(t, to, batches...)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func trySend(t *testing.T, to *broker.Topic, batches ...topic.Batch) (int64, error) {
	t.Helper()
	appending, err := to.Append(t.Context(), 0, batches)
	if err != nil {
		return 0, err
	}
	base, _, err := appending.Wait(t.Context())
	return base, err
}

// readAll reads a partition, starting at an offset, in reads of maxBytes.
func readAll(t *testing.T, from *broker.Topic, offset int64, maxBytes int) (offsets []int64, values []string) {
	t.Helper()
	for {
		fetched, err := from.Read(t.Context(), 0, offset, maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		if fetched.Size == 0 {
			return offsets, values
		}
		o, v := valuesOf(t, fetched.Data...)
		offsets, values = append(offsets, o...), append(values, v...)
		batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
		if err != nil {
			t.Fatal(err)
		}
		offset = batches[len(batches)-1].Next()
	}
}

func TestAppendedIsReadBackFromMemoryAndFromTheLog(t *testing.T) {
	for name, tail := range map[string]int64{"memory": 1 << 20, "log": 1} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, storetest.NewMemory(), topic.Config{TailBytes: tail})
			orders := create(t, b, "orders", nil)
			var want []string
			for i := range 200 {
				values := []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
				if base := send(t, orders, batchOf(anybody, time.Now().UnixMilli(), values...)); base != int64(2*i) {
					t.Fatalf("batch %d got offset %d", i, base)
				}
				want = append(want, values...)
			}
			for _, maxBytes := range []int{1, 500, 1 << 20} {
				if offsets, values := readAll(t, orders, 0, maxBytes); !slices.Equal(values, want) || offsets[399] != 399 {
					t.Errorf("reading %d bytes at a time: %d values", maxBytes, len(values))
				}
			}
			// From the middle of a batch: the batch that holds the offset comes first.
			if offsets, _ := readAll(t, orders, 201, 1); offsets[0] != 200 {
				t.Errorf("from 201: first %d, want its batch's 200", offsets[0])
			}
			if _, err := orders.Read(t.Context(), 0, 401, 1); !errors.Is(err, topic.ErrOffsetOutOfRange) {
				t.Errorf("beyond the end: %v", err)
			}
		})
	}
}

// A record that has changed in the log is not sent, not even where the log vouches for the bytes of its entry, which are then not all read again.
func TestChangedRecordsAreNotSent(t *testing.T) {
	vouch := func(e *topic.Entry) { e.Sum = crc32.Checksum(e.Data, topic.Castagnoli) }
	change := func(e *topic.Entry) {
		e.Data = slices.Clone(e.Data)
		e.Data[len(e.Data)-1]++
	}
	for name, test := range map[string]struct {
		alter func(*topic.Entry)
		want  error
	}{
		"as it was":                     {func(*topic.Entry) {}, nil},
		"as it was, with its sum":       {vouch, nil},
		"as it was, with another's sum": {func(e *topic.Entry) { e.Sum = 1 }, nil},
		"changed":                       {change, topic.ErrCorrupt},
		"changed, with its sum":         {func(e *topic.Entry) { change(e); vouch(e) }, topic.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			store := &faultyStore{Store: storetest.NewMemory()}
			b := startBroker(t, store, topic.Config{TailBytes: 1}) // reads go to the log
			orders := create(t, b, "orders", nil)
			send(t, orders, batchOf(anybody, time.Now().UnixMilli(), "one", "two"), batchOf(anybody, time.Now().UnixMilli(), "three"))
			store.set(func(s *faultyStore) { s.alter = test.alter })
			if _, err := orders.Read(t.Context(), 0, 0, 1<<20); !errors.Is(err, test.want) {
				t.Errorf("read: %v, want %v", err, test.want)
			}
		})
	}
}

// Records that a consumer has read of the log stay as they are until it releases them, whatever others read and release in the meantime.
func TestMemoryOfReadsIsUsedAgain(t *testing.T) {
	b := startBroker(t, openFiles(t, vfs.NewMem()), topic.Config{TailBytes: 1}) // reads go to the log
	orders := create(t, b, "orders", nil)
	const batches, size = 400, 128 << 10 // more than is kept of reads
	for i := range batches {
		send(t, orders, batchOf(anybody, time.Now().UnixMilli(), strings.Repeat(string(rune('a'+i%26)), size)))
	}
	var consumers sync.WaitGroup
	for c := range uint64(8) {
		consumers.Go(func() {
			random := rand.New(rand.NewPCG(c, 0))
			for range 60 {
				offset := random.Int64N(batches)
				fetched, err := orders.Read(t.Context(), 0, offset, 1+random.IntN(6*size))
				if err != nil {
					t.Error(err)
					return
				}
				read := slices.Concat(fetched.Data...)
				for range random.IntN(3) {
					if more, err := orders.Read(t.Context(), 0, random.Int64N(batches), 3*size); err != nil {
						t.Error(err)
					} else if random.IntN(2) == 0 {
						more.Run.Release()
					}
				}
				offsets, values := valuesOf(t, fetched.Data...)
				if offsets[0] != offset || values[0][0] != byte('a'+offset%26) || !slices.Equal(slices.Concat(fetched.Data...), read) {
					t.Errorf("from %d: offset %d, %.3q; or it has changed", offset, offsets[0], values[0])
				}
				fetched.Run.Release()
			}
		})
	}
	consumers.Wait()
}

// A consumer of many partitions, which takes a part of each in turn, has each part of the logs read once: none waits in memory until it is asked for.
func TestManyPartitionsAreReadOnce(t *testing.T) {
	store := &faultyStore{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{TailBytes: 1}) // reads go to the logs
	const topics, batches, size, asked = 20, 10, 200 << 10, 512 << 10
	for i := range topics {
		of := create(t, b, fmt.Sprint("orders", i), nil)
		for range batches {
			send(t, of, batchOf(anybody, time.Now().UnixMilli(), strings.Repeat("x", size)))
		}
	}
	before := store.read.Load()
	var offsets [topics]int64
	var sent int64
	for more := true; more; {
		more = false
		for i := range topics {
			of, err := b.Topic(fmt.Sprint("orders", i))
			if err != nil {
				t.Fatal(err)
			}
			fetched, err := of.Read(t.Context(), 0, offsets[i], asked)
			if err != nil {
				t.Fatal(err)
			}
			more = more || fetched.Size > 0
			sent += int64(fetched.Size)
			offsets[i] += int64(len(fetched.Data))
		}
	}
	if read := store.read.Load() - before; sent < topics*batches*size || read > sent*5/4 {
		t.Errorf("%d bytes were read for %d that were sent, want about as many", read, sent)
	}
}

func TestNothingIsShownBeforeItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{TailBytes: 1}) // reads go to the log
		orders := create(t, b, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "durable"))
		store.Hold()
		appending, err := orders.Append(t.Context(), 0, []topic.Batch{batchOf(anybody, now(), "not yet")})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, values := readAll(t, orders, 0, 1<<20); !slices.Equal(values, []string{"durable"}) {
			t.Errorf("read %q", values)
		}
		store.Release()
		if _, _, err := appending.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, values := readAll(t, orders, 0, 1<<20); len(values) != 2 {
			t.Errorf("read %q", values)
		}
	})
}

// A read ends at the first batch that does not fit, for any bound: a smaller batch after
// it, in the next entry, would leave a gap.
func TestReadsLeaveNoGap(t *testing.T) {
	for name, tail := range map[string]int64{"memory": 1 << 20, "log": 1} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, storetest.NewMemory(), topic.Config{TailBytes: tail})
			orders := create(t, b, "orders", nil)
			var want []int64
			for range 3 {
				var entry []topic.Batch
				for _, size := range []int{10, 900, 300, 600} {
					entry = append(entry, batchOf(anybody, now(), strings.Repeat("x", size)))
					want = append(want, int64(len(want)))
				}
				send(t, orders, entry...)
				send(t, orders, batchOf(anybody, now(), "small"))
				want = append(want, int64(len(want)))
			}
			for maxBytes := 1; maxBytes < 4000; maxBytes += 50 {
				if offsets, _ := readAll(t, orders, 0, maxBytes); !slices.Equal(offsets, want) {
					t.Errorf("reading %d bytes at a time: offsets %v", maxBytes, offsets)
				}
			}
		})
	}
}

func TestAppendsThatWaitAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", nil)
		store.Hold()
		var last *broker.Appending
		for i := range 100 {
			var err error
			if last, err = orders.Append(t.Context(), 0, []topic.Batch{batchOf(anybody, now(), fmt.Sprint(i))}); err != nil {
				t.Fatal(err)
			}
		}
		store.Release()
		if base, _, err := last.Wait(t.Context()); err != nil || base != 99 {
			t.Fatal(base, err)
		}
		log, err := store.OpenLog(t.Context(), fmt.Sprintf("records-%s-0", orders.ID()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, entries, _ := log.Ends(t.Context()); entries != 2 {
			t.Errorf("100 appends are %d entries, want the first alone and the rest together", entries)
		}
	})
}

func TestLingerCollectsFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{Linger: 20 * time.Millisecond})
		orders := create(t, b, "orders", nil)
		start := time.Now()
		for range 9 {
			if _, err := orders.Append(t.Context(), 0, []topic.Batch{batchOf(anybody, now(), "x")}); err != nil {
				t.Fatal(err)
			}
		}
		send(t, orders, batchOf(anybody, now(), "x"))
		if waited := time.Since(start); waited != 20*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		log, _ := store.OpenLog(t.Context(), fmt.Sprintf("records-%s-0", orders.ID()), nil)
		if _, entries, _ := log.Ends(t.Context()); entries != 1 {
			t.Errorf("%d entries, want 1", entries)
		}
	})
}

func TestABatchThatIsSentAgainAppearsOnce(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	for i := range int32(7) {
		send(t, orders, batchOf(sender{1, 0, 2 * i}, now(), "a", "b"))
	}
	check := func(orders *broker.Topic) {
		t.Helper()
		for i := int32(2); i < 7; i++ {
			if base := send(t, orders, batchOf(sender{1, 0, 2 * i}, now(), "a", "b")); base != int64(2*i) {
				t.Errorf("batch %d again: offset %d", i, base)
			}
		}
		if _, err := trySend(t, orders, batchOf(sender{1, 0, 2}, now(), "a", "b")); !errors.Is(err, topic.ErrOutOfOrderSequence) {
			t.Errorf("older than the last five: %v", err)
		}
		if _, err := trySend(t, orders, batchOf(sender{1, 0, 99}, now(), "a")); !errors.Is(err, topic.ErrOutOfOrderSequence) {
			t.Errorf("a gap: %v", err)
		}
		if end := orders.Partitions()[0].Ends().HighWatermark; end != 14 {
			t.Errorf("high watermark %d, want 14", end)
		}
	}
	check(orders)
	stopBroker(t, b)
	again, err := startBroker(t, store.Reopen(), topic.Config{}).Topic("orders")
	if err != nil {
		t.Fatal(err)
	}
	check(again)
	send(t, again, batchOf(sender{1, 1, 0}, now(), "new epoch"))
	if _, err := trySend(t, again, batchOf(sender{1, 0, 14}, now(), "old epoch")); !errors.Is(err, topic.ErrProducerFenced) {
		t.Errorf("old epoch: %v", err)
	}
}

func TestAFailedAppendIsRetriedWithoutLossOrRepeat(t *testing.T) {
	for name, stored := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewMemory()
				b := startBroker(t, store, topic.Config{})
				orders := create(t, b, "orders", nil)
				send(t, orders, batchOf(sender{1, 0, 0}, now(), "first"))
				store.FailAppends(topic.ErrUncertain, stored)
				if _, err := trySend(t, orders, batchOf(sender{1, 0, 1}, now(), "second")); !errors.Is(err, topic.ErrRetry) {
					t.Fatal(err)
				}
				store.FailAppends(nil, false)
				time.Sleep(time.Second)
				if base := send(t, orders, batchOf(sender{1, 0, 1}, now(), "second")); base != 1 {
					t.Errorf("offset %d, want 1", base)
				}
				send(t, orders, batchOf(sender{1, 0, 2}, now(), "third"))
				if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"first", "second", "third"}) {
					t.Errorf("read %q", values)
				}
			})
		})
	}
}
