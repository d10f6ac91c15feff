package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// eventLog is what publishing events needs of the partitions of a topic.
type eventLog interface {
	// append returns when the batch is durable. The batch is not changed.
	append(ctx context.Context, to *topic.Topic, number int32, batch topic.Batch) error
	// read returns whole batches from an offset on; see topic.Topic.Read.
	read(ctx context.Context, to *topic.Topic, number int32, offset int64) (topic.Fetched, error)
	// find returns the first offset of each partition whose record is not older
	// than that, -1 if there is none, and its ends.
	find(ctx context.Context, to *topic.Topic, at int64) ([]found, error)
}

// found is where in a partition a time is.
type found struct {
	offset int64
	extent
}

// ownLog is the log of a process that leads all partitions.
type ownLog struct{}

func (ownLog) append(ctx context.Context, to *topic.Topic, number int32, batch topic.Batch) error {
	// A copy: what is appended becomes the partition's.
	a, err := to.Append(ctx, number, []topic.Batch{slices.Clone(batch)})
	if err != nil {
		return err
	}
	_, _, err = a.Wait(ctx)
	return err
}

func (ownLog) read(ctx context.Context, to *topic.Topic, number int32, offset int64) (topic.Fetched, error) {
	return to.Read(ctx, number, offset, eventReadBytes)
}

func (ownLog) find(ctx context.Context, to *topic.Topic, at int64) ([]found, error) {
	var places []found
	for _, partition := range to.Partitions() {
		offset, _, err := partition.OffsetAt(ctx, at)
		if err != nil {
			return nil, err
		}
		ends := partition.Ends()
		places = append(places, found{offset, extent{ends.Start, ends.HighWatermark}})
	}
	return places, nil
}

// clusterLog is the log of a node of a cluster: each request goes to the node that
// leads the partition, as a Kafka client's, and also if it is this one.
type clusterLog struct {
	client *kgo.Client
	admin  *kadm.Client
}

// eventAnswer is how long a node may take to answer.
const eventAnswer = 30 * time.Second

// newClusterLog returns a log, to be closed, whose requests begin at a node that
// clients reach at that address. It connects when it is needed.
func newClusterLog(node topic.Advertised) (*clusterLog, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(net.JoinHostPort(node.Host, strconv.Itoa(int(node.Port)))), kgo.ClientID("sluice-events"),
		kgo.RetryTimeout(eventAnswer), kgo.ProduceRequestTimeout(eventAnswer),
	)
	if err != nil {
		return nil, fmt.Errorf("the client for events: %w", err)
	}
	return &clusterLog{client, kadm.NewClient(client)}, nil
}

func (l *clusterLog) close() { l.client.Close() }

// append sends the very batch, so that it is the same however often it is tried.
func (l *clusterLog) append(ctx context.Context, to *topic.Topic, number int32, batch topic.Batch) error {
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Partition, partition.Records = number, slices.Clone(batch)
	of := kmsg.NewProduceRequestTopic()
	of.Topic, of.TopicID, of.Partitions = to.Name(), to.ID(), []kmsg.ProduceRequestTopicPartition{partition}
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis, request.Topics = -1, int32(eventAnswer.Milliseconds()), []kmsg.ProduceRequestTopic{of}
	response, err := l.ask(ctx, to, number, request)
	if err != nil {
		return err
	}
	answer := response.(*kmsg.ProduceResponse)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return errOddAnswer
	}
	is := answer.Topics[0].Partitions[0]
	return asOfTopic(is.ErrorCode, is.ErrorMessage)
}

