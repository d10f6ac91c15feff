package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// commit commits an offset of a group without members.
func commit(t *testing.T, b *broker.Broker, name, of string, partition int32, offset int64) {
	t.Helper()
	errs, err := b.Groups().Commit(group.CommitRequest{
		MemberIdentity: group.MemberIdentity{Group: name, Generation: -1},
		Offsets:        []group.OffsetCommit{{Topic: of, Partition: partition, Offset: offset}},
	}).Wait(t.Context())
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// createView creates a view of orders.
func createView(t *testing.T, b *broker.Broker) {
	t.Helper()
	settings := map[string]string{topic.SettingViewOf: "orders", topic.SettingViewWhere: "true"}
	if _, err := b.Create(t.Context(), topic.Spec{Name: "view", Settings: settings}, false); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	orders := create(t, b, "orders", nil)
	createView(t, b)
	batch := batchOf(anybody, now(), "a", "b", "c")
	send(t, orders, batch)
	last := batchOf(anybody, now(), "d")
	send(t, orders, last)
	if _, err := orders.Partitions()[0].DeleteRecords(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	commit(t, b, "billing", "orders", 0, 1)
	commit(t, b, "ahead", "orders", 0, 9)
	commit(t, b, "not \xff UTF-8", "orders", 0, 1)
	want := fmt.Sprintf(`
# HELP topic_group_lag Offsets that a group has not committed yet, of a partition that this node leads.
# TYPE topic_group_lag gauge
topic_group_lag{group="ahead",partition="0",topic="orders"} 0
topic_group_lag{group="billing",partition="0",topic="orders"} 3
# HELP topic_leaderships_gained_total Partitions that this node began to lead.
# TYPE topic_leaderships_gained_total counter
topic_leaderships_gained_total 1
# HELP topic_metrics_omitted Partitions and pairs of a group and a partition that are too many to have metrics of their own.
# TYPE topic_metrics_omitted gauge
topic_metrics_omitted{metric="group_lag"} 1
topic_metrics_omitted{metric="partition"} 0
# HELP topic_partition_bytes Size of a partition that this node leads.
# TYPE topic_partition_bytes gauge
topic_partition_bytes{partition="0",topic="orders"} %d
# HELP topic_partition_end_offset High watermark of a partition that this node leads.
# TYPE topic_partition_end_offset gauge
topic_partition_end_offset{partition="0",topic="orders"} 4
# HELP topic_partition_start_offset First offset of a partition that this node leads.
# TYPE topic_partition_start_offset gauge
topic_partition_start_offset{partition="0",topic="orders"} 3
# HELP topic_partitions Partitions of all topics.
# TYPE topic_partitions gauge
topic_partitions 1
# HELP topic_partitions_led Partitions that this node leads.
# TYPE topic_partitions_led gauge
topic_partitions_led 1
# HELP topic_partitions_offline Partitions without a leader, as far as this node knows.
# TYPE topic_partitions_offline gauge
topic_partitions_offline 0
# HELP topic_partitions_under_replicated Partitions that this node leads and that fewer nodes than theirs have completely.
# TYPE topic_partitions_under_replicated gauge
topic_partitions_under_replicated 0
`, len(last))
	if err := testutil.CollectAndCompare(b.Collector(), strings.NewReader(want), "topic_group_lag", "topic_leaderships_gained_total", "topic_metrics_omitted",
		"topic_partition_bytes", "topic_partition_end_offset", "topic_partition_start_offset", "topic_partitions", "topic_partitions_led",
		"topic_partitions_offline", "topic_partitions_under_replicated"); err != nil {
		t.Error(err)
	}
}

// Each node knows the lag of a group, whatever node leads the partition, and how many partitions
// have no leader or lack replicas.
func TestLagAndReplicasOnSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		c.create(1, "orders", nil)
		createView(t, c.brokers[1])
		leader := c.topic(1, "orders").Partitions()[0].Leader()
		send(t, c.topic(leader, "orders"), batchOf(anybody, now(), "a", "b", "c"))
		coordinator, err := c.brokers[1].Groups().Coordinator(t.Context(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		commit(t, c.brokers[coordinator], "billing", "orders", 0, 1)
		commit(t, c.brokers[coordinator], "billing", "view", 0, 3)
		for id, b := range c.brokers {
			lags, err := b.GroupLag(t.Context(), "billing")
			want := []broker.Lag{
				{Group: "billing", Topic: "orders", Committed: 1, End: 3, Lag: 2}, {Group: "billing", Topic: "view", Committed: 3, End: 3},
			}
			if err != nil || fmt.Sprint(lags) != fmt.Sprint(want) {
				t.Errorf("node %d: %+v, %v; want %+v", id, lags, err, want)
			}
			if _, err := b.GroupLag(t.Context(), "nosuch"); !errors.Is(err, group.ErrNoGroup) {
				t.Errorf("node %d: a group that does not exist: %v", id, err)
			}
		}
		c.kill(leader%3 + 1)
		synctest.Wait()
		behind := "# HELP topic_partitions_under_replicated Partitions that this node leads and that fewer nodes than theirs have completely.\n" +
			"# TYPE topic_partitions_under_replicated gauge\ntopic_partitions_under_replicated 1\n"
		if err := testutil.CollectAndCompare(c.brokers[leader].Collector(), strings.NewReader(behind), "topic_partitions_under_replicated"); err != nil {
			t.Error(err)
		}
	})
}
