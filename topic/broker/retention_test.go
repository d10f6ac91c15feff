package broker_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestOldRecordsGoByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", map[string]string{"retention.ms": strconv.Itoa(int(time.Hour / time.Millisecond))})
		for i := range 6 { // one every 20 minutes: at the end three are younger than an hour
			send(t, orders, batchOf(anybody, time.Now().UnixMilli(), fmt.Sprint(i)))
			time.Sleep(20 * time.Minute)
		}
		// An old timestamp between new ones removes nothing.
		send(t, orders, batchOf(anybody, 0, "old"))
		time.Sleep(61 * time.Second)
		ends := orders.Partitions()[0].Ends()
		if ends.Start != 4 || ends.HighWatermark != 7 {
			t.Errorf("%+v, want 4 to 7", ends)
		}
		// When all records have expired nothing can be read, but the end is known, also
		// after a restart.
		time.Sleep(2 * time.Hour)
		for range 2 {
			if ends := orders.Partitions()[0].Ends(); ends.Start != 7 || ends.HighWatermark != 7 {
				t.Errorf("%+v, want 7 to 7", ends)
			}
			stopBroker(t, b)
			store = store.Reopen()
			b = startBroker(t, store, topic.Config{})
			orders, _ = b.Topic("orders")
		}
		if base := send(t, orders, batchOf(anybody, time.Now().UnixMilli(), "next")); base != 7 {
			t.Errorf("next record at %d, want 7", base)
		}
	})
}

func TestOldRecordsGoBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", map[string]string{"retention.bytes": "1000"})
		size := len(batchOf(anybody, 0, "00"))
		for i := range 50 {
			send(t, orders, batchOf(anybody, time.Now().UnixMilli(), fmt.Sprintf("%02d", i)))
		}
		time.Sleep(61 * time.Second)
		ends := orders.Partitions()[0].Ends()
		bytes, err := orders.Partitions()[0].Bytes(t.Context())
		if err != nil || bytes < 1000 || bytes >= 1000+int64(size) || bytes != (ends.HighWatermark-ends.Start)*int64(size) {
			t.Errorf("%+v with %d bytes, %v: want at least 1000, and no batch more than it takes", ends, bytes, err)
		}
		if _, values := readAll(t, orders, ends.Start, 1); !slices.Equal(values[len(values)-1:], []string{"49"}) {
			t.Errorf("read %q", values)
		}
	})
}

// TestLookupsAgainstAList compares every lookup by time with a search of all records, on
// partitions that are partly in memory.
func TestLookupsAgainstAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, err := broker.New(storetest.NewMemory(), topic.Config{TailBytes: rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(rt, "tail")})
		if err != nil {
			rt.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = b.Stop(t.Context()) }()
		orders, err := b.AutoCreate(t.Context(), "orders", "")
		if err != nil {
			rt.Fatal(err)
		}
		var times []int64
		for range rapid.IntRange(0, 60).Draw(rt, "batches") {
			at, count := rapid.Int64Range(1000, 1100).Draw(rt, "at"), rapid.IntRange(1, 3).Draw(rt, "count")
			appending, err := orders.Append(t.Context(), 0, []topic.Batch{batchOf(anybody, at, slices.Repeat([]string{"x"}, count)...)})
			if err != nil {
				rt.Fatal(err)
			}
			if _, _, err := appending.Wait(t.Context()); err != nil {
				rt.Fatal(err)
			}
			for i := range count {
				times = append(times, at+int64(i))
			}
		}
		p := orders.Partitions()[0]
		for _, wanted := range []int64{0, rapid.Int64Range(999, 1104).Draw(rt, "wanted"), 2000} {
			offset, at, err := p.OffsetAt(t.Context(), wanted)
			want := int64(slices.IndexFunc(times, func(at int64) bool { return at >= wanted }))
			if err != nil || offset != want || want >= 0 && at != times[want] {
				rt.Fatalf("at %d: offset %d, timestamp %d, %v; want %d", wanted, offset, at, err, want)
			}
		}
		offset, _, err := p.MaxTimestamp(t.Context())
		want := int64(-1)
		if len(times) > 0 {
			want = int64(slices.Index(times, slices.Max(times)))
		}
		if err != nil || offset != want {
			rt.Fatalf("highest timestamp at %d, %v; want %d", offset, err, want)
		}
	})
}

