//go:build cluster && long

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A leader is cut off from the others, and a client that still reaches it keeps producing: none of
// its records is acknowledged, with any acks. The others elect a leader and continue. After the cut
// is healed the former leader follows, and the records that it was sent are nowhere.
func TestCutLeader(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	c.newTopic(topicName, 1, 3)
	client := c.connect(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(2*time.Second))
	admin := kadm.NewClient(client)
	var acknowledged []string
	produce := func(value string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
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
	former, direct := 0, (*kgo.Broker)(nil)
	acknowledged = append(acknowledged, produceDirectly(t, -1, func() *kgo.Broker {
		former = c.leader(admin)
		direct = c.directTo(former)
		return direct
	}))
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
	// The client may ask the former leader, which notices a moment later that it leads no more.
	eventually(t, until.Limit, "clients are told of another leader", func() bool { return c.leader(admin) != former })
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

// produceToCut sends records to a leader that is cut off, with acks of both kinds, until stop is
// closed, and returns how many.
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

// elect makes a node the leader of partition 0 through an election of the preferred leader.
func (c *cluster) elect(admin *kadm.Client, id int) {
	c.t.Helper()
	replicas := []int32{int32(id)}
	for _, n := range c.nodes {
		if n.id != id {
			replicas = append(replicas, int32(n.id))
		}
	}
	var last error
	elected := within(until.Limit, func() bool {
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
