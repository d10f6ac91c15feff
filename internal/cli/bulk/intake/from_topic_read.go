package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/cli/brokers"
)

// The bounds of one fetch.
const (
	takeBytes = 4 << 20
	takeWait  = 500 * time.Millisecond
	// takePause is the pause between two fetches.
	takePause = 100 * time.Millisecond
)

// takenPartition is a partition to be read, from next up to end.
type takenPartition struct {
	number    int32
	next, end int64
}

// readOn reads the next records of the first partition that is not read to its end. Partitions are
// read one after another, so that a resumed run has the same order.
func (in *TopicRows) readOn() error {
	p := &in.left[0]
	records, next, err := in.fetch(*p)
	if err != nil {
		return fmt.Errorf("%s, partition %d, from offset %d: %w", in.Name(), p.number, p.next, err)
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

// read1 returns records of a partition and the next offset. It may return no records where the
// offsets are those of a view's hidden records or of markers. It retries for a while when a broker
// fails.
func (in *TopicRows) read1(ctx context.Context, p takenPartition) (records []*kgo.Record, next int64, err error) {
	deadline := time.Now().Add(brokers.BrokerPatience)
	for {
		records, next, err = in.readOnce(ctx, p)
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if err == nil && next > p.next {
			return records, next, nil
		}
		if err != nil && !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) {
			return nil, 0, brokers.Explain(err)
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = fmt.Errorf("no records came within %s, though there should be some up to offset %d", brokers.BrokerPatience, p.end)
			}
			return nil, 0, brokers.Explain(err)
		}
		select {
		case <-time.After(takePause):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (in *TopicRows) readOnce(ctx context.Context, p takenPartition) ([]*kgo.Record, int64, error) {
	detail, err := in.leaderOf(ctx, p.number)
	if err != nil {
		return nil, 0, err
	}
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.number, p.next, takeBytes
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.TopicID, of.Partitions = in.flags.Topic, detail.id, []kmsg.FetchRequestTopicPartition{part}
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = int32(takeWait.Milliseconds()), 1, takeBytes
	request.IsolationLevel = 1 // read committed: the end of the plan is the last stable offset
	request.Topics = []kmsg.FetchRequestTopic{of}
	answer, err := in.Kafka.Broker(int(detail.leader)).RetriableRequest(ctx, request)
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
		Offset: p.next, IsolationLevel: kgo.ReadCommitted(), Topic: in.flags.Topic, Partition: p.number,
	}, &response.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return fetched.Records, next, fetched.Err
}

// leader is the leader of a partition, and the topic's id.
type leader struct {
	leader int32
	id     [16]byte
}

func (in *TopicRows) leaderOf(ctx context.Context, number int32) (leader, error) {
	detail, err := in.Topic(ctx, in.flags.Topic)
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
