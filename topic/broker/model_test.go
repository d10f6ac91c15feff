package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// partitionModel is the expected state of a partition: a list of records, starting at an
// offset. Two idempotent producers send each batch until it is acknowledged.
type partitionModel struct {
	store   *storetest.Memory
	broker  *broker.Broker
	orders  *broker.Topic
	records []string // by offset
	start   int64
	senders [2]modelSender
	number  int
}

// modelSender is one idempotent producer: sequence is the number of its next batch, and
// open is a batch that was not acknowledged and is to be sent again.
type modelSender struct {
	sequence int32
	open     []string
}

const smallEntries = 300 // for the tail: most reads go to the log

func (m *partitionModel) begin(t *rapid.T) {
	var err error
	if m.broker, err = broker.New(m.store, topic.Config{TailBytes: smallEntries, RetentionInterval: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := m.broker.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if m.orders, err = m.broker.AutoCreate(context.Background(), "orders", ""); err != nil {
		t.Fatal(err)
	}
}

func (m *partitionModel) end(t *rapid.T) {
	m.store.Release()
	if err := m.broker.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// values returns the records of a batch.
func (m *partitionModel) values(t *rapid.T) []string {
	values := make([]string, rapid.IntRange(1, 4).Draw(t, "records"))
	for i := range values {
		m.number++
		values[i] = fmt.Sprint("record ", m.number)
	}
	return values
}

// Send appends a batch of either kind of producer.
func (m *partitionModel) Send(t *rapid.T) {
	if m.send(t) {
		t.Fatal("append failed")
	}
}

// send appends a batch; an idempotent producer sends a failed batch again the next
// time.
func (m *partitionModel) send(t *rapid.T) (failed bool) {
	values, from := m.values(t), anybody
	which := rapid.IntRange(-1, len(m.senders)-1).Draw(t, "producer")
	var s *modelSender
	if which >= 0 {
		s = &m.senders[which]
		if s.open != nil {
			values = s.open
		}
		from = sender{id: int64(which), epoch: 0, sequence: s.sequence}
	}
	base, err := m.append(batchOf(from, time.Now().UnixMilli(), values...))
	switch {
	case err == nil:
		m.acknowledged(t, base, values)
		if s != nil {
			s.sequence, s.open = s.sequence+int32(len(values)), nil
		}
	case !errors.Is(err, topic.ErrRetry):
		t.Fatalf("append: %v", err)
	case s != nil:
		s.open = values
	}
	return err != nil
}

// acknowledged checks that records are where they should be: at the end, or
// where a failed append left them.
func (m *partitionModel) acknowledged(t *rapid.T, base int64, values []string) {
	m.catchUp(t)
	if base+int64(len(values)) > int64(len(m.records)) || !slices.Equal(m.records[base:base+int64(len(values))], values) {
		t.Fatalf("acknowledged %q at %d, which has others", values, base)
	}
}

func (m *partitionModel) append(b topic.Batch) (int64, error) {
	appending, err := m.orders.Append(context.Background(), 0, []topic.Batch{b})
	if err != nil {
		return 0, err
	}
	base, _, err := appending.Wait(context.Background())
	return base, err
}

// catchUp reads new records, and checks that no record occurs twice.
func (m *partitionModel) catchUp(t *rapid.T) {
	ends := m.orders.Partitions()[0].Ends()
	if ends.HighWatermark < int64(len(m.records)) {
		t.Fatalf("high watermark fell from %d to %d", len(m.records), ends.HighWatermark)
	}
	_, values := m.read(t, max(int64(len(m.records)), ends.Start), 1)
	for _, value := range values {
		if slices.Contains(m.records, value) {
			t.Fatalf("%q is there twice", value)
		}
		m.records = append(m.records, value)
	}
}

func (m *partitionModel) read(t *rapid.T, offset int64, maxBytes int) (offsets []int64, values []string) {
	for {
		fetched, err := m.orders.Read(context.Background(), 0, offset, maxBytes)
		if err != nil {
			t.Fatalf("read at %d: %v", offset, err)
		}
		if fetched.Size == 0 {
			return offsets, values
		}
		o, v := valuesOf(t, fetched.Data...)
		for i := range o {
			if o[i] >= offset {
				offsets, values = append(offsets, o[i]), append(values, v[i])
			}
		}
		offset = o[len(o)-1] + 1
	}
}

// Read compares all records from an offset on with the model.
func (m *partitionModel) Read(t *rapid.T) {
	m.catchUp(t)
	offset := rapid.Int64Range(m.start, int64(len(m.records))).Draw(t, "offset")
	offsets, values := m.read(t, offset, rapid.SampledFrom([]int{1, 200, 1 << 20}).Draw(t, "bytes"))
	if !slices.Equal(values, m.records[offset:]) {
		t.Fatalf("from %d: %d records, want %d", offset, len(values), len(m.records[offset:]))
	}
	for i, o := range offsets {
		if o != offset+int64(i) {
			t.Fatalf("from %d: record %d has offset %d", offset, i, o)
		}
	}
}

// Fail makes one append fail, written or not, and waits until the partition has
// recovered.
func (m *partitionModel) Fail(t *rapid.T) {
	recovered := make(chan struct{}, 1)
	defer m.orders.Partitions()[0].Watch(func() {
		select {
		case recovered <- struct{}{}:
		default:
		}
	})()
	m.store.FailAppends(topic.ErrUncertain, rapid.Bool().Draw(t, "written"))
	failed := m.send(t)
	m.store.FailAppends(nil, false)
	if failed {
		<-recovered
	}
	m.catchUp(t)
}

// DeleteRecords moves the start.
func (m *partitionModel) DeleteRecords(t *rapid.T) {
	m.catchUp(t)
	before := rapid.Int64Range(0, int64(len(m.records))).Draw(t, "before")
	start, err := m.orders.Partitions()[0].DeleteRecords(context.Background(), before)
	m.start = max(m.start, before)
	if err != nil || start != m.start {
		t.Fatalf("delete before %d: start %d, %v, want %d", before, start, err, m.start)
	}
}

// Restart stops the broker cleanly; Crash does not stop it.
func (m *partitionModel) Restart(t *rapid.T) {
	m.end(t)
	m.store = m.store.Reopen()
	m.begin(t)
}

func (m *partitionModel) Crash(t *rapid.T) {
	before := m.broker
	m.store = m.store.Reopen()
	if err := before.Stop(context.Background()); err != nil { // its store was replaced
		t.Fatal(err)
	}
	m.begin(t)
}

// Check is checked after each step.
func (m *partitionModel) Check(t *rapid.T) {
	if ends := m.orders.Partitions()[0].Ends(); ends.Start != m.start || ends.HighWatermark < int64(len(m.records)) {
		t.Fatalf("%+v, want start %d and a high watermark of %d or more", ends, m.start, len(m.records))
	}
}

func TestPartitionAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &partitionModel{store: storetest.NewMemory()}
		m.begin(t)
		defer func() { m.end(t) }()
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "Send": m.Send, "SendMore": m.Send, "Read": m.Read, "Fail": m.Fail,
			"DeleteRecords": m.DeleteRecords, "Restart": m.Restart, "Crash": m.Crash,
		})
	})
}
