package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics are created, described, changed and deleted with franz-go's kadm.
func TestFranzGoTopics(t *testing.T) { onNodes(t, testFranzGoTopics) }

func testFranzGoTopics(t *testing.T, s *server) {
	f := franz{s}
	ctx := t.Context()
	admin := f.create(t, "orders", 2, "retention.ms", "3600000")
	if _, err := admin.CreateTopic(ctx, 2, f.replicas(), nil, "orders"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("created again: %v", err)
	}
	if _, err := admin.CreatePartitions(ctx, 1, "orders"); err != nil {
		t.Error(err)
	}
	listed, err := admin.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "topics", listed.Names(), []string{"orders"})
	equal(t, "partitions", listed["orders"].Partitions.Numbers(), []int32{0, 1, 2})
	added := listed["orders"].Partitions[2]
	equal(t, "replicas", len(added.Replicas), int(f.replicas()))
	if f.nodes == nil {
		equal(t, "replicas in sync", added.ISR, []int32{added.Leader})
	}

	setting := func() string {
		configs, err := admin.DescribeTopicConfigs(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		for _, config := range configs[0].Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue() + " " + config.Source.String()
			}
		}
		return "not there"
	}
	equal(t, "setting", setting(), "3600000 DYNAMIC_TOPIC_CONFIG")
	if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("7200000")}}, "orders"); err != nil {
		t.Fatal(err)
	}
	equal(t, "setting that was changed", setting(), "7200000 DYNAMIC_TOPIC_CONFIG")
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("soon")}}, "orders")
	if err != nil || !errors.Is(altered[0].Err, kerr.InvalidConfig) {
		t.Errorf("a wrong value: %v, %v", altered, err)
	}

	if _, err := admin.DeleteTopic(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteTopic(ctx, "orders"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("deleted again: %v", err)
	}
}

// A delayed record is acknowledged at once and appears when it is due, also after a kill of the
// server; a canceled one never does.
func TestFranzGoDelays(t *testing.T) { onNodes(t, testFranzGoDelays) }

func testFranzGoDelays(t *testing.T, s *server) {
	delay := 2 * time.Second
	for n := 0; !delaysOf(t, franz{s}, fmt.Sprint("reminders-", n), delay); n++ {
		delay *= 2
	}
}

// delaysOf returns false if the test was too slow to see a record before the delayed ones.
func delaysOf(t *testing.T, f franz, name string, delay time.Duration) bool {
	t.Helper()
	f.create(t, name, 1, "sluice.delay.enable", "true")
	records := numbered(name, 0, 0, 4)
	for i, delay := range []time.Duration{delay, time.Hour, delay * 3 / 4, 0} {
		if delay > 0 {
			id := kgo.RecordHeader{Key: "sluice-id", Value: records[i].Value}
			records[i].Headers = []kgo.RecordHeader{{Key: "sluice-delay", Value: []byte(delay.String())}, id}
		}
	}
	sent := time.Now()
	f.send(t, records, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if a, err := f.do("DELETE", "/v1/topics/"+name+"/delayed/value%201", "", nil); err != nil || a.status/100 != 2 {
		t.Fatalf("cancel: %d %s, %v", a.status, a.body, err)
	}
	consume := func() *kgo.Client {
		return f.client(t, kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	before := consume()
	first := pollAtLeast(t, before, 1)
	if time.Since(sent) > delay*3/4 && delay < patience {
		return false
	}
	equal(t, "at once", values(first), []string{"value 3"})
	before.Close()
	f.crash(t, name, "")
	after := consume()
	got := poll(t, after, 3)
	equal(t, "in the order of their times", values(got), []string{"value 3", "value 2", "value 0"})
	if early := sent.Add(delay); time.Now().Before(early) || got[2].Timestamp.Before(early.Truncate(time.Millisecond)) {
		t.Errorf("delayed by %v it came with the time %v, sent at %v", delay, got[2].Timestamp, sent)
	}
	equal(t, "headers", got[2].Headers, records[0].Headers)
	quiet(t, after)
	return true
}

// Offsets are listed by place and time, and records are deleted up to an offset.
func TestFranzGoOffsets(t *testing.T) { onNodes(t, testFranzGoOffsets) }

func testFranzGoOffsets(t *testing.T, s *server) {
	f := franz{s}
	admin := f.create(t, "orders", 1)
	records := numbered("orders", 0, 0, 10)
	start := time.UnixMilli(1_700_000_000_000)
	for i, record := range records {
		record.Timestamp = start.Add(time.Duration(i) * time.Minute)
	}
	f.send(t, records)
	at := func(listed kadm.ListedOffsets, err error) int64 {
		t.Helper()
		offset, ok := listed.Lookup("orders", 0)
		if err != nil || !ok || offset.Err != nil {
			t.Fatalf("%v, %v", listed, err)
		}
		return offset.Offset
	}
	ctx := t.Context()
	equal(t, "start", at(admin.ListStartOffsets(ctx, "orders")), int64(0))
	equal(t, "end", at(admin.ListEndOffsets(ctx, "orders")), int64(10))
	equal(t, "of a time", at(admin.ListOffsetsAfterMilli(ctx, start.Add(6*time.Minute).UnixMilli(), "orders")), int64(6))
	equal(t, "of the latest time", at(admin.ListMaxTimestampOffsets(ctx, "orders")), int64(9))
	deleted, err := admin.DeleteRecords(ctx, kadm.Offsets{"orders": {0: {Topic: "orders", Partition: 0, At: 4}}})
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "start after records were deleted", at(admin.ListStartOffsets(ctx, "orders")), int64(4))
	equal(t, "end after records were deleted", at(admin.ListEndOffsets(ctx, "orders")), int64(10))
}

// Groups are listed, described, reset and deleted.
func TestFranzGoGroups(t *testing.T) { onNodes(t, testFranzGoGroups) }

func testFranzGoGroups(t *testing.T, s *server) {
	f := franz{s}
	ctx := t.Context()
	admin := f.create(t, "orders", 1)
	f.send(t, numbered("orders", 0, 0, 10))
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 7, -1)
	if err := admin.CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Fatal(err)
	}
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "groups", listed.Groups(), []string{"readers"})
	described, err := admin.DescribeGroups(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "state", described["readers"].State, "Empty")
	lags, err := admin.Lag(ctx, "readers")
	if err != nil || lags.Error() != nil {
		t.Fatal(err, lags.Error())
	}
	equal(t, "lag", lags["readers"].Lag.Total(), int64(3))
	fetched, err := admin.FetchOffsets(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "committed", fetched["orders"][0].At, int64(7))
	if _, err := admin.DeleteOffsets(ctx, "readers", kadm.TopicsSet{"orders": {0: {}}}); err != nil {
		t.Fatal(err)
	}
	if fetched, err = admin.FetchOffsets(ctx, "readers"); err != nil || len(fetched) > 0 {
		t.Errorf("after they were deleted: %v, %v", fetched, err)
	}
	if err := admin.CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteGroup(ctx, "readers"); err != nil {
		t.Fatal(err)
	}
	if listed, err = admin.ListGroups(ctx); err != nil || len(listed) > 0 {
		t.Errorf("after it was deleted: %v, %v", listed, err)
	}
}
