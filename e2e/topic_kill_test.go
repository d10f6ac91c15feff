package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Idempotent producers with acks=all write records of all sizes to two topics, consumers of a group
// read and commit them, and a tool commits offsets of its own, while the server is killed with
// SIGKILL repeatedly: at random moments of the load and of the restart. After the last start, an
// independent reader finds every acknowledged record once, at the offset that its producer was
// told, in the order of its producer and without a gap; and no committed offset ever went back.
func TestTopicKill(t *testing.T) {
	t.Parallel()
	kills := 6
	if long() {
		kills = 30
	}
	s := newServer(t)
	s.start()
	r := newTopicKillRun(s)
	for kill := range kills {
		before := r.acknowledged.Load()
		until.True(t, "records are acknowledged", func() bool { return r.acknowledged.Load() >= before+1000 })
		<-time.After(rand.N(300 * time.Millisecond))
		s.kill()
		if kill%3 == 0 { // also while it starts
			s.launch()
			<-time.After(rand.N(250 * time.Millisecond))
			s.kill()
		}
		s.start()
	}
	r.finish()
	r.check()
}

// killTopics are the topics of the load, with their partitions.
var killTopics = map[string]int{"orders": 4, "payments": 2}

// topicKillRun is a load on topics that survives the death of its server.
type topicKillRun struct {
	t            *testing.T
	server       *server
	producers    []*killProducer
	acknowledged atomic.Int64

	// seen are the records that the group received; readers has the group's offsets, tool the
	// offsets that are committed without members.
	seen          *seenRecords
	readers, tool *committedOffsets

	over    context.CancelFunc
	wait    sync.WaitGroup
	reading context.CancelFunc
	members sync.WaitGroup
}

func newTopicKillRun(s *server) *topicKillRun {
	r := &topicKillRun{t: s.t, server: s, seen: newSeenRecords(s.t)}
	for name, partitions := range killTopics {
		s.newTopic(name, partitions)
	}
	loads := []struct {
		topic    string
		smallest int
		largest  int
		burst    int
		options  []kgo.Opt
	}{
		{"orders", 10, 60, 40, []kgo.Opt{kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression())}},
		{"orders", 100, 2000, 20, []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}},
		{"orders", 5000, 60_000, 4, []kgo.Opt{kgo.ProducerLinger(20 * time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression())}},
		{"payments", 10, 300, 40, []kgo.Opt{kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(2000), kgo.ProducerBatchCompression(kgo.SnappyCompression())}},
		{"payments", 1000, 10_000, 10, []kgo.Opt{kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchCompression(kgo.ZstdCompression())}},
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.over = cancel
	for i, load := range loads {
		p := &killProducer{run: r, number: i, topic: load.topic, smallest: load.smallest, largest: load.largest, burst: load.burst}
		p.offsets = make([][]int64, killTopics[load.topic])
		p.sent = make([]int, killTopics[load.topic])
		p.client = s.connect(append(load.options, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(300),
			kgo.ProducerOnDataLossDetected(func(topic string, partition int32) {
				r.t.Errorf("%s/%d: the broker has lost what producer %d had sent before", topic, partition, i)
			}))...)
		r.producers = append(r.producers, p)
		r.wait.Go(func() { p.produce(ctx) })
	}
	r.readers, r.tool = newCommittedOffsets(s, "readers", "orders", "payments"), newCommittedOffsets(s, "tool", "orders", "payments")
	r.wait.Go(func() { r.tool.commitAll(ctx, killTopics) })
	reading, stop := context.WithCancel(context.Background())
	r.reading = stop
	for _, o := range []*committedOffsets{r.readers, r.tool} {
		r.members.Go(func() { o.watch(reading) })
	}
	for range 3 {
		client := r.groupMember()
		r.members.Go(func() { r.consume(reading, client) })
	}
	s.t.Cleanup(func() { // also if the test has failed
		cancel()
		stop()
		r.wait.Wait()
		r.members.Wait()
	})
	return r
}

// finish waits until all sent records are acknowledged and read by the group.
func (r *topicKillRun) finish() {
	r.t.Helper()
	r.over()
	r.wait.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
	defer cancel()
	for _, p := range r.producers {
		if err := p.client.Flush(ctx); err != nil {
			r.t.Fatalf("producer %d: %v", p.number, err)
		}
	}
	for name := range killTopics {
		ends := r.server.topicEnds(name)
		until.True(r.t, fmt.Sprintf("the group has committed all of %s: %v", name, ends), func() bool {
			for partition, end := range ends {
				if r.readers.floor(name, partition) != end {
					return false
				}
			}
			return true
		})
	}
	r.reading()
	r.members.Wait()
}

// check reads everything and compares.
func (r *topicKillRun) check() {
	r.t.Helper()
	next := map[[2]int]int{} // by producer and partition, the number that comes next
	count := 0
	for name := range killTopics {
		r.server.readTopic(name, until.Limit, func(record *kgo.Record) {
			count++
			number, sequence, err := readKillValue(record.Value)
			if err != nil {
				r.t.Fatalf("%s/%d, offset %d: %v", name, record.Partition, record.Offset, err)
			}
			p := r.producers[number]
			key := [2]int{number, int(record.Partition)}
			if want := next[key]; sequence != want {
				r.t.Fatalf("%s/%d, offset %d: record %d of producer %d, want %d", name, record.Partition, record.Offset, sequence, number, want)
			}
			next[key]++
			if p.topic != name || !bytes.Equal(record.Value, p.value(sequence)) {
				r.t.Errorf("%s/%d, offset %d: not what producer %d sent", name, record.Partition, record.Offset, number)
			}
			if told := p.offsets[record.Partition]; sequence >= len(told) {
				r.t.Errorf("%s/%d, offset %d: record %d of producer %d was not sent", name, record.Partition, record.Offset, sequence, number)
			} else if told[sequence] != record.Offset {
				r.t.Errorf("%s/%d, offset %d: producer %d was told %d", name, record.Partition, record.Offset, number, told[sequence])
			}
			r.seen.check(record)
		})
	}
	for _, p := range r.producers {
		for partition, sent := range p.sent {
			if got := next[[2]int{p.number, partition}]; got != sent || len(p.offsets[partition]) != sent {
				r.t.Errorf("%s/%d: %d records of producer %d, %d acknowledged, %d sent", p.topic, partition, got, p.number, len(p.offsets[partition]), sent)
			}
		}
	}
	r.t.Logf("%d records; offsets were looked at %d and %d times", count, r.readers.looks, r.tool.looks)
	if r.readers.looks == 0 || r.tool.looks == 0 {
		r.t.Error("committed offsets were not looked at")
	}
}
