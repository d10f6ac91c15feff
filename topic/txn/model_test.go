package txn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
	"github.com/sluice-project/sluice/topic/txn"
)

// world is everything that outlives a coordinator: the metadata, the partitions and the groups. Each
// write to it may fail, before or after it was made.
type world struct {
	topic.Meta
	chance chance
	bad    atomic.Int64 // how many percent of the writes fail
	mu     sync.Mutex   // guards what follows
	// records has what each partition got, in order; applied the offset of each group.
	records map[int32][]record
	applied map[string]int64
	nextID  int64
	mayEnd  func(ctx context.Context, m txn.Marker) (bool, error)
}

// chance is a source of random numbers for several goroutines.
type chance struct {
	mu sync.Mutex
	*rand.Rand
}

func (c *chance) IntN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Rand.IntN(n)
}

// record is a value of a producer, or a marker.
type record struct {
	producer txn.Producer
	value    int
	marker   bool
	commit   bool
}

type outcome int

const (
	works outcome = iota
	failsBefore
	failsAfter
)

var errCrash = errors.New("crashed")

// fails decides about a write.
func (w *world) fails() outcome {
	if int64(w.chance.IntN(100)) >= w.bad.Load() {
		return works
	}
	return failsBefore + outcome(w.chance.IntN(2))
}

// once makes a write that may fail.
func (w *world) once(write func() error) error {
	switch w.fails() {
	case failsBefore:
		return errCrash
	case failsAfter:
		_ = write()
		return fmt.Errorf("%w: %w", topic.ErrUncertain, errCrash)
	}
	return write()
}

// Put implements topic.Meta.
func (w *world) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (put uint64, err error) {
	err = w.once(func() (err error) {
		put, err = w.Meta.Put(ctx, key, value, revision, guards...)
		return err
	})
	return put, err
}

// Mark implements txn.Parts.
func (w *world) Mark(ctx context.Context, _ string, partition int32, m txn.Marker) error {
	return w.once(func() error {
		if decided, err := w.mayEnd(ctx, m); err != nil || !decided {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open(partition, m.Producer.ID) {
			w.records[partition] = append(w.records[partition], record{producer: m.Producer, marker: true, commit: m.Commit})
		}
		return nil
	})
}

// open reports whether a producer has records without a marker.
func (w *world) open(partition int32, producer int64) (open bool) {
	for _, r := range w.records[partition] {
		if r.producer.ID == producer {
			open = !r.marker
		}
	}
	return open
}

// CommitOffsets implements txn.Parts.
func (w *world) CommitOffsets(ctx context.Context, group string, offsets txn.Offsets, m txn.Marker) error {
	return w.once(func() error {
		if decided, err := w.mayEnd(ctx, m); err != nil || !decided {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.applied[group] = offsets["in"][0].Offset
		return nil
	})
}

// NewProducerID implements txn.Parts.
func (w *world) NewProducerID(context.Context) (int64, error) { w.nextID++; return w.nextID, nil }

// Coordinates implements txn.Parts.
func (w *world) Coordinates(string) bool { return true }

// Writable implements txn.Parts.
func (w *world) Writable() ([]topic.Guard, error) { return nil, nil }

// offset returns the offset of a group.
func (w *world) offset(group string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applied[group]
}

// visible returns the values of committed transactions in a partition, and whether none is open.
func (w *world) visible(partition int32) (values []int, settled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := map[int64][]int{}
	for _, r := range w.records[partition] {
		switch {
		case !r.marker:
			open[r.producer.ID] = append(open[r.producer.ID], r.value)
		case r.commit:
			values = append(values, open[r.producer.ID]...)
			fallthrough
		default:
			delete(open, r.producer.ID)
		}
	}
	return values, len(open) == 0
}

// checkEpochs checks that nothing of an earlier epoch follows.
func (w *world) checkEpochs(t *testing.T, partition int32) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[int64]int16{}
	for _, r := range w.records[partition] {
		if r.producer.Epoch < last[r.producer.ID] {
			t.Errorf("%v writes after epoch %d", r.producer, last[r.producer.ID])
		}
		last[r.producer.ID] = r.producer.Epoch
	}
}

// Each input appears in both partitions once, or not at all, exactly when the group's offset is after it: a program that
// copies input transactionally is killed at any step, as are coordinators, and writes fail.
func TestEachInputCountsOnceOverCrashes(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			w := &world{chance: chance{Rand: rand.New(rand.NewPCG(seed, 1))}, Meta: storetest.NewMemory().Meta(), records: map[int32][]record{}, applied: map[string]int64{}}
			w.bad.Store(random.Int64N(40))
			var c *txn.Coordinator
			restart := func() {
				if c != nil {
					_ = c.Stop(t.Context())
				}
				c = txn.New(w, w, slog.New(slog.DiscardHandler))
				w.mayEnd = c.Decided
				c.Start()
			}
			restart()
			if seed%2 == 1 { // the epochs of the id end soon
				record := fmt.Sprintf(`{"format":1,"state":"Empty","producer":{"id":1000,"epoch":%d},"last_epoch":-1,"changed_ms":%d}`, math.MaxInt16-1-random.IntN(8), time.Now().UnixMilli())
				if _, err := w.Meta.Put(t.Context(), txn.Prefix+"copier", []byte(record), 0); err != nil {
					t.Fatal(err)
				}
			}
			const inputs = 5
			for attempt := 0; w.offset("copiers") < inputs; attempt++ {
				if attempt == 100 {
					w.bad.Store(0)
				}
				copyInputs(t, random, w, c, inputs)
				if random.IntN(2) == 0 {
					restart()
				}
			}
			w.bad.Store(0)
			time.Sleep(2 * time.Minute) // open transactions time out
			for partition := range int32(2) {
				w.checkEpochs(t, partition)
				values, settled := w.visible(partition)
				if !settled || fmt.Sprint(values) != "[0 1 2 3 4]" {
					t.Errorf("seed %d: partition %d shows %v, settled: %v; want each input once", seed, partition, values, settled)
				}
			}
			_ = c.Stop(t.Context())
		})
	}
}

