//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/e2e/cluster/history"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// load is a set of idempotent producers with acks=all, readers, and a consumer group on one topic.
// It records all they do.
type load struct {
	cluster    *cluster
	t          *testing.T
	partitions int
	recorder   *history.Recorder
	admin      *kadm.Client
	group      *groupOffsets

	stopProducing context.CancelFunc
	producing     sync.WaitGroup
	producers     []*producer
	stopReading   context.CancelFunc
	reading       sync.WaitGroup
}

// The load of each run: every producer sends a record to each partition in every interval, unless
// mostWaiting records of that partition are unanswered.
const (
	producerCount = 3
	readerCount   = 2
	memberCount   = 3
	sendInterval  = 15 * time.Millisecond
	mostWaiting   = 300
)

// newLoad creates the topic and starts the load.
func newLoad(c *cluster, partitions, replicas int) *load {
	c.t.Helper()
	c.newTopic(topicName, partitions, replicas)
	l := &load{cluster: c, t: c.t, partitions: partitions, recorder: history.NewRecorder(partitions), admin: kadm.NewClient(c.connect())}
	sending, stopProducing := context.WithCancel(context.Background())
	reading, stopReading := context.WithCancel(context.Background())
	l.stopProducing, l.stopReading = stopProducing, stopReading
	for number := range producerCount {
		p := newProducer(l, number)
		l.producers = append(l.producers, p)
		l.producing.Go(func() { p.run(sending) })
	}
	for number := range readerCount {
		client := c.connect(kgo.ConsumeTopics(topicName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
		l.reading.Go(func() { l.read(reading, client, fmt.Sprintf("reader %d", number)) })
	}
	l.group = newGroupOffsets(l)
	l.reading.Go(func() { l.group.watch(reading) })
	for range memberCount {
		client := l.member()
		l.reading.Go(func() { l.consume(reading, client) })
	}
	c.t.Cleanup(func() { // also if the test has failed
		stopProducing()
		stopReading()
		l.producing.Wait()
		l.reading.Wait()
	})
	return l
}

// flows waits until the given number of further records is acknowledged, with some in every
// partition.
func (l *load) flows(count int) {
	l.t.Helper()
	before := l.recorder.Acknowledged()
	eventually(l.t, until.Limit, fmt.Sprintf("%d more records are acknowledged", count), func() bool { return l.recorder.Acknowledged() >= before+count })
}

// drainTime bounds how long it takes, with all nodes healthy, until all sent records are
// acknowledged and read by all readers.
const drainTime = until.Limit

// finish ends the load when all records are acknowledged and read, and reports.
func (l *load) finish() *history.Report {
	l.t.Helper()
	l.stopProducing()
	l.producing.Wait()
	l.recorder.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	for _, p := range l.producers {
		if err := p.client.Flush(ctx); err != nil {
			l.t.Fatalf("producer %d waits for answers: %v", p.number, err)
		}
	}
	ends := l.cluster.ends(l.admin)
	log := l.readAll(ends)
	if !within(drainTime, func() bool { return reached(l.group.committed(), ends) }) {
		l.t.Errorf("not within %v: the group has committed %v, and the ends are %v", drainTime, l.group.committed(), ends)
	}
	l.stopReading()
	l.reading.Wait()
	return l.report(history.NewReport(l.recorder.History(log)))
}

// report logs a report, and fails the test for its violations.
func (l *load) report(r *history.Report) *history.Report {
	l.t.Helper()
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		l.t.Error(err)
	}
	l.t.Logf("\n%s", &text)
	writeReport(l.t, r)
	if len(r.Violations) > 0 {
		l.t.Errorf("violations: %v", r.Counts)
	}
	if r.Failed > 0 {
		l.t.Errorf("producers were refused %d records for good", r.Failed)
	}
	return r
}

// producer sends numbered records to all partitions.
type producer struct {
	load    *load
	number  int
	client  *kgo.Client
	next    []int64
	waiting []atomic.Int64
}

func newProducer(l *load, number int) *producer {
	p := &producer{load: l, number: number, next: make([]int64, l.partitions), waiting: make([]atomic.Int64, l.partitions)}
	p.client = l.cluster.connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProduceRequestTimeout(2*time.Second), kgo.MaxBufferedRecords(mostWaiting*l.partitions+1),
		kgo.ProducerOnDataLossDetected(func(topic string, partition int32) {
			l.recorder.Complain("lost", "producer %d is told that %s/%d has lost what it had sent before", number, topic, partition)
		}))
	return p
}

