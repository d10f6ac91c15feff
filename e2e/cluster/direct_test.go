//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
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

// produceOne sends one record to partition 0 of a node, and returns the error code of the answer.
// An error means that no answer arrived.
func produceOne(to *kgo.Broker, acks int16, value string) (code int16, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	answer, err := to.Request(ctx, produceRequest(topicName, acks, value))
	if err != nil {
		return 0, err
	}
	response, is := answer.(*kmsg.ProduceResponse)
	if !is || len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("answer %+v", answer)
	}
	return response.Topics[0].Partitions[0].ErrorCode, nil
}

// produceRequest returns a request with one record for partition 0, without a producer id.
func produceRequest(topic string, acks int16, value string) *kmsg.ProduceRequest {
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
	partition.Records = batch.AppendTo(nil)
	named := kmsg.NewProduceRequestTopic()
	named.Topic, named.Partitions = topic, append(named.Partitions, partition)
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis, request.Topics = acks, 2000, append(request.Topics, named)
	return request
}

// directly begins the records that are sent to the leader alone while it is well.
const directly = "directly "

// produceDirectly sends a record to the node that find returns, and others until one is
// acknowledged, and returns its value.
func produceDirectly(t *testing.T, acks int16, find func() *kgo.Broker) (value string) {
	t.Helper()
	tries := 0
	until.Succeeds(t, "produce directly to the leader", func() error {
		tries++
		value = fmt.Sprintf("%swith acks %d, in try %d", directly, acks, tries)
		code, err := produceOne(find(), acks, value)
		return errors.Join(err, kerr.ErrorForCode(code))
	})
	return value
}

// checkAll reads the topic: it must have the acknowledged records in order, and no record that only
// the former leader was sent.
func checkAll(t *testing.T, c *cluster, admin *kadm.Client, when string, acknowledged []string) {
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
			t.Fatalf("%s: read up to %d, want all up to %d", when, next, ends[0])
		}
		fetches.EachRecord(func(r *kgo.Record) {
			values = append(values, string(r.Value))
			next = r.Offset + 1
		})
	}
	if strange := slices.IndexFunc(values, func(v string) bool { return strings.HasPrefix(v, "cut ") }); strange >= 0 {
		t.Errorf("what only the former leader was sent is there%s: %q at offset %d", when, values[strange], strange)
	}
	// A record that was sent directly, and not answered in time, may be there or not.
	values = slices.DeleteFunc(values, func(v string) bool { return strings.HasPrefix(v, directly) && !slices.Contains(acknowledged, v) })
	if !slices.Equal(values, acknowledged) {
		t.Errorf("the topic has%s %q, want %q", when, values, acknowledged)
	}
}
