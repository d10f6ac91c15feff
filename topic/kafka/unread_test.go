package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A partition whose log cannot be read has no leader, and all requests get retriable errors, never
// an offset: consumers would begin elsewhere.
func TestAPartitionThatCannotBeReadAsksForPatience(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	made := create(t, b, "orders", 1)
	s := start(t, b, Options{})
	wantCode(t, "produce", produced(dial(t, s), 11, produceRequest("orders", 0, batchOf([]byte("x")))).ErrorCode, nil)
	store = store.Reopen()
	log, err := store.OpenLog(t.Context(), fmt.Sprintf("records-%s-0", made.ID()), nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := log.Read(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	entries[0].Data[len(entries[0].Data)-1] ^= 1

	p := dial(t, start(t, startBroker(t, store, topic.Config{}), Options{}))
	metadata := kmsg.NewPtrMetadataRequest()
	described := ask[*kmsg.MetadataResponse](p, 9, metadata).Topics[0].Partitions[0]
	wantCode(t, "metadata", described.ErrorCode, kerr.LeaderNotAvailable)
	wantCode(t, "produce", produced(p, 11, produceRequest("orders", 0, batchOf([]byte("x")))).ErrorCode, kerr.NotLeaderForPartition)

	list := kmsg.NewPtrListOffsetsRequest()
	listed := kmsg.NewListOffsetsRequestTopic()
	listed.Topic = "orders"
	first := kmsg.NewListOffsetsRequestTopicPartition()
	first.Timestamp = timestampEarliest
	listed.Partitions = append(listed.Partitions, first)
	list.Topics = append(list.Topics, listed)
	wantCode(t, "list offsets", ask[*kmsg.ListOffsetsResponse](p, 5, list).Topics[0].Partitions[0].ErrorCode, kerr.NotLeaderForPartition)

	answered := ask[*kmsg.FetchResponse](p, 4, fetchRequest("orders", 0, 1)).Topics[0].Partitions[0]
	wantCode(t, "fetch", answered.ErrorCode, kerr.NotLeaderForPartition)
	if answered.HighWatermark != -1 {
		t.Errorf("fetch tells a high watermark of %d", answered.HighWatermark)
	}

	committed := kmsg.NewPtrOffsetCommitRequest()
	committed.Group, committed.Generation = "readers", -1
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic = "orders"
	at := kmsg.NewOffsetCommitRequestTopicPartition()
	at.Offset = 1
	of.Partitions = append(of.Partitions, at)
	committed.Topics = append(committed.Topics, of)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](p, 6, committed).Topics[0].Partitions[0].ErrorCode, nil)
}
