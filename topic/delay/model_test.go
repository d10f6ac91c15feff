package delay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
	"github.com/sluice-project/sluice/topic/storetest"
)

// delayMachine executes operations, and holds the expected results.
type delayMachine struct {
	t      *rapid.T
	ctx    context.Context // ends with the test
	config topic.DelayConfig
	disk   *delayDisk
	group  sync.WaitGroup

	mu      sync.Mutex
	node    *delayNode
	count   int
	ids     []string // given ids
	sent    map[string]*sentRecord
	nextSeq [3]int32
	busy    [3]bool
	crashes int
}

// sentRecord is the state of a record, by its value.
type sentRecord struct {
	due                     int64 // 0: at once
	acknowledged            bool
	canceled, maybeCanceled bool
	// twice reports that a crash may have come between two concurrent attempts, of
	// which one found the record due and the other did not.
	twice bool
}

func (m *delayMachine) open() {
	node := &delayNode{disk: m.disk}
	delays, err := delay.Open(context.Background(), faultyLog{m.disk.log, node}, node, m.config)
	if err != nil {
		m.t.Fatal(err)
	}
	node.delays = delays
	m.mu.Lock()
	m.node = node
	m.mu.Unlock()
}

func (m *delayMachine) current() *delayNode {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// stop stops the node: cleanly, or by a crash.
func (m *delayMachine) stop(crash bool) {
	node := m.current()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	node.mu.Lock()
	node.cut, node.closing = crash, true
	node.mu.Unlock()
	if crash {
		m.mu.Lock()
		m.crashes++
		m.mu.Unlock()
		cancel()
	} else {
		node.producing.Wait() // a partition ends before its delayed records do
	}
	if err := node.delays.Close(ctx); err != nil && !crash && !errors.Is(err, topic.ErrFenced) {
		m.t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := node.delays.Close(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, topic.ErrFenced) {
		m.t.Fatal("did not stop: ", err)
	}
}

// revive reopens the queue after a failure: the last write of a node may land when the
// next node has read the end of the log, which fences that write off.
func (m *delayMachine) revive() {
	select {
	case <-m.current().delays.Failed():
		if err := m.current().delays.Err(); !errors.Is(err, topic.ErrFenced) {
			m.t.Fatal(err)
		}
		m.stop(true)
		m.open()
	default:
	}
}

// drawBatch draws a batch, and records its contents.
func (m *delayMachine) drawBatch(t *rapid.T, producer *topic.BatchProducer) (topic.Batch, []string) {
	var records []topic.Record
	var values []string
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rapid.IntRange(1, 4).Draw(t, "records") {
		m.count++
		value := fmt.Sprint("v", m.count)
		record := topic.Record{Offset: int64(i), Value: []byte(value), Timestamp: now.UnixMilli()}
		sent := &sentRecord{}
		wait := rapid.SampledFrom([]time.Duration{0, 5 * time.Millisecond, time.Second, 20 * time.Second, time.Hour}).Draw(t, "delay")
		switch rapid.IntRange(0, 2).Draw(t, "header") {
		case 0:
			record.Headers = append(record.Headers, topic.Header{Key: topic.HeaderDelay, Value: []byte(wait.String())})
		case 1:
			record.Headers = append(record.Headers, topic.Header{Key: topic.HeaderDeliverAt, Value: []byte(now.Add(wait).UTC().Format(time.RFC3339Nano))})
		default:
			wait = 0
		}
		if wait > 0 {
			sent.due = now.Add(wait).UnixMilli()
		}
		if rapid.Bool().Draw(t, "has an id") {
			id := fmt.Sprint("id-", value)
			record.Headers = append(record.Headers, topic.Header{Key: topic.HeaderDelayID, Value: []byte(id)})
			m.ids = append(m.ids, id)
		}
		m.sent[value] = sent
		values = append(values, value)
		records = append(records, record)
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{Producer: producer, Codec: rapid.IntRange(topic.CodecNone, topic.CodecZstd).Draw(t, "codec")})
	if err != nil {
		t.Fatal(err)
	}
	return batch, values
}

// produce sends a batch: an idempotent producer tries until it is acknowledged.
func (m *delayMachine) produce(t *rapid.T) {
	which := rapid.IntRange(-1, 2).Draw(t, "producer")
	var producer *topic.BatchProducer
	if which >= 0 {
		m.mu.Lock()
		busy := m.busy[which]
		m.busy[which] = true
		m.mu.Unlock()
		if busy {
			return
		}
		producer = &topic.BatchProducer{ID: int64(which), Epoch: 1, Sequence: m.nextSeq[which]}
	}
	batch, values := m.drawBatch(t, producer)
	crashes := m.crashes
	twice := producer != nil && rapid.Bool().Draw(t, "sent twice")
	if twice {
		m.group.Go(func() { m.current().produce(context.Background(), slices.Clone(batch)) }) //nolint:errcheck // the client has given it up
	}
	m.group.Go(func() {
		for wait := 7 * time.Millisecond; ; wait = min(2*wait, time.Minute) {
			err := m.current().produce(context.Background(), slices.Clone(batch))
			m.mu.Lock()
			for _, value := range values {
				m.sent[value].acknowledged = err == nil
				m.sent[value].twice = twice && m.crashes > crashes
			}
			if err == nil && which >= 0 {
				m.nextSeq[which] += batch.Count()
				m.busy[which] = false
			}
			m.mu.Unlock()
			if err == nil || which < 0 {
				return
			}
			if m.ctx.Err() != nil {
				return
			}
			pass(wait)
		}
	})
}

func (m *delayMachine) cancel(t *rapid.T) {
	if len(m.ids) == 0 {
		return
	}
	id := rapid.SampledFrom(m.ids).Draw(t, "id")
	m.group.Go(func() {
		m.mu.Lock()
		sent := m.sent[strings.TrimPrefix(id, "id-")]
		acknowledged := sent.acknowledged
		m.mu.Unlock()
		err := m.current().delays.Cancel(context.Background(), id)
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case err == nil:
			sent.canceled = true
			// A producer without an answer before the cancel sends the record again, and may be
			// answered before the cancel is.
			sent.maybeCanceled = !acknowledged
		case !errors.Is(err, topic.ErrNotFound):
			sent.maybeCanceled = true
		}
	})
}

func (m *delayMachine) fail(t *rapid.T) {
	node := m.current()
	node.mu.Lock()
	defer node.mu.Unlock()
	node.faults = append(node.faults, rapid.SliceOfN(rapid.SampledFrom([]string{"lost", "unanswered", ""}), 1, 8).Draw(t, "faults")...)
}

// check compares the records that have appeared with those sent.
func (m *delayMachine) check(final bool) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	times := map[string]int{}
	for _, shown := range m.disk.shown {
		times[shown.value]++
		sent := m.sent[shown.value]
		if shown.id != "" && (shown.at < sent.due || shown.due < sent.due || shown.due > shown.at) {
			m.t.Fatalf("%s appeared at %d with timestamp %d, due at %d", shown.value, shown.at, shown.due, sent.due)
		}
	}
	for value, sent := range m.sent {
		n := times[value]
		switch {
		case n > 1 && !(n == 2 && sent.twice):
			m.t.Fatalf("%s appeared %d times", value, n)
		case n == 1 && sent.canceled && !sent.maybeCanceled:
			m.t.Fatalf("%s was canceled, and appeared", value)
		case final && n == 0 && sent.acknowledged && !sent.canceled && !sent.maybeCanceled:
			m.t.Fatalf("%s was acknowledged, and never appeared", value)
		}
	}
}

func TestDelaysModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			log, err := storetest.NewMemory().OpenLog(context.Background(), "delays", []int32{1})
			if err != nil {
				t.Fatal(err)
			}
			m := &delayMachine{
				t: t, sent: map[string]*sentRecord{},
				disk: &delayDisk{log: log, committed: map[string]time.Time{}},
				config: topic.DelayConfig{
					ReleaseRecords: rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "release records"),
					CacheBytes:     rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(t, "cache"),
					CompactBytes:   rapid.SampledFrom([]int64{1, 1 << 20}).Draw(t, "compact"),
				},
			}
			var end func()
			m.ctx, end = context.WithCancel(context.Background())
			m.open()
			defer func() { // even if the test has failed
				end()
				m.current().delays.Close(context.Background())
				m.group.Wait()
			}()
			operations := map[string]func(*rapid.T){
				"produce": m.produce,
				"cancel":  m.cancel,
				"fail":    m.fail,
				"pass": func(t *rapid.T) {
					pass(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 4 * time.Millisecond, 2 * time.Second, time.Minute}).Draw(t, "time"))
				},
				"crash":   func(*rapid.T) { m.stop(true); m.open() },
				"restart": func(*rapid.T) { m.stop(false); m.open() },
				"":        func(*rapid.T) { m.revive(); m.check(false) },
			}
			for range 3 {
				t.Repeat(operations)
			}
			for range 6 {
				pass(time.Hour)
				m.revive()
			}
			m.group.Wait()
			if n := m.current().delays.Pending(); n > 0 {
				t.Fatalf("%d records still wait", n)
			}
			m.stop(false)
			m.check(true)
		})
	})
}
