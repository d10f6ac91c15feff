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
)

// A leader is cut off from the others, and a client that still reaches it goes on
// to produce: it is acknowledged nothing, whatever acks it wants. The others elect
// a leader and go on. When the cut is healed the former leader follows, and what
// it was sent is nowhere.
func TestCutLeader(t *testing.T) {
	if onlyLong(t) {
		return
	}
	c := newCluster(t, layout{nodes: 3})
	c.newTopic(topicName, 1, 3)
	client := c.connect(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(2*time.Second))
	admin := kadm.NewClient(client)
	var acknowledged []string
	produce := func(value string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		record := &kgo.Record{Topic: topicName, Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatalf("produce %s: %v", value, err)
		}
		acknowledged = append(acknowledged, value)
	}
	for i := range 20 {
		produce(fmt.Sprintf("before %d", i))
	}
	former := c.leader(admin)
	direct := c.directTo(former)
	if code, err := produceOne(direct, -1, "directly"); err != nil || code != 0 {
		t.Fatalf("produce directly to node %d: code %d, %v", former, code, err)
	}
	acknowledged = append(acknowledged, "directly")
	if err := c.net.Cut(former, c.others(former)...); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan int)
	go func() { done <- produceToCut(t, direct, stop) }()
	for i := range 20 {
		produce(fmt.Sprintf("during %d", i))
	}
	<-time.After(5 * time.Second)
	close(stop)
	if tried := <-done; tried == 0 {
		t.Error("nothing was sent to the leader that is cut off")
	}
	if now := c.leader(admin); now == former {
		t.Errorf("node %d leads, which is cut off", now)
	}
	if err := c.net.Heal(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		produce(fmt.Sprintf("after %d", i))
	}
	eventually(t, wholeTime, "all replicas are in sync", func() bool { return whole(t, admin, 3) })
	checkAll(t, c, admin, "", acknowledged)
	c.elect(admin, former)
	checkAll(t, c, admin, fmt.Sprintf(" when node %d leads again", former), acknowledged)
}

// directTo returns the connection of a client that knows one node only, and asks in
// versions that name topics.
func (c *cluster) directTo(id int) *kgo.Broker {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.node(id).addr()), kgo.DialTimeout(time.Second), kgo.RequestRetries(0), kgo.MaxVersions(kversion.V2_4_0()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client.SeedBrokers()[0]
}

// produceToCut sends records to a leader that is cut off, with acks of both kinds,
// until it is told to stop, and returns how many.
func produceToCut(t *testing.T, former *kgo.Broker, stop <-chan struct{}) (tried int) {
	for {
		select {
		case <-stop:
			return tried
		case <-time.After(20 * time.Millisecond):
		}
		acks := int16(-1)
		if tried%4 == 3 {
			acks = 1
		}
		if code, err := produceOne(former, acks, fmt.Sprintf("cut %d", tried)); err == nil && code == 0 {
			t.Errorf("a leader that is cut off acknowledges record %d with acks=%d", tried, acks)
		}
		tried++
	}
}

// produceOne sends one record to partition 0 of a node, and returns the code of its
// answer. An error means that no answer came.
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

// produceRequest asks for one record in partition 0, without a producer's id.
func produceRequest(topic string, acks int16, value string) *kmsg.ProduceRequest {
	record := kmsg.Record{Value: []byte(value)}
	body := record.AppendTo(nil)
	record.Length = int32(len(body)) - 1 // what follows its length, which takes one byte
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

// checkAll reads the topic: the acknowledged records in their order, and nothing
// that only the former leader was sent.
func checkAll(t *testing.T, c *cluster, admin *kadm.Client, when string, acknowledged []string) {
	t.Helper()
	ends := c.ends(admin)
	client := c.connect(kgo.ConsumeTopics(topicName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	if !slices.Equal(values, acknowledged) {
		t.Errorf("the topic has%s %q, want %q", when, values, acknowledged)
	}
}

// elect makes a node lead partition 0 by asking for its preferred leader.
func (c *cluster) elect(admin *kadm.Client, id int) {
	c.t.Helper()
	replicas := []int32{int32(id)}
	for _, n := range c.nodes {
		if n.id != id {
			replicas = append(replicas, int32(n.id))
		}
	}
	var last error
	elected := within(time.Minute, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		var assignment kadm.AlterPartitionAssignmentsReq
		assignment.Assign(topicName, 0, replicas)
		if altered, err := admin.AlterPartitionAssignments(ctx, assignment); err != nil || altered.Error() != nil {
			last = errors.Join(err, altered.Error())
			return false
		}
		var which kadm.TopicsSet
		which.Add(topicName, 0)
		results, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, which)
		if err != nil {
			last = err
			return false
		}
		for _, result := range results[topicName] {
			if result.Err != nil && !errors.Is(result.Err, kerr.ElectionNotNeeded) {
				last = result.Err
				return false
			}
		}
		told := partitionsOf(c.t, admin, topicName)
		return len(told) == 1 && int(told[0].Leader) == id
	})
	if !elected {
		c.t.Fatalf("node %d does not lead within a minute: %v", id, last)
	}
}
