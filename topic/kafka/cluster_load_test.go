package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// Leaders change under load, and no record is lost, repeated or out of order.
func TestLeadersMoveUnderLoad(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	const partitions, perPartition = 3, 400
	if _, err := s.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Partitions: partitions}, false); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	moved := s.keepMoving("orders", partitions, func() bool { return sent.Load() < partitions*perPartition })
	producer := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(50))
	for i := range perPartition {
		for number := range int32(partitions) {
			record := &kgo.Record{Topic: "orders", Partition: number, Value: fmt.Append(nil, i)}
			producer.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
				sent.Add(1)
			})
		}
		if i%20 == 0 {
			<-time.After(5 * time.Millisecond)
		}
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if moves := <-moved; moves < partitions {
		t.Errorf("leaders moved %d times", moves)
	}
	consumer := s.client(kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("readers"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	next, got := map[int32]int{}, 0
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for got < partitions*perPartition {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records came", got, partitions*perPartition)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprint(next[r.Partition]); string(r.Value) != want {
				t.Fatalf("partition %d: record %s at offset %d, want %s", r.Partition, r.Value, r.Offset, want)
			}
			next[r.Partition]++
			got++
		})
	}
	until.Succeeds(t, "commit", func() error { return consumer.CommitUncommittedOffsets(ctx) })
}

// keepMoving changes the leaders of a topic until goesOn returns false and each has changed, and
// returns how often they changed.
func (s *several) keepMoving(name string, partitions int32, goesOn func() bool) <-chan int {
	moved := make(chan int, 1)
	go func() {
		moves := 0
		for goesOn() || moves < int(partitions) {
			for number := range partitions {
				if s.nodes.Elect(s.log(name, number), int32((moves+int(number))%3+1)) {
					moves++
				}
			}
			<-time.After(30 * time.Millisecond)
		}
		moved <- moves
	}()
	return moved
}
