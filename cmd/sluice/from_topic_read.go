package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The bounds of one request for records.
const (
	takeBytes = 4 << 20
	takeWait  = 500 * time.Millisecond
	// takePause is how long it waits before it asks again.
	takePause = 100 * time.Millisecond
)

// takenPartition is a partition to be read, from next up to end.
type takenPartition struct {
	number    int32
	next, end int64
}

// readOn reads on in the first partition that is left. Partitions are read one
// after another, so that a run that is gone on with has the same order.
func (in *topicInput) readOn() error {
	p := &in.left[0]
	records, next, err := in.fetch(*p)
	if err != nil {
		return fmt.Errorf("%s, partition %d, from offset %d: %w", in.name(), p.number, p.next, err)
	}
	for _, record := range records {
		if record.Offset < p.end {
			in.ahead = append(in.ahead, record)
		}
	}
	if p.next = next; p.next >= p.end {
		in.left = in.left[1:]
	}
	return nil
}

// read1 returns records of a partition, and the offset to go on from: records may
// be none where offsets are those of a view's hidden records, or of markers. It
// tries again for a while when a broker fails.
func (in *topicInput) read1(ctx context.Context, p takenPartition) (records []*kgo.Record, next int64, err error) {
	deadline := time.Now().Add(brokerPatience)
	for {
		records, next, err = in.readOnce(ctx, p)
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if err == nil && next > p.next {
			return records, next, nil
		}
		if err != nil && !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) {
			return nil, 0, explainKafka(err)
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = fmt.Errorf("no records came within %s, though there should be some up to offset %d", brokerPatience, p.end)
			}
			return nil, 0, explainKafka(err)
		}
		select {
		case <-time.After(takePause):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (in *topicInput) readOnce(ctx context.Context, p takenPartition) ([]*kgo.Record, int64, error) {
	detail, err := in.leaderOf(ctx, p.number)
	if err != nil {
		return nil, 0, err
	}
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.number, p.next, takeBytes
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.TopicID, of.Partitions = in.flags.topic, detail.id, []kmsg.FetchRequestTopicPartition{part}
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = int32(takeWait.Milliseconds()), 1, takeBytes
	request.IsolationLevel = 1 // committed: what ends the run is that too
	request.Topics = []kmsg.FetchRequestTopic{of}
	answer, err := in.client.Broker(int(detail.leader)).RetriableRequest(ctx, request)
	if err != nil {
		return nil, 0, err
	}
	response := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return nil, p.next, nil
	}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: p.next, IsolationLevel: kgo.ReadCommitted(), Topic: in.flags.topic, Partition: p.number,
	}, &response.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return fetched.Records, next, fetched.Err
}

// leader is who leads a partition, and the topic's identity.
type leader struct {
	leader int32
	id     [16]byte
}

func (in *topicInput) leaderOf(ctx context.Context, number int32) (leader, error) {
	detail, err := in.topic(ctx, in.flags.topic)
	if err != nil {
		return leader{}, err
	}
	partition, found := detail.Partitions[number]
	switch {
	case !found:
		return leader{}, fmt.Errorf("it has 0 to %d", len(detail.Partitions)-1)
	case partition.Err != nil:
		return leader{}, partition.Err
	case partition.Leader < 0:
		return leader{}, kerr.LeaderNotAvailable
	}
	return leader{partition.Leader, detail.ID}, nil
}
