package clients

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// Topics are created, described, changed and deleted. kafka-go cannot delete records.
func TestKafkaGoTopics(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	ctx, client := t.Context(), k.client(t)
	k.create(t, "orders", 1, "retention.ms", "3600000")
	var again *kafka.CreateTopicsResponse
	eventually(t, "topics are created again", func() (created bool) { // while the controller moves, kafka-go knows none
		var err error
		again, err = client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: "orders", NumPartitions: 1, ReplicationFactor: nodes()}}})
		return err == nil
	})
	if !errors.Is(again.Errors["orders"], kafka.TopicAlreadyExists) {
		t.Errorf("created again: %v", again.Errors)
	}
	more := must(client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: "orders", Count: 3}}}))(t)
	equal(t, "create partitions", more.Errors["orders"], error(nil))
	var metadata *kafka.MetadataResponse
	eventually(t, "three partitions, led by their first replicas", func() bool { // at first another may have been elected
		metadata = must(client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{"orders"}}))(t)
		partitions := metadata.Topics[0].Partitions
		return len(metadata.Brokers) == nodes() && len(partitions) == 3 && !slices.ContainsFunc(partitions, func(p kafka.Partition) bool {
			return p.Error != nil || len(p.Replicas) != nodes() || p.Leader.ID != p.Replicas[0].ID
		})
	})
	if nodes() == 1 {
		equal(t, "in sync", metadata.Topics[0].Partitions[2].Isr, []kafka.Broker{metadata.Controller})
	}

	changed := must(client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: "orders",
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "7200000", ConfigOperation: kafka.ConfigOperationSet}},
	}}}))(t)
	equal(t, "change", changed.Resources[0].Error, error(nil))
	described := must(client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: "orders", ConfigNames: []string{"retention.ms"},
	}}}))(t)
	entries := described.Resources[0].ConfigEntries
	equal(t, "setting", []any{len(entries), entries[0].ConfigName, entries[0].ConfigValue}, []any{1, "retention.ms", "7200000"})

	deleted := must(client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{"orders", "gone"}}))(t)
	equal(t, "delete", deleted.Errors["orders"], error(nil))
	if !errors.Is(deleted.Errors["gone"], kafka.UnknownTopicOrPartition) {
		t.Errorf("delete what is not there: %v", deleted.Errors["gone"])
	}
	eventually(t, "no topic is left", func() bool {
		return len(must(client.Metadata(ctx, &kafka.MetadataRequest{}))(t).Topics) == 0
	})
}

// Offsets are listed by place and time.
func TestKafkaGoOffsets(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	k.create(t, "orders", 1)
	messages := k.numbered(0, 10, "")
	start := time.UnixMilli(1_700_000_000_000)
	for i := range messages {
		messages[i].Time = start.Add(time.Duration(i) * time.Second)
	}
	k.send(t, "orders", kafka.Snappy, messages...)
	listed := must(k.client(t).ListOffsets(t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{"orders": {
		kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.TimeOffsetOf(0, start.Add(6*time.Second)),
	}}}))(t)
	offsets := listed.Topics["orders"][0]
	equal(t, "ends", []any{offsets.FirstOffset, offsets.LastOffset, offsets.Error}, []any{int64(0), int64(10), error(nil)})
	if at, ok := offsets.Offsets[6]; !ok || !at.Equal(start.Add(6*time.Second)) {
		t.Errorf("of a time: %v", offsets.Offsets)
	}
}

// Groups are listed, described, reset and deleted.
func TestKafkaGoGroups(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	ctx, client := t.Context(), k.client(t)
	k.create(t, "orders", 1)
	k.send(t, "orders", 0, k.numbered(0, 10, "")...)
	reader := k.reader(t, "orders", "readers")
	messages := k.read(t, reader, 10)
	if err := reader.CommitMessages(ctx, messages[6]); err != nil {
		t.Fatal(err)
	}
	equal(t, "shares", k.shares(t, client), []int{1})
	reader.Close()
	groups := must(client.ListGroups(ctx, &kafka.ListGroupsRequest{}))(t)
	equal(t, "groups", []any{len(groups.Groups), groups.Groups[0].GroupID, groups.Groups[0].ProtocolType}, []any{1, "readers", "consumer"})
	committed := func() int64 {
		t.Helper()
		fetched := must(client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: "readers", Topics: map[string][]int{"orders": {0}}}))(t)
		return fetched.Topics["orders"][0].CommittedOffset
	}
	equal(t, "committed", committed(), int64(7))
	moved := must(client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: "readers", GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{"orders": {{Partition: 0, Offset: 3}}}}))(t)
	equal(t, "move", moved.Topics["orders"][0].Error, error(nil))
	equal(t, "moved", committed(), int64(3))
	gone := must(client.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{GroupID: "readers", Topics: map[string][]int{"orders": {0}}}))(t)
	equal(t, "delete offset", gone.Topics["orders"][0].Error, error(nil))
	equal(t, "after it was deleted", committed(), int64(-1))
	deleted := must(client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{"readers"}}))(t)
	equal(t, "delete group", deleted.Errors["readers"], error(nil))
	groups = must(client.ListGroups(ctx, &kafka.ListGroupsRequest{}))(t)
	equal(t, "groups left", len(groups.Groups), 0)
}
