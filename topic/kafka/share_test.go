package kafka

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
)

// sharesFromStart is a config in which share groups begin at the first record.
var sharesFromStart = topic.Config{Shares: topic.SharesConfig{Earliest: true}}

func newShareJoin(name, member string, topics ...string) *kmsg.ShareGroupHeartbeatRequest {
	r := kmsg.NewPtrShareGroupHeartbeatRequest()
	r.GroupID, r.MemberID, r.SubscribedTopicNames = name, member, topics
	return r
}

// newShareFetch returns a fetch of partition 0 of a topic, with acknowledgements of one kind.
func newShareFetch(of *broker.Topic, member string, epoch int32, accepted ...int64) *kmsg.ShareFetchRequest {
	r := kmsg.NewPtrShareFetchRequest()
	r.GroupID, r.MemberID, r.ShareSessionEpoch, r.MaxRecords, r.ShareAcquireMode = kmsg.StringPtr("g"), &member, epoch, 2, acquireStrict
	p := kmsg.NewShareFetchRequestTopicPartition()
	for _, offset := range accepted {
		p.AcknowledgementBatches = append(p.AcknowledgementBatches,
			kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: offset, LastOffset: offset, AcknowledgeTypes: []int8{1}})
	}
	r.Topics = []kmsg.ShareFetchRequestTopic{{TopicID: of.ID(), Partitions: []kmsg.ShareFetchRequestTopicPartition{p}}}
	return r
}

func newShareAcknowledge(of *broker.Topic, member string, epoch int32, first, last int64, kind int8) *kmsg.ShareAcknowledgeRequest {
	r := kmsg.NewPtrShareAcknowledgeRequest()
	r.GroupID, r.MemberID, r.ShareSessionEpoch = kmsg.StringPtr("g"), &member, epoch
	batch := kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{FirstOffset: first, LastOffset: last, AcknowledgeTypes: []int8{kind}}
	r.Topics = []kmsg.ShareAcknowledgeRequestTopic{{TopicID: of.ID(), Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{
		{AcknowledgementBatches: []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{batch}},
	}}}
	return r
}

// wantAcquired checks which records a fetch has acquired: first and last offset, and count, of each run.
func wantAcquired(t *testing.T, what string, got *kmsg.ShareFetchResponse, want ...[3]int64) {
	t.Helper()
	wantCode(t, what, got.ErrorCode, nil)
	var acquired [][3]int64
	for _, of := range got.Topics {
		for _, p := range of.Partitions {
			wantCode(t, what, p.ErrorCode, nil)
			wantCode(t, what+": acknowledgement", p.AcknowledgeErrorCode, nil)
			for _, a := range p.AcquiredRecords {
				acquired = append(acquired, [3]int64{a.FirstOffset, a.LastOffset, int64(a.DeliveryCount)})
			}
		}
	}
	if !slices.Equal(acquired, want) {
		t.Fatalf("%s: acquired %v; want %v", what, acquired, want)
	}
}

// sharers are two members of the share group "g", x and y, each with a connection.
type sharers struct {
	t       *testing.T
	version int16
	orders  *broker.Topic
	x, y    *peer
}