// copyInputs copies inputs to two partitions, each in a transaction, from the group's offset on, until
// something fails or the program is killed. Some programs use version 2 of transactions.
func copyInputs(t *testing.T, random *rand.Rand, w *world, c *txn.Coordinator, inputs int64) {
	ctx := t.Context()
	p, err := c.Init(ctx, "copier", time.Minute, nil)
	if err != nil {
		return
	}
	second := random.IntN(2) == 0
	killed := func() bool { return random.IntN(20) == 0 }
	for at := w.offset("copiers"); at < inputs; at++ {
		if second && random.IntN(5) == 0 && !endAndBump(t, c, &p, false) { // nothing has begun
			return
		}
		if !second && c.AddPartitions(ctx, "copier", p, map[string][]int32{"out": {0, 1}}) != nil || killed() {
			return
		}
		for partition := range int32(2) {
			if second && c.AddPartitions(ctx, "copier", p, map[string][]int32{"out": {partition}}) != nil {
				return
			}
			if _, err := c.Ongoing(ctx, "copier", p, "out", partition); err != nil {
				return
			}
			w.mu.Lock()
			w.records[partition] = append(w.records[partition], record{producer: p, value: int(at)})
			w.mu.Unlock()
			if killed() {
				return
			}
		}
		offsets := txn.Offsets{"in": {0: {Offset: at + 1}}}
		if !second && c.AddGroup(ctx, "copier", p, "copiers") != nil ||
			c.AddOffsets(ctx, "copier", p, "copiers", offsets, second, topic.Guard{Key: "groups/copiers"}) != nil || killed() {
			return
		}
		ended := second && endAndBump(t, c, &p, true) || !second && c.End(ctx, "copier", p, true) == nil
		if !ended || killed() {
			return
		}
		// A program that goes on has seen its commit; the next transaction waits for it.
		for pending := true; pending; {
			of, err := c.Pending(ctx)
			if err != nil {
				return
			}
			if pending = len(of) > 0; pending {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

// endAndBump ends a transaction of version 2, and reports whether that was answered. A repeated end has the same answer,
// the other outcome is refused, and the producer that has ended it can do nothing more.
func endAndBump(t *testing.T, c *txn.Coordinator, p *txn.Producer, commit bool) bool {
	t.Helper()
	former := *p
	next, err := c.EndAndBump(t.Context(), "copier", former, commit)
	if err != nil {
		return false
	}
	if next.ID == former.ID && next.Epoch != former.Epoch+1 || next.ID != former.ID && (next.Epoch != 0 || former.Epoch != math.MaxInt16-1) || next.Epoch == math.MaxInt16 {
		t.Errorf("after %v comes %v", former, next)
	}
	if again, err := c.EndAndBump(t.Context(), "copier", former, commit); again != next && !errors.Is(err, txn.ErrUnavailable) {
		t.Errorf("ended again: %v, %v, want %v", again, err, next)
	}
	if _, err := c.EndAndBump(t.Context(), "copier", former, !commit); err == nil {
		t.Errorf("the transaction of %v was ended with both outcomes", former)
	}
	if err := c.AddPartitions(t.Context(), "copier", former, map[string][]int32{"out": {0}}); err == nil {
		t.Errorf("%v begins a transaction after its end", former)
	}
	*p = next
	return true
}

// A transaction of a newer version is refused, with what to do.
func TestNewerTransactionIsRefused(t *testing.T) {
	meta := storetest.NewMemory().Meta()
	if _, err := meta.Put(t.Context(), txn.Prefix+"one", []byte(`{"format":3}`), 0); err != nil {
		t.Fatal(err)
	}
	coordinator := txn.New(meta, nil, slog.New(slog.DiscardHandler))
	err := coordinator.Each(t.Context(), func(string, uint64, txn.Transaction) { t.Error("it is read") })
	if err == nil || !strings.Contains(err.Error(), "upgrade this node") {
		t.Errorf("a transaction of format 3: %v", err)
	}
}