// A batch that cannot be unpacked counts as a whole in lookups by time.
func TestLookupsFindABatchThatCannotBeUnpacked(t *testing.T) {
	store := &faultyStore{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	send(t, orders, batchOf(anybody, 1000, "before"))
	store.set(func(s *faultyStore) { // earlier versions did not check what producers sent
		s.write = func(log topic.Log, entry topic.Entry, done func(error)) {
			copy(entry.Data[topic.BatchOverhead:], "nonsense")
			binary.BigEndian.PutUint32(entry.Data[17:], crc32.Checksum(entry.Data[21:], crc32.MakeTable(crc32.Castagnoli)))
			log.Append(entry, done)
		}
	})
	send(t, orders, batchOf(anybody, 5000, "first", "second"))
	if offset, at, err := orders.Partitions()[0].OffsetAt(t.Context(), 2000); offset != 1 || at != 5001 || err != nil {
		t.Errorf("offset %d, timestamp %d, %v; want 1, 5001", offset, at, err)
	}
}

func TestEpochsEndWhereTheNextBegins(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	send(t, orders, batchOf(anybody, now(), "a", "b")) // epoch 1
	for _, restart := range []bool{false, true} {      // epoch 2 has no records
		stopBroker(t, b)
		store = store.Reopen()
		b = startBroker(t, store, topic.Config{})
		orders, _ = b.Topic("orders")
		if restart {
			send(t, orders, batchOf(anybody, now(), "c")) // epoch 3
		}
	}
	p := orders.Partitions()[0]
	for _, c := range []struct {
		epoch, found int32
		end          int64
	}{{1, 1, 2}, {2, 1, 2}, {3, 3, 3}, {4, -1, -1}, {-1, -1, -1}} {
		found, end, err := p.EndOfEpoch(t.Context(), c.epoch)
		if err != nil || found != c.found || end != c.end {
			t.Errorf("epoch %d: %d ends at %d, %v; want %d at %d", c.epoch, found, end, err, c.found, c.end)
		}
	}
	if ends := p.Ends(); ends.Epoch != 3 {
		t.Errorf("epoch %d, want 3", ends.Epoch)
	}
}

// Usually no record has expired: finding that out reads nothing from the log.
func TestRetentionReadsNothingWhereAllIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		orders := create(t, b, "orders", map[string]string{"retention.ms": "3600000", "retention.bytes": "100000000"})
		for range 50 {
			send(t, orders, batchOf(anybody, now(), "x"))
		}
		stopBroker(t, b)
		counting := &faultyStore{Store: store.Reopen()}
		b = startBroker(t, counting, topic.Config{TailBytes: 1})
		reads := 0
		counting.set(func(s *faultyStore) { s.failRead = func(string) error { reads++; return nil } })
		time.Sleep(30 * time.Minute)
		counting.set(func(*faultyStore) {
			if reads > 0 {
				t.Errorf("%d reads in 30 minutes", reads)
			}
		})
		time.Sleep(time.Hour)
		orders, _ = b.Topic("orders")
		if ends := orders.Partitions()[0].Ends(); ends.Start != 50 {
			t.Errorf("after an hour: %+v, want nothing to be left", ends)
		}
	})
}

// A consumer that has read all records of an epoch continues at its offset, even when
// that epoch's records are gone.
func TestAnEpochThatIsGoneEndsWhereTheFirstOneLeftBegins(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	send(t, orders, batchOf(anybody, now(), "a", "b")) // epoch 0
	stopBroker(t, b)
	b = startBroker(t, store.Reopen(), topic.Config{})
	orders, _ = b.Topic("orders")
	send(t, orders, batchOf(anybody, now(), "c")) // epoch 1
	p := orders.Partitions()[0]
	if _, err := p.DeleteRecords(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if epoch, end, err := p.EndOfEpoch(t.Context(), 0); epoch != 0 || end != 2 || err != nil {
		t.Errorf("epoch %d ends at %d, %v; want 0 at 2", epoch, end, err)
	}
}

// The log cannot be read just when records are deleted.
func TestDeletingRecordsRemovesNothingElseWhenTheLogFails(t *testing.T) {
	store := &faultyStore{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{TailBytes: 1})
	orders := create(t, b, "orders", nil)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
		send(t, orders, batchOf(anybody, now(), want[i]))
	}
	broken := errors.New("broken")
	store.set(func(s *faultyStore) { s.failRead = func(string) error { return broken } })
	if _, err := orders.Partitions()[0].DeleteRecords(t.Context(), 5); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	store.set(func(s *faultyStore) { s.failRead = nil })
	if _, values := readAll(t, orders, 5, 1<<20); !slices.Equal(values, want[5:]) {
		t.Errorf("read %q", values)
	}
}

// A full disk accepts no snapshot of the producers, but expired records are removed
// nevertheless.
func TestRecordsGoFromAFullDisk(t *testing.T) {
	store := &faultyStore{Store: storetest.NewMemory()}
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	for _, value := range []string{"a", "b", "c"} {
		send(t, orders, batchOf(anybody, now(), value))
	}
	store.set(func(s *faultyStore) {
		s.failPut = func(key string) error {
			if strings.HasPrefix(key, "producers/") {
				return topic.ErrFull
			}
			return nil
		}
	})
	if _, err := orders.Partitions()[0].DeleteRecords(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	log, err := store.OpenLog(t.Context(), fmt.Sprintf("records-%s-0", orders.ID()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if first, last, err := log.Ends(t.Context()); first != 3 || last != 3 || err != nil {
		t.Errorf("entries %d to %d, %v; want 3 alone", first, last, err)
	}
}
