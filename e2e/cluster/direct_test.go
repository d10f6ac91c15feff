//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// directTo returns the connection of a client that knows one node only, with request versions that
// name topics.
func (c *cluster) directTo(id int) *kgo.Broker {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.node(id).addr()), kgo.DialTimeout(time.Second), kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_4_0()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client.SeedBrokers()[0]
}

// createOne asks a node for a topic, which it may take 3 s for.
func createOne(of *kgo.Broker, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := change{topic, create, 1}.request().(*kmsg.CreateTopicsRequest)
	request.TimeoutMillis = 3000
	answer, err := request.RequestWith(ctx, of)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

// produceOne sends one record to a partition of a node, and returns the error code of the answer.
// An error means that no answer arrived.
func produceOne(to *kgo.Broker, partition int32, acks int16, value string) (code int16, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	answer, err := to.Request(ctx, produceRequest(topicName, partition, acks, value))
	if err != nil {
		return 0, err
	}
	response, is := answer.(*kmsg.ProduceResponse)
	if !is || len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("answer %+v", answer)
	}
	return response.Topics[0].Partitions[0].ErrorCode, nil
}

// produceRequest returns a request with one record, without a producer id.
func produceRequest(topic string, number int32, acks int16, value string) *kmsg.ProduceRequest {
	record := kmsg.Record{Value: []byte(value)}
	body := record.AppendTo(nil)
	record.Length = int32(len(body)) - 1 // the length field itself takes one byte
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1,
		FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(), Records: record.AppendTo(nil),
	}
	const lengthEnd, crcEnd = 12, 21
	batch.Length = int32(len(batch.AppendTo(nil)) - lengthEnd)
	batch.CRC = int32(crc32.Checksum(batch.AppendTo(nil)[crcEnd:], crc32.MakeTable(crc32.Castagnoli)))
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Partition, partition.Records = number, batch.AppendTo(nil)
	named := kmsg.NewProduceRequestTopic()
	named.Topic, named.Partitions = topic, append(named.Partitions, partition)
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis, request.Topics = acks, 2000, append(request.Topics, named)
	return request
}

// produceDirectly sends a record to a node, and others until one is acknowledged, and returns its value.
func produceDirectly(t *testing.T, acks int16, leader *kgo.Broker) (value string) {
	t.Helper()
	tries := 0
	until.Succeeds(t, "produce directly to the leader", func() error {
		tries++
		value = fmt.Sprintf("with acks %d, in try %d", acks, tries)
		code, err := produceOne(leader, 0, acks, value)
		return errors.Join(err, kerr.ErrorForCode(code))
	})
	return value
}

// checkAll reads the topic: it must have the acknowledged records in order. Others may be there, whose
// answers came too late.
func checkAll(t *testing.T, c *cluster, admin *kadm.Client, acknowledged []string) {
	t.Helper()
	ends := c.ends(admin)
	client := c.connect(kgo.ConsumeTopics(topicName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	var values []string
	for next := int64(0); next < ends[0]; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read up to %d, want all up to %d", next, ends[0])
		}
		fetches.EachRecord(func(r *kgo.Record) {
			values = append(values, string(r.Value))
			next = r.Offset + 1
		})
	}
	values = slices.DeleteFunc(values, func(v string) bool { return !slices.Contains(acknowledged, v) })
	if !slices.Equal(values, acknowledged) {
		t.Errorf("the topic has %q, want %q", values, acknowledged)
	}
}