func (l *clusterLog) read(ctx context.Context, to *topic.Topic, number int32, offset int64) (topic.Fetched, error) {
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.Partition, partition.FetchOffset, partition.PartitionMaxBytes = number, offset, eventReadBytes
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.TopicID, of.Partitions = to.Name(), to.ID(), []kmsg.FetchRequestTopicPartition{partition}
	request := kmsg.NewPtrFetchRequest()
	request.MaxBytes, request.SessionEpoch, request.Topics = eventReadBytes, -1, []kmsg.FetchRequestTopic{of}
	response, err := l.ask(ctx, to, number, request)
	if err != nil {
		return topic.Fetched{}, err
	}
	answer := response.(*kmsg.FetchResponse)
	if answer.ErrorCode != 0 {
		return topic.Fetched{}, asOfTopic(answer.ErrorCode, nil)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return topic.Fetched{}, errOddAnswer
	}
	is := answer.Topics[0].Partitions[0]
	fetched := topic.Fetched{Size: len(is.RecordBatches), Ends: topic.Ends{Start: is.LogStartOffset, HighWatermark: is.HighWatermark}}
	if fetched.Size > 0 {
		fetched.Data = [][]byte{is.RecordBatches}
	}
	return fetched, asOfTopic(is.ErrorCode, nil)
}

func (l *clusterLog) find(ctx context.Context, to *topic.Topic, at int64) ([]found, error) {
	var listed [3]kadm.ListedOffsets
	for i, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){
		func(ctx context.Context, names ...string) (kadm.ListedOffsets, error) {
			return l.admin.ListOffsetsAfterMilli(ctx, at, names...)
		}, l.admin.ListStartOffsets, l.admin.ListEndOffsets,
	} {
		var err error
		if listed[i], err = list(ctx, to.Name()); err == nil {
			err = listed[i].Error()
		}
		if err != nil {
			return nil, err
		}
	}
	places := make([]found, len(to.Partitions()))
	for number := range places {
		var offsets [3]int64
		for i := range listed {
			is, ok := listed[i].Lookup(to.Name(), int32(number))
			if !ok {
				return nil, fmt.Errorf("%w: offsets of %s without partition %d", errOddAnswer, to.Name(), number)
			}
			offsets[i] = is.Offset
		}
		places[number] = found{offsets[0], extent{offsets[1], offsets[2]}}
	}
	return places, nil
}

// errOddAnswer says that a node has answered something else than it was asked.
var errOddAnswer = errors.New("not the answer to the request")

// ask makes a request to the node that leads a partition. If it fails, the next one
// finds the nodes where they are by then.
func (l *clusterLog) ask(ctx context.Context, to *topic.Topic, number int32, request kmsg.Request) (kmsg.Response, error) {
	if err := to.Has(number); err != nil {
		return nil, err
	}
	leader := to.Partitions()[number].Leader()
	if leader < 0 {
		return nil, fmt.Errorf("%w: nobody leads partition %d of %s now", topic.ErrNotLeader, number, to.Name())
	}
	response, err := l.client.Broker(int(leader)).Request(ctx, request)
	if err == nil {
		return response, nil
	}
	// Requests for metadata are also how the client learns where nodes are.
	if _, unknown := kmsg.NewPtrMetadataRequest().RequestWith(ctx, l.client); unknown != nil {
		return nil, errors.Join(err, unknown)
	}
	return l.client.Broker(int(leader)).Request(ctx, request)
}

// ofTopic are the protocol's errors that publishing branches on.
var ofTopic = map[int16]error{
	kerr.OutOfOrderSequenceNumber.Code: topic.ErrOutOfOrderSequence,
	kerr.InvalidProducerEpoch.Code:     topic.ErrProducerFenced,
	kerr.MessageTooLarge.Code:          topic.ErrRecordTooLarge,
	kerr.InvalidTimestamp.Code:         topic.ErrInvalidTimestamp,
	kerr.OffsetOutOfRange.Code:         topic.ErrOffsetOutOfRange,
	kerr.UnknownTopicOrPartition.Code:  topic.ErrNoTopic,
	kerr.NotLeaderForPartition.Code:    topic.ErrNotLeader,
}

// asOfTopic makes topic's error of a code, or nil.
func asOfTopic(code int16, text *string) error {
	err := kerr.ErrorForCode(code)
	if known := ofTopic[code]; known != nil {
		err = known
	}
	if err == nil || text == nil || *text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *text)
}