// newSharers returns two members of a group that reads four records, of which none is delivered yet.
func newSharers(t *testing.T, version int16) *sharers {
	t.Helper()
	s, b := serve(t, sharesFromStart)
	of := &sharers{t: t, version: version, orders: create(t, b, "orders", 1), x: dial(t, s), y: dial(t, s)}
	producer := client(t, s)
	for i := range 4 {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	missing := of.fetch(of.x, newShareFetch(of.orders, "x", 0))
	wantCode(t, "fetch of a group that does not exist", missing.Topics[0].Partitions[0].ErrorCode, kerr.GroupIDNotFound)
	for _, member := range []string{"x", "y"} {
		joined := ask[*kmsg.ShareGroupHeartbeatResponse](of.x, 1, newShareJoin("g", member, "orders"))
		wantCode(t, "join", joined.ErrorCode, nil)
		if a := joined.Assignment; a == nil || len(a.TopicPartitions) != 1 || a.TopicPartitions[0].TopicID != of.orders.ID() {
			t.Fatalf("%s joined: %+v", member, joined)
		}
	}
	return of
}

func (of *sharers) fetch(p *peer, r *kmsg.ShareFetchRequest) *kmsg.ShareFetchResponse {
	of.t.Helper()
	return ask[*kmsg.ShareFetchResponse](p, of.version, r)
}

// acknowledge returns the codes of the session and of the partition.
func (of *sharers) acknowledge(p *peer, r *kmsg.ShareAcknowledgeRequest) (session, partition int16) {
	of.t.Helper()
	got := ask[*kmsg.ShareAcknowledgeResponse](p, of.version, r)
	if got.ErrorCode != 0 {
		return got.ErrorCode, 0
	}
	return 0, got.Topics[0].Partitions[0].ErrorCode
}

// The life of members of a share group, in each version.
func TestShareGroupInEveryVersion(t *testing.T) {
	for version := int16(1); version <= 2; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			of := newSharers(t, version)
			x, y, orders := of.x, of.y, of.orders
			wantSharers(t, x, 2)
			first := of.fetch(x, newShareFetch(orders, "x", 0))
			wantAcquired(t, "x", first, [3]int64{0, 1, 1})
			if first.AcquisitionLockTimeoutMillis != 30_000 {
				t.Errorf("records are locked for %d ms", first.AcquisitionLockTimeoutMillis)
			}
			wantAcquired(t, "y", of.fetch(y, newShareFetch(orders, "y", 0)), [3]int64{2, 3, 1})
			wantAcquired(t, "x, with one done", of.fetch(x, newShareFetch(orders, "x", 1, 0)))
			of.wantRefused()
			if session, err := of.acknowledge(y, newShareAcknowledge(orders, "y", 3, 2, 2, 2)); session != 0 || err != 0 {
				t.Fatalf("release: %d, %d", session, err)
			}
			wantAcquired(t, "x, with one released", of.fetch(x, newShareFetch(orders, "x", 2, 1)), [3]int64{2, 2, 2})

			// A fetch waits for records that others have.
			waiting := newShareFetch(orders, "x", 3)
			waiting.MaxWaitMillis = int32(patience.Milliseconds())
			waiting.Version = version
			sent := x.send(waiting)
			if session, err := of.acknowledge(y, newShareAcknowledge(orders, "y", -1, 3, 3, 2)); session != 0 || err != 0 {
				t.Fatalf("the last request of y: %d, %d", session, err)
			}
			wantAcquired(t, "x, after y has gone", x.receive(waiting, sent).(*kmsg.ShareFetchResponse), [3]int64{3, 3, 2})

			_ = x.conn.Close() // its records are available to others
			again := newShareFetch(orders, "y", 0)
			again.MaxWaitMillis = int32(patience.Milliseconds())
			wantAcquired(t, "y, after the connection of x has ended", of.fetch(y, again), [3]int64{2, 3, 3})

			leave := newShareJoin("g", "y")
			leave.MemberEpoch, leave.SubscribedTopicNames = group.LeaveEpoch, nil
			wantCode(t, "leave", ask[*kmsg.ShareGroupHeartbeatResponse](y, 1, leave).ErrorCode, nil)
			wantSharers(t, y, 1)
		})
	}
}

// wantRefused checks acknowledgements that are refused. The session of y is at epoch 1 before, and at 3 after it.
func (of *sharers) wantRefused() {
	of.t.Helper()
	_, refused := of.acknowledge(of.y, newShareAcknowledge(of.orders, "y", 1, 1, 2, 1))
	wantCode(of.t, "acknowledge a record of another", refused, kerr.InvalidRecordState)
	_, refused = of.acknowledge(of.y, newShareAcknowledge(of.orders, "y", 2, 2, 3, 9))
	wantCode(of.t, "an unknown kind", refused, kerr.InvalidRequest)
	refused, _ = of.acknowledge(of.y, newShareAcknowledge(of.orders, "y", 2, 2, 3, 1))
	wantCode(of.t, "an old epoch", refused, kerr.InvalidShareSessionEpoch)
	refused, _ = of.acknowledge(of.y, newShareAcknowledge(of.orders, "z", 1, 2, 3, 1))
	wantCode(of.t, "no session", refused, kerr.ShareSessionNotFound)
}

