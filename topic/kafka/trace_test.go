package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// Requests that move records, end transactions or join groups have a span each, and others none.
func TestSpans(t *testing.T) {
	made := tracetest.NewInMemoryExporter()
	b := startBroker(t, storetest.NewMemory(), sharesFromStart)
	s := start(t, b, Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(made))})
	orders := create(t, b, "orders", 2)
	create(t, b, "other", 1)
	p := dial(t, s)

	records := batchOf([]byte("a"), []byte("b"))
	produced(p, 9, produceRequest("orders", 0, slices.Clone(records)))
	several, other := produceRequest("orders", 1, slices.Clone(records)), produceRequest("other", 0, slices.Clone(records))
	several.Topics = append(several.Topics, other.Topics...)
	produced(p, 9, several)
	byID := produceRequest("", 7, slices.Clone(records))
	byID.Topics[0].TopicID = orders.ID()
	produced(p, 13, byID)
	fetched(p, "orders", 0)
	fetched(p, "orders", 2) // nothing
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.Commit = "pay", 1, true
	ask[*kmsg.EndTxnResponse](p, 3, end)
	joinAlone(p, 5, "workers")
	consumers(p)
	shareTwo(p, orders)

	want := []string{
		"send orders Unset operation.type=send operation.name=send sluice.kafka.acks=-1 system=kafka client.id=test sluice.partitions=1 sluice.bytes=77 destination.name=orders",
		"send Unset operation.type=send operation.name=send sluice.kafka.acks=-1 system=kafka client.id=test sluice.partitions=2 sluice.bytes=154",
		"send orders Error operation.type=send operation.name=send sluice.kafka.acks=-1 system=kafka client.id=test sluice.partitions=1 sluice.bytes=77 destination.name=orders",
		"poll orders Unset operation.type=receive operation.name=poll system=kafka client.id=test sluice.partitions=1 sluice.bytes=77 destination.name=orders",
		"commit transaction Error system=kafka operation.name=commit client.id=test sluice.transaction.id=pay",
		"rebalance workers Unset system=kafka operation.name=rebalance client.id=test consumer.group.name=workers sluice.group.generation=1",
		"rebalance readers Unset system=kafka operation.name=rebalance client.id=test consumer.group.name=readers sluice.group.generation=1",
		"rebalance readers Unset system=kafka operation.name=rebalance client.id=test consumer.group.name=readers sluice.group.generation=-1",
		"rebalance readers Error system=kafka operation.name=rebalance client.id=test consumer.group.name=readers sluice.group.generation=0",
		"rebalance g Unset system=kafka operation.name=rebalance client.id=test consumer.group.name=g sluice.group.generation=1",
		"poll orders Unset operation.type=receive operation.name=poll system=kafka client.id=test sluice.partitions=1 sluice.bytes=77 destination.name=orders consumer.group.name=g",
		"settle orders Unset operation.type=settle operation.name=settle system=kafka client.id=test sluice.partitions=1 destination.name=orders consumer.group.name=g",
		"settle orders Error operation.type=settle operation.name=settle system=kafka client.id=test sluice.partitions=1 destination.name=orders consumer.group.name=g",
	}
	var got []string
	for _, span := range made.GetSpans() {
		line := span.Name + " " + span.Status.Code.String()
		for _, a := range span.Attributes {
			if a.Key != "sluice.group.member" { // it is random
				line += " " + strings.TrimPrefix(string(a.Key), "messaging.") + "=" + a.Value.String()
			}
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// parent is the header of a record of a trace.
func parent(trace int) string { return fmt.Sprintf("00-%032x-00f067aa0ba902b7-01", trace) }

// sendParents sends a batch of records with these headers.
func sendParents(p *peer, name string, partition int32, options topic.BatchOptions, value []byte, parents ...string) {
	p.t.Helper()
	records := make([]topic.Record, len(parents))
	for i, text := range parents {
		records[i] = topic.Record{Offset: int64(i), Value: value, Headers: []topic.Header{{Key: "traceparent", Value: []byte(text)}}}
	}
	batch, err := topic.NewBatch(records, options)
	if err != nil {
		p.t.Fatal(err)
	}
	produced(p, 9, produceRequest(name, partition, batch))
}

// linked returns the traces that spans are linked to since the last call.
func linked(made *tracetest.InMemoryExporter) (traces []int64) {
	for _, span := range made.GetSpans() {
		for _, link := range span.Links {
			id := link.SpanContext.TraceID()
			traces = append(traces, int64(binary.BigEndian.Uint64(id[8:])))
		}
	}
	made.Reset()
	return traces
}

// A poll is linked to the traces of the records in its answer, each once, of a bounded number of them.
func TestPollsAreLinkedToTheirRecords(t *testing.T) {
	made := tracetest.NewInMemoryExporter()
	b := startBroker(t, storetest.NewMemory(), sharesFromStart)
	s := start(t, b, Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(made))})
	orders := create(t, b, "orders", 2)
	p := dial(t, s)
	x := []byte("x")
	sendParents(p, "orders", 0, topic.BatchOptions{}, x, parent(1), parent(2), parent(3), parent(2), "neither", parent(0))
	many := make([]string, 100)
	for i := range many {
		many[i] = parent(i + 1)
	}
	sendParents(p, "orders", 1, topic.BatchOptions{Codec: topic.CodecGzip}, x, slices.Repeat([]string{parent(200)}, 5)...)
	sendParents(p, "orders", 1, topic.BatchOptions{}, x, many...)

	linked(made)
	fetched(p, "orders", 1)
	if got := linked(made); !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("records from offset 1 on: linked to %v, want 2 and 3", got)
	}
	ask[*kmsg.ShareGroupHeartbeatResponse](p, 1, newShareJoin("g", "x", "orders"))
	linked(made)
	ask[*kmsg.ShareFetchResponse](p, 2, newShareFetch(orders, "x", 0))
	if got := linked(made); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("two records of a share group: linked to %v, want 1 and 2", got)
	}
	ask[*kmsg.FetchResponse](p, 12, fetchRequest("orders", 1, 2))
	if got := linked(made); len(got) != 30 || got[0] != 200 || got[1] != 1 || got[29] != 29 {
		t.Errorf("many records behind compressed ones: linked to %v, want 200 and 1 to 29, which are those of 32 records", got)
	}
}

