package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// killProducer sends numbered records to the partitions of one topic.
type killProducer struct {
	run    *topicKillRun
	number int
	topic  string
	// smallest and largest bound the bytes of a value; burst is how many records are sent at a
	// time.
	smallest, largest, burst int
	client                   *kgo.Client

	// sent counts the records sent to each partition. offsets are the acknowledged ones, in the
	// order of the records.
	sent    []int
	mu      sync.Mutex
	offsets [][]int64
}

// produce sends until ctx ends. Then it waits until all records are acknowledged.
func (p *killProducer) produce(ctx context.Context) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for range 1 + rand.N(p.burst) {
			partition := rand.N(len(p.sent))
			sequence := p.sent[partition]
			p.sent[partition]++
			record := &kgo.Record{Topic: p.topic, Partition: int32(partition), Value: p.value(sequence)}
			p.client.Produce(context.Background(), record, func(r *kgo.Record, err error) { p.answered(sequence, r, err) })
		}
	}
}

func (p *killProducer) answered(sequence int, r *kgo.Record, err error) {
	if err != nil {
		p.run.t.Errorf("record %d of producer %d to %s/%d: %v", sequence, p.number, p.topic, r.Partition, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := len(p.offsets[r.Partition]); sequence != want {
		p.run.t.Errorf("producer %d is told of record %d before record %d", p.number, sequence, want)
	}
	p.offsets[r.Partition] = append(p.offsets[r.Partition], r.Offset)
	p.run.acknowledged.Add(1)
}

// killPadding fills values: random, so that compressed values stay large, and repeated, so that
// they become smaller.
var killPadding = func() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var padding []byte
	for len(padding) < 70_000 {
		piece := make([]byte, 50)
		for i := range piece {
			piece[i] = byte(random.Uint32())
		}
		padding = append(padding, bytes.Repeat(piece, 1+int(random.Uint32()%4))...)
	}
	return padding
}()

// killValueHeader is the length of the beginning of values: the numbers of the producer and of the
// record.
const killValueHeader = len("0/0000000000 ")

// value returns the value of a record.
func (p *killProducer) value(sequence int) []byte {
	mixed := uint64(sequence+1) * 0x9e3779b97f4a7c15 >> 33
	size := p.smallest + int(mixed)%(p.largest-p.smallest)
	value := make([]byte, 0, killValueHeader+size)
	value = fmt.Appendf(value, "%d/%010d ", p.number, sequence)
	return append(value, killPadding[sequence%1000:][:size]...)
}

func readKillValue(value []byte) (producer, sequence int, err error) {
	begin := value[:min(killValueHeader, len(value))]
	if _, err := fmt.Sscanf(string(begin), "%d/%d", &producer, &sequence); err != nil {
		return 0, 0, fmt.Errorf("value %q was not sent: %w", begin, err)
	}
	return producer, sequence, nil
}

// seenRecords are the records that consumers received, by topic, partition and offset.
type seenRecords struct {
	t  *testing.T
	mu sync.Mutex
	by map[string]map[int32]map[int64]string // the beginning of the value
}

func newSeenRecords(t *testing.T) *seenRecords {
	return &seenRecords{t: t, by: map[string]map[int32]map[int64]string{}}
}

func (s *seenRecords) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[r.Topic] == nil {
		s.by[r.Topic] = map[int32]map[int64]string{}
	}
	if s.by[r.Topic][r.Partition] == nil {
		s.by[r.Topic][r.Partition] = map[int64]string{}
	}
	begin := string(r.Value[:min(killValueHeader, len(r.Value))])
	if before, known := s.by[r.Topic][r.Partition][r.Offset]; known && before != begin {
		s.t.Errorf("%s/%d, offset %d: %q, and before it was %q", r.Topic, r.Partition, r.Offset, begin, before)
	}
	s.by[r.Topic][r.Partition][r.Offset] = begin
}

// check fails unless a record is the one that consumers received at its offset.
func (s *seenRecords) check(r *kgo.Record) {
	got, known := s.by[r.Topic][r.Partition][r.Offset]
	if want := string(r.Value[:killValueHeader]); !known || got != want {
		s.t.Errorf("%s/%d, offset %d: consumers were given %q, want %q", r.Topic, r.Partition, r.Offset, got, want)
	}
}

// groupMember returns a consumer of the group that reads everything.
func (r *topicKillRun) groupMember() *kgo.Client {
	topics := []string{}
	for name := range killTopics {
		topics = append(topics, name)
	}
	return r.server.connect(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(200*time.Millisecond))
}

// consume runs a member of the group: it records the received records and the acknowledged commits.
func (r *topicKillRun) consume(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollRecords(soon, 2000)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			var away *kgo.ErrGroupSession // the broker is away; the client retries
			if !errors.As(err, &away) && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				r.t.Errorf("read %s/%d: %v", topic, partition, err)
			}
		})
		next := map[string]map[int32]kgo.EpochOffset{}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, record := range p.Records {
				r.seen.add(record)
			}
			if n := len(p.Records); n > 0 {
				if next[p.Topic] == nil {
					next[p.Topic] = map[int32]kgo.EpochOffset{}
				}
				next[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: -1, Offset: p.Records[n-1].Offset + 1}
			}
		})
		if len(next) > 0 {
			client.CommitOffsetsSync(ctx, next, r.readers.answered) // without a deadline, as in crewMember.consume
		}
		client.AllowRebalance()
	}
}