// wantSharers checks what lists and descriptions tell of the share group "g".
func wantSharers(t *testing.T, p *peer, members int) {
	t.Helper()
	describe := kmsg.NewPtrShareGroupDescribeRequest()
	describe.GroupIDs = []string{"g", "none"}
	described := ask[*kmsg.ShareGroupDescribeResponse](p, 1, describe)
	d := described.Groups[0]
	wantCode(t, "describe", d.ErrorCode, nil)
	wantCode(t, "describe a group that does not exist", described.Groups[1].ErrorCode, kerr.GroupIDNotFound)
	if d.GroupState != "Stable" || d.Assignor != "simple" || len(d.Members) != members || !slices.Equal(d.Members[0].SubscribedTopicNames, []string{"orders"}) ||
		len(d.Members[0].Assignment.TopicPartitions) != 1 || d.Members[0].Assignment.TopicPartitions[0].Topic != "orders" {
		t.Fatalf("described %+v", d)
	}
	list := kmsg.NewPtrListGroupsRequest()
	list.TypesFilter = []string{"share"}
	listed := ask[*kmsg.ListGroupsResponse](p, 5, list)
	if len(listed.Groups) != 1 || listed.Groups[0].Group != "g" || listed.Groups[0].ProtocolType != "share" {
		t.Errorf("listed %+v", listed.Groups)
	}
	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = []string{"g"}
	wantCode(t, "describe as consumers", ask[*kmsg.ConsumerGroupDescribeResponse](p, 1, consumers).Groups[0].ErrorCode, kerr.GroupIDNotFound)
}

// The offsets of a share group that does not exist are set: it exists then, and begins there. A request with no partition that exists makes none.
func TestOffsetsOfNewShareGroup(t *testing.T) {
	of := newSharers(t, 2)
	alter := func(name string, partition int32) *kmsg.AlterShareGroupOffsetsResponse {
		r := kmsg.NewPtrAlterShareGroupOffsetsRequest()
		p := kmsg.AlterShareGroupOffsetsRequestTopicPartition{Partition: partition, StartOffset: 3}
		r.GroupID, r.Topics = name, []kmsg.AlterShareGroupOffsetsRequestTopic{{Topic: "orders", Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{p}}}
		return ask[*kmsg.AlterShareGroupOffsetsResponse](of.x, 0, r)
	}
	missing := alter("new", 1)
	wantCode(t, "no such partition", cmp.Or(missing.ErrorCode, missing.Topics[0].Partitions[0].ErrorCode), kerr.UnknownTopicOrPartition)
	describe := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	describe.Groups = []kmsg.DescribeShareGroupOffsetsRequestGroup{{GroupID: "new"}}
	described := func() kmsg.DescribeShareGroupOffsetsResponseGroup {
		return ask[*kmsg.DescribeShareGroupOffsetsResponse](of.x, 1, describe).Groups[0]
	}
	wantCode(t, "before", described().ErrorCode, kerr.GroupIDNotFound)
	altered := alter("new", 0)
	wantCode(t, "alter", cmp.Or(altered.ErrorCode, altered.Topics[0].Partitions[0].ErrorCode), nil)
	d := described()
	wantCode(t, "after", d.ErrorCode, nil)
	if p := d.Topics[0].Partitions[0]; p.StartOffset != 3 || p.Lag != 1 {
		t.Errorf("the group begins at %d, %d before the end", p.StartOffset, p.Lag)
	}
	wantCode(t, "with members", alter("g", 0).ErrorCode, kerr.NonEmptyGroup)
	wantCode(t, "without a name", alter("", 0).ErrorCode, kerr.InvalidGroupID)
}