// Compressed records are looked at too, as far as there is space for them.
func TestPollsAreLinkedToCompressedRecords(t *testing.T) {
	made := tracetest.NewInMemoryExporter()
	b := startBroker(t, storetest.NewMemory(), sharesFromStart)
	s := start(t, b, Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(made))})
	create(t, b, "packed", 1)
	p := dial(t, s)
	for codec := topic.CodecGzip; codec <= topic.CodecZstd; codec++ {
		sendParents(p, "packed", 0, topic.BatchOptions{Codec: codec}, nil, parent(codec))
	}
	sendParents(p, "packed", 0, topic.BatchOptions{Codec: topic.CodecGzip}, make([]byte, 1<<20), parent(5))
	sendParents(p, "packed", 0, topic.BatchOptions{Codec: topic.CodecZstd}, nil, parent(6))
	sendParents(p, "packed", 0, topic.BatchOptions{}, nil, parent(7))
	linked(made)
	ask[*kmsg.FetchResponse](p, 12, fetchRequest("packed", 0, 0))
	if got := linked(made); !slices.Equal(got, []int64{1, 2, 3, 4, 7}) {
		t.Errorf("linked to %v; want 1 to 4, of each codec, and 7, which is not compressed; there is no space from 5 on", got)
	}
}

// consumers has a member of the consumer protocol join, stay, leave, and stay after it has left.
func consumers(p *peer) {
	ask[*kmsg.ConsumerGroupHeartbeatResponse](p, 1, newConsumerJoin("readers", "x", "orders"))
	for _, epoch := range []int32{1, group.LeaveEpoch, 1} {
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Group, beat.MemberID, beat.MemberEpoch = "readers", "x", epoch
		ask[*kmsg.ConsumerGroupHeartbeatResponse](p, 1, beat)
	}
}

// shareTwo has a member of a share group join, fetch records, acknowledge them, and acknowledge one that it does not have any more.
func shareTwo(p *peer, orders *broker.Topic) {
	ask[*kmsg.ShareGroupHeartbeatResponse](p, 1, newShareJoin("g", "x", "orders"))
	ask[*kmsg.ShareFetchResponse](p, 2, newShareFetch(orders, "x", 0))
	ask[*kmsg.ShareAcknowledgeResponse](p, 2, newShareAcknowledge(orders, "x", 1, 0, 1, 1))
	ask[*kmsg.ShareAcknowledgeResponse](p, 2, newShareAcknowledge(orders, "x", 2, 0, 0, 1))
}
