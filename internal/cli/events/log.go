package events

import (
	"context"
	"crypto/tls"
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
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// Log is what publishing events needs of the partitions of a topic.
type Log interface {
	// append returns when the batch is durable. The batch is not changed.
	append(ctx context.Context, to *broker.Topic, number int32, batch topic.Batch) error
	// read returns whole batches from an offset on.
	read(ctx context.Context, to *broker.Topic, number int32, offset int64) (broker.Fetched, error)
	// find returns for each partition the first offset whose record is not older than at
	// (-1 if there is none), its start and its end.
	find(ctx context.Context, to *broker.Topic, at int64) ([]found, error)
}

// found is the position of a time in a partition.
type found struct {
	offset     int64
	start, end int64
}

// OwnLog is the log of a process that leads all partitions.
type OwnLog struct{}

func (OwnLog) append(ctx context.Context, to *broker.Topic, number int32, batch topic.Batch) error {
	// Append takes over the batch, so it gets a copy.
	a, err := to.Append(ctx, number, []topic.Batch{slices.Clone(batch)})
	if err != nil {
		return err
	}
	_, _, err = a.Wait(ctx)
	return err
}

func (OwnLog) read(ctx context.Context, to *broker.Topic, number int32, offset int64) (broker.Fetched, error) {
	return to.Read(ctx, number, offset, eventReadBytes)
}

func (OwnLog) find(ctx context.Context, to *broker.Topic, at int64) ([]found, error) {
	var places []found
	for _, partition := range to.Partitions() {
		offset, _, err := partition.OffsetAt(ctx, at)
		if err != nil {
			return nil, err
		}
		ends := partition.Ends()
		places = append(places, found{offset, ends.Start, ends.HighWatermark})
	}
	return places, nil
}

// ClusterLog is the log of a node of a cluster: each request goes to the leader of the
// partition over the Kafka protocol, even if this node leads it.
type ClusterLog struct {
	client *kgo.Client
	admin  *kadm.Client
}

// eventAnswer bounds the answer of a node.
const eventAnswer = 30 * time.Second

// NewClusterLog returns a log whose first request goes to a node at the given address.
// It connects when needed, with TLS unless secure is nil, and authenticates if it is told how. The
// caller closes it.
func NewClusterLog(node topic.Advertised, secure *tls.Config, account ...sasl.Mechanism) (*ClusterLog, error) {
	client, err := kgo.NewClient(
		kgo.DialTLSConfig(secure), kgo.SASL(account...),
		kgo.SeedBrokers(net.JoinHostPort(node.Host, strconv.Itoa(int(node.Port)))), kgo.ClientID("sluice-events"),
		kgo.RetryTimeout(eventAnswer), kgo.ProduceRequestTimeout(eventAnswer),
	)
	if err != nil {
		return nil, fmt.Errorf("the client for events: %w", err)
	}
	return &ClusterLog{client, kadm.NewClient(client)}, nil
}

func (l *ClusterLog) Close() { l.client.Close() }

// append sends the batch unchanged, so that each attempt sends the same.
func (l *ClusterLog) append(ctx context.Context, to *broker.Topic, number int32, batch topic.Batch) error {
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

func (l *ClusterLog) read(ctx context.Context, to *broker.Topic, number int32, offset int64) (broker.Fetched, error) {
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.Partition, partition.FetchOffset, partition.PartitionMaxBytes = number, offset, eventReadBytes
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.TopicID, of.Partitions = to.Name(), to.ID(), []kmsg.FetchRequestTopicPartition{partition}
	request := kmsg.NewPtrFetchRequest()
	request.MaxBytes, request.SessionEpoch, request.Topics = eventReadBytes, -1, []kmsg.FetchRequestTopic{of}
	response, err := l.ask(ctx, to, number, request)
	if err != nil {
		return broker.Fetched{}, err
	}
	answer := response.(*kmsg.FetchResponse)
	if answer.ErrorCode != 0 {
		return broker.Fetched{}, asOfTopic(answer.ErrorCode, nil)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return broker.Fetched{}, errOddAnswer
	}
	is := answer.Topics[0].Partitions[0]
	fetched := broker.Fetched{Size: len(is.RecordBatches), Ends: broker.Ends{Start: is.LogStartOffset, HighWatermark: is.HighWatermark}}
	if fetched.Size > 0 {
		fetched.Data = [][]byte{is.RecordBatches}
	}
	return fetched, asOfTopic(is.ErrorCode, nil)
}

func (l *ClusterLog) find(ctx context.Context, to *broker.Topic, at int64) ([]found, error) {
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
		places[number] = found{offsets[0], offsets[1], offsets[2]}
	}
	return places, nil
}

// errOddAnswer means that an answer does not match its request.
var errOddAnswer = errors.New("not the answer to the request")

// ask makes a request to the leader of a partition. After a failure it refreshes the
// addresses of the nodes and tries once more.
func (l *ClusterLog) ask(ctx context.Context, to *broker.Topic, number int32, request kmsg.Request) (kmsg.Response, error) {
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
	// A metadata request refreshes the addresses of the nodes.
	if _, unknown := kmsg.NewPtrMetadataRequest().RequestWith(ctx, l.client); unknown != nil {
		return nil, errors.Join(err, unknown)
	}
	return l.client.Broker(int(leader)).Request(ctx, request)
}

// ofTopic are the errors of the protocol that publishing distinguishes.
var ofTopic = map[int16]error{
	kerr.OutOfOrderSequenceNumber.Code: topic.ErrOutOfOrderSequence,
	kerr.InvalidProducerEpoch.Code:     topic.ErrProducerFenced,
	kerr.MessageTooLarge.Code:          topic.ErrRecordTooLarge,
	kerr.InvalidTimestamp.Code:         topic.ErrInvalidTimestamp,
	kerr.OffsetOutOfRange.Code:         topic.ErrOffsetOutOfRange,
	kerr.UnknownTopicOrPartition.Code:  topic.ErrNoTopic,
	kerr.NotLeaderForPartition.Code:    topic.ErrNotLeader,
}

// asOfTopic returns the error of package topic for a code, or nil.
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