// Members of a client library share two partitions: each record is accepted once, though one is released by
// each that gets it first, and a member ends without a word.
func TestShareConsumers(t *testing.T) {
	s, b := serve(t, sharesFromStart)
	create(t, b, "orders", 2)
	producer := client(t, s, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	const records = 300
	for i := range records {
		producer.Produce(t.Context(), &kgo.Record{Topic: "orders", Partition: int32(i % 2), Value: fmt.Append(nil, i)}, nil)
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	accepted := map[string]int{}
	var members sync.WaitGroup
	for i := range 3 {
		client, err := kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.ShareGroup("g"), kgo.ConsumeTopics("orders"), kgo.ShareMaxRecords(20),
			kgo.ShareMaxRecordsStrict(), kgo.FetchMaxWait(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		members.Go(func() {
			defer client.Close()
			for ctx.Err() == nil {
				polled := client.PollFetches(ctx)
				mu.Lock()
				polled.EachRecord(func(r *kgo.Record) {
					if r.DeliveryCount() == 1 && len(accepted)%7 == i {
						r.Ack(kgo.AckRelease)
						return
					}
					r.Ack(kgo.AckAccept)
					accepted[string(r.Value)]++
				})
				done := len(accepted) == records
				mu.Unlock()
				if err := client.FlushAcks(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if done {
					cancel()
				}
				if i == 2 && polled.NumRecords() > 0 {
					return // it leaves
				}
			}
		})
	}
	members.Wait()
	for value, times := range accepted {
		if times != 1 {
			t.Errorf("record %s was accepted %d times", value, times)
		}
	}
	if len(accepted) != records {
		t.Errorf("%d records were accepted; want %d", len(accepted), records)
	}
}

// The hand-written encoding of ShareFetch answers is the same as the codec's.
func TestShareFetchAnswersAreEncodedAsByTheCodec(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	perhaps := func(text string) *string { return []*string{nil, &text}[random.IntN(2)] }
	for version := int16(1); version <= 2; version++ {
		for range 50 {
			ours := &shareFetchResponse{ShareFetchResponse: kmsg.NewPtrShareFetchResponse()}
			ours.Version, ours.ThrottleMillis, ours.ErrorCode, ours.ErrorMessage, ours.AcquisitionLockTimeoutMillis = version, 5, 3, perhaps("no"), 30_000
			for range random.IntN(3) {
				b := kmsg.NewShareFetchResponseNodeEndpoint()
				b.NodeID, b.Host, b.Port, b.Rack = random.Int32(), "node.example", 9092, perhaps("a")
				ours.NodeEndpoints = append(ours.NodeEndpoints, b)
			}
			theirs := *ours.ShareFetchResponse
			for range random.IntN(3) {
				of, full := kmsg.NewShareFetchResponseTopic(), kmsg.NewShareFetchResponseTopic()
				of.TopicID, full.TopicID = topic.ID{1, 2, 3}, topic.ID{1, 2, 3}
				var ofTopic []pieces
				for range random.IntN(3) {
					p := kmsg.NewShareFetchResponseTopicPartition()
					p.Partition, p.ErrorCode, p.ErrorMessage, p.AcknowledgeErrorCode, p.AcknowledgeErrorMessage = random.Int32(), 1, perhaps("b"), 2, perhaps("c")
					p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = random.Int32(), random.Int32()
					for range random.IntN(3) {
						a := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
						a.FirstOffset, a.LastOffset, a.DeliveryCount = random.Int64(), random.Int64(), 2
						p.AcquiredRecords = append(p.AcquiredRecords, a)
					}
					of.Partitions = append(of.Partitions, p)
					var records pieces
					for range random.IntN(3) {
						piece := bytes.Repeat([]byte{byte(random.IntN(256))}, 1+random.IntN(300))
						records = pieces{data: append(records.data, piece), size: records.size + len(piece)}
					}
					ofTopic, p.Records = append(ofTopic, records), slices.Concat(records.data...)
					full.Partitions = append(full.Partitions, p)
				}
				ours.Topics, ours.records, theirs.Topics = append(ours.Topics, of), append(ours.records, ofTopic), append(theirs.Topics, full)
			}
			parts, _ := ours.frame(nil, 77)
			if got, want := bytes.Join(parts, nil), appendAnswer(nil, 77, &theirs); !bytes.Equal(got, want) {
				t.Fatalf("version %d: got\n%x, want\n%x", version, got, want)
			}
		}
	}
}
