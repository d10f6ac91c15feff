package delay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
	"github.com/sluice-project/sluice/topic/storetest"
)

// delayKit is a queue of delayed records over a store in memory.
type delayKit struct {
	t     *testing.T
	store *storetest.Memory
	log   topic.Log
	node  *delayNode
}

func newDelayKit(t *testing.T, config topic.DelayConfig) *delayKit {
	t.Helper()
	k := &delayKit{t: t, store: storetest.NewMemory()}
	var err error
	if k.log, err = k.store.OpenLog(t.Context(), "delays", []int32{1}); err != nil {
		t.Fatal(err)
	}
	k.node = &delayNode{disk: &delayDisk{log: k.log, committed: map[string]time.Time{}}}
	k.open(config)
	t.Cleanup(func() { k.node.delays.Close(context.Background()) })
	return k
}

func (k *delayKit) open(config topic.DelayConfig) {
	k.t.Helper()
	delays, err := delay.Open(k.t.Context(), k.log, k.node, config)
	if err != nil {
		k.t.Fatal(err)
	}
	k.node.delays = delays
}

// delayed returns records that are due after delays, as a partition would have
// them added. Values and ids are numbers starting at first.
func (k *delayKit) delayed(first int, delays ...time.Duration) *topic.DelayedBatch {
	k.t.Helper()
	var records []topic.Record
	for i, delay := range delays {
		name := []byte(fmt.Sprint(first + i))
		records = append(records, topic.Record{Offset: int64(i), Value: name, Headers: []topic.Header{
			{Key: topic.HeaderDelay, Value: []byte(delay.String())}, {Key: topic.HeaderDelayID, Value: name},
		}})
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	_, split, err := topic.DelayConfig{}.Split(batch, uncompressed(batch), time.Now(), 0)
	if err != nil {
		k.t.Fatal(err)
	}
	return split
}

func (k *delayKit) add(batch *topic.DelayedBatch) {
	k.t.Helper()
	addition, err := k.node.delays.Add(k.t.Context(), batch)
	if err != nil {
		k.t.Fatal(err)
	}
	addition.Keep()
}

// records returns the records that have appeared.
func (k *delayKit) records() []shownRecord {
	k.node.disk.mu.Lock()
	defer k.node.disk.mu.Unlock()
	return slices.Clone(k.node.disk.shown)
}

// shown returns the values that have appeared.
func (k *delayKit) shown() (values []string) {
	for _, record := range k.records() {
		values = append(values, record.value)
	}
	return values
}

func (k *delayKit) want(values ...string) {
	k.t.Helper()
	synctest.Wait()
	if got := k.shown(); !slices.Equal(got, values) {
		k.t.Fatalf("%.200v appeared, want %.200v", got, values)
	}
}

func TestDelayedRecordsAppearWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		k.add(k.delayed(0, 3*time.Second, time.Second, time.Second, 40*24*time.Hour))
		time.Sleep(999 * time.Millisecond)
		k.want()
		time.Sleep(20 * time.Millisecond)
		k.want("1", "2")
		time.Sleep(2 * time.Second)
		k.want("1", "2", "0")
		time.Sleep(39 * 24 * time.Hour)
		k.want("1", "2", "0")
		k.node.delays.Close(t.Context())
		time.Sleep(24 * time.Hour)
		k.want("1", "2", "0")
		k.open(topic.DelayConfig{}) // overdue records appear at once
		time.Sleep(20 * time.Millisecond)
		k.want("1", "2", "0", "3")
		if late := k.records()[3]; late.due >= late.at {
			t.Errorf("a late record has timestamp %d at %d, want when it was due", late.due, late.at)
		}
	})
}

// 100,000 records wait, the node restarts, and each appears in time.
func TestManyDelayedRecordsOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		const batches, each = 100, 1000
		for i := range batches {
			var delays []time.Duration
			for j := range each {
				delays = append(delays, time.Minute+time.Duration((i*each+j)*7919%60_000)*time.Millisecond)
			}
			k.add(k.delayed(i*each, delays...))
		}
		k.node.delays.Close(t.Context())
		k.open(topic.DelayConfig{})
		if n := k.node.delays.Pending(); n != batches*each {
			t.Fatalf("%d wait, want %d", n, batches*each)
		}
		time.Sleep(5 * time.Minute)
		var late []int64
		seen := map[string]bool{}
		for _, record := range k.records() {
			seen[record.value] = true
			late = append(late, record.at-record.due)
		}
		if len(seen) != batches*each || len(late) != batches*each {
			t.Fatalf("%d of %d appeared, want each of %d once", len(seen), len(late), batches*each)
		}
		slices.Sort(late)
		if late[0] < 0 || late[len(late)/2] >= 50 {
			t.Errorf("the earliest is %d ms late, the median %d, want 0 to 50", late[0], late[len(late)/2])
		}
	})
}

func TestDelayedRecordsAreCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		k.add(k.delayed(0, time.Second, time.Second, 2*time.Second))
		for _, id := range []string{"0", "2"} {
			if err := k.node.delays.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		k.node.delays.Close(t.Context())
		k.open(topic.DelayConfig{})
		time.Sleep(10 * time.Second)
		k.want("1")
		for _, id := range []string{"0", "1", "2", "3"} {
			if err := k.node.delays.Cancel(t.Context(), id); !errors.Is(err, topic.ErrNotFound) {
				t.Errorf("%s again: %v, want ErrNotFound", id, err)
			}
		}
	})
}