func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(sendInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for partition := range p.next {
			if p.waiting[partition].Load() < mostWaiting {
				p.send(partition)
			}
		}
	}
}

func (p *producer) send(partition int) {
	s := history.Send{Producer: p.number, Partition: int32(partition), Number: p.next[partition], Sent: p.load.recorder.Now(), Offset: history.Unknown}
	p.next[partition]++
	p.waiting[partition].Add(1)
	record := &kgo.Record{Topic: topicName, Partition: s.Partition, Value: value(s.Producer, s.Number)}
	p.client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
		p.waiting[partition].Add(-1)
		if err == nil {
			s.Offset = r.Offset
		} else {
			p.load.t.Logf("record %d of producer %d to partition %d: %v", s.Number, s.Producer, s.Partition, err)
		}
		p.load.recorder.Sent(s)
	})
}

// padding fills values; it is random, so that it cannot be compressed.
var padding = func() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	bytes := make([]byte, 40_000)
	for i := range bytes {
		bytes[i] = byte(random.Uint32())
	}
	return bytes
}()

// value returns the value of a record: mostly some hundred bytes, rarely many.
func value(producer int, number int64) []byte {
	mixed := uint64(number+1) * 0x9e3779b97f4a7c15 >> 33
	size := 20 + mixed%300
	if mixed%400 == 0 {
		size = 30_000
	}
	return append(fmt.Appendf(nil, "%d/%d ", producer, number), padding[number%1000:][:size]...)
}

// readValue converts a record for the history.
func readValue(r *kgo.Record) history.Record {
	read := history.Record{Partition: r.Partition, Offset: r.Offset, Producer: -1, Number: -1}
	if _, err := fmt.Sscanf(string(r.Value[:min(len(r.Value), 40)]), "%d/%d ", &read.Producer, &read.Number); err != nil {
		read.Changed = true
		return read
	}
	read.Changed = !bytes.Equal(r.Value, value(read.Producer, read.Number))
	return read
}

// readValues returns the records of a fetch.
func readValues(fetches kgo.Fetches) (records []history.Record) {
	fetches.EachRecord(func(r *kgo.Record) { records = append(records, readValue(r)) })
	return records
}

// complain records errors of a consumer that no fault excuses.
func (l *load) complain(who string, fetches kgo.Fetches) {
	fetches.EachError(func(_ string, partition int32, err error) {
		var lost *kgo.ErrDataLoss
		if errors.As(err, &lost) {
			l.recorder.Complain("lost", "%s, partition %d: %v", who, partition, err)
		}
	})
}

// read runs a reader without a group.
func (l *load) read(ctx context.Context, client *kgo.Client, name string) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		l.complain(name, fetches)
		l.recorder.Read(name, readValues(fetches)...)
	}
}

// readAll reads all records, up to the ends.
func (l *load) readAll(ends map[int32]int64) (log []history.Record) {
	l.t.Helper()
	client := l.cluster.connect(kgo.ConsumeTopics(topicName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	positions := map[int32]int64{}
	for !reached(positions, ends) {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			l.t.Fatalf("not within %v: read all up to %v, it is at %v", drainTime, ends, positions)
		}
		l.complain("the last reader", fetches)
		records := readValues(fetches)
		for _, r := range records {
			positions[r.Partition] = max(positions[r.Partition], r.Offset+1)
		}
		log = append(log, records...)
	}
	return log
}