// A cancel at the moment of the release reports the truth, in either order of the two.
func TestCancelAtTheMomentOfTheRelease(t *testing.T) {
	for _, before := range []time.Duration{2 * time.Millisecond, time.Millisecond, 0, -time.Millisecond, -3 * time.Millisecond, -5 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			k := newDelayKit(t, topic.DelayConfig{})
			k.node.delays.Close(t.Context())
			delays, err := delay.Open(t.Context(), faultyLog{k.log, k.node}, k.node, topic.DelayConfig{})
			if err != nil {
				t.Fatal(err)
			}
			k.node.delays = delays
			due := time.Now().Add(time.Second)
			k.add(k.delayed(0, time.Second))
			time.Sleep(time.Until(due) - 2*time.Millisecond - 500*time.Microsecond)
			go k.node.delays.Add(t.Context(), k.delayed(1, time.Hour)) //nolint:errcheck // an entry is on its way in the meantime
			time.Sleep(time.Until(due) - before)
			err = k.node.delays.Cancel(t.Context(), "0")
			time.Sleep(time.Minute)
			if shown := len(k.shown()); (err == nil) != (shown == 0) || err != nil && !errors.Is(err, topic.ErrNotFound) {
				t.Errorf("canceled %v before: %v, and %d appeared", before, err, shown)
			}
		})
	}
}

func TestDelayedRecordsHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{Pending: 3})
		k.add(k.delayed(0, time.Second, time.Second))
		if _, err := k.node.delays.Add(t.Context(), k.delayed(2, time.Second, time.Second)); !errors.Is(err, topic.ErrDelaysFull) {
			t.Fatalf("a fourth: %v, want ErrDelaysFull", err)
		}
		k.add(k.delayed(0, time.Second, time.Second, time.Second)) // two of them wait already
		time.Sleep(2 * time.Second)
		k.want("0", "1", "2")
		k.add(k.delayed(3, time.Second, time.Second, time.Second))
	})
}

func TestDelayedRecordsOfABatchThatWasNotAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		dropped, err := k.node.delays.Add(t.Context(), k.delayed(0, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		open, err := k.node.delays.Add(t.Context(), k.delayed(1, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		unsure, err := k.node.delays.Add(t.Context(), k.delayed(2, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		dropped.Drop()
		unsure.Unsure()
		time.Sleep(time.Minute)
		k.want()
		open.Keep()
		time.Sleep(20 * time.Millisecond)
		k.want("1")
		k.node.delays.Resolve()
		time.Sleep(20 * time.Millisecond)
		k.want("1", "2")
	})
}

// A caller that leaves before the records are durable has not added them.
func TestAddThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		k.store.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.node.delays.Add(ctx, k.delayed(0, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want the context's error", err)
		}
		k.store.Release()
		time.Sleep(time.Minute)
		k.want()
		if n := k.node.delays.Pending(); n != 0 {
			t.Errorf("%d wait, want none", n)
		}
	})
}

func TestDelayLogIsRefusedToTheOlderOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		older := k.node.delays
		k.open(topic.DelayConfig{})
		k.add(k.delayed(0, time.Hour))
		if _, err := older.Add(t.Context(), k.delayed(1, time.Hour)); !errors.Is(err, topic.ErrRetry) || !errors.Is(err, topic.ErrFenced) {
			t.Errorf("%v, want ErrRetry and ErrFenced", err)
		}
		<-older.Failed()
		if err := older.Close(t.Context()); !errors.Is(err, topic.ErrFenced) {
			t.Errorf("the older closes with %v, want ErrFenced", err)
		}
		if err := older.Cancel(t.Context(), "0"); !errors.Is(err, topic.ErrRetry) {
			t.Errorf("after that: %v, want ErrRetry", err)
		}
	})
}

func TestDelaysWithoutRoomOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		k.add(k.delayed(0, time.Second))
		k.store.FailAppends(topic.ErrFull, false)
		if _, err := k.node.delays.Add(t.Context(), k.delayed(1, time.Second)); !errors.Is(err, topic.ErrFull) {
			t.Fatalf("%v, want ErrFull", err)
		}
		time.Sleep(time.Minute)
		k.want()
		k.store.FailAppends(nil, false)
		time.Sleep(5 * time.Second)
		k.want("0")
		k.add(k.delayed(1, time.Second))
		time.Sleep(5 * time.Second)
		k.want("0", "1")
	})
}

func TestDelayLogThatIsCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		k.node.delays.Close(t.Context())
		_, last, err := k.log.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		k.log.Append(topic.Entry{Sequence: last + 1, Data: []byte("nonsense")}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := delay.Open(t.Context(), k.log, k.node, topic.DelayConfig{}); !errors.Is(err, topic.ErrCorrupt) {
			t.Errorf("%v, want ErrCorrupt", err)
		}
	})
}

func TestDelaysThatAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		if err := k.node.delays.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := k.node.delays.Add(t.Context(), k.delayed(0, time.Second)); !errors.Is(err, topic.ErrClosed) {
			t.Errorf("Add: %v, want ErrClosed", err)
		}
		if err := k.node.delays.Close(t.Context()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// released returns the number of the last release.
func (k *delayKit) released() int64 {
	k.node.disk.mu.Lock()
	defer k.node.disk.mu.Unlock()
	return k.node.disk.released
}
