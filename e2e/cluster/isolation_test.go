//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// isolationTime is how long a node is isolated at least: longer than a follower waits for its leader.
const isolationTime = 4 * time.Second

// Nodes are isolated one after another, under load: other nodes do not reach them, and clients do.
// An isolated node acknowledges neither records, with any acks, nor a new topic. The others elect
// leaders and continue. Records that only isolated nodes were sent are nowhere afterwards, not even
// when the first of them leads again.
func TestIsolation(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	l := newLoad(c, 6, 3)
	l.flows(500)
	var first int
	for _, role := range []struct {
		name string
		find func() int
	}{
		{"leader of partitions", func() int { return c.leader(l.admin) }},
		{"leader of the metadata", c.metadataLeader},
		{"follower", l.follower},
	} {
		id := role.find()
		t.Logf("%s: node %d; partitions are led by %v, the metadata by node %d", role.name, id, l.leaders(), c.metadataLeader())
		l.suffer(l.isolation("isolated "+role.name), id)
		l.flows(500)
		if first == 0 {
			first = id
		}
	}
	c.elect(l.admin, first)
	l.flows(500)
	checkInterruptions(t, l.finish())
}

// isolation cuts a node off from the other nodes, and tempts it until other nodes lead all
// partitions.
func (l *load) isolation(kind string) fault {
	stop := make(chan struct{})
	var tempting sync.WaitGroup
	var tried atomic.Int64
	return fault{kind, isolationTime,
		func(n *node) error {
			err := n.cluster.net.Cut(n.id, n.cluster.others(n.id)...)
			direct := n.cluster.directTo(n.id)
			tempting.Go(func() {
				if err := createOne(direct, strings.ReplaceAll(kind, " ", "-")); err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
					l.t.Errorf("%s: the creation of a topic is answered with %v", kind, err)
				}
			})
			for partition := range l.partitions {
				direct := n.cluster.directTo(n.id)
				tempting.Go(func() { tried.Add(l.tempt(direct, int32(partition), stop)) })
			}
			return err
		},
		func(n *node) error {
			close(stop)
			tempting.Wait()
			eventually(l.t, until.Limit, fmt.Sprintf("other nodes than %d lead", n.id), func() bool {
				counts := l.leaders()
				return len(counts) > 0 && counts[n.id] == 0 && counts[-1] == 0
			})
			l.t.Logf("%s: node %d was sent %d records, and acknowledged none", kind, n.id, tried.Load())
			if tried.Load() == 0 {
				l.t.Errorf("%s: nothing was sent to node %d", kind, n.id)
			}
			return n.heal()
		}}
}

// tempt sends records to an isolated node, with acks of both kinds, until stop is closed, and returns
// how many. The history takes those that are read for foreign ones.
func (l *load) tempt(isolated *kgo.Broker, partition int32, stop <-chan struct{}) (tried int64) {
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
		if code, err := produceOne(isolated, partition, acks, "isolated"); err == nil && code == 0 {
			l.t.Errorf("an isolated node acknowledges a record for partition %d, sent with acks=%d", partition, acks)
		}
		tried++
	}
}

// leaders returns how many partitions each node leads; those without a leader are at -1.
func (l *load) leaders() map[int]int {
	counts := map[int]int{}
	for _, p := range partitionsOf(l.t, l.admin, topicName) {
		counts[int(p.Leader)]++
	}
	return counts
}

// follower returns the node that leads the fewest partitions, and not the metadata if it can.
func (l *load) follower() int {
	l.t.Helper()
	l.cluster.leader(l.admin) // all partitions have one
	counts := l.leaders()
	counts[l.cluster.metadataLeader()] += l.partitions
	ids := l.cluster.others(0)
	return slices.MinFunc(ids, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })
}

// metadataLeader returns the node that was the last to become the leader of the metadata, by the
// nodes' logs.
func (c *cluster) metadataLeader() (id int) {
	c.t.Helper()
	last := ""
	for _, n := range c.nodes {
		log, err := os.ReadFile(n.logPath)
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "new stream leader for '$G > meta'") && line > last { // a line begins with its time
				id, last = n.id, line
			}
		}
	}
	if id == 0 {
		c.t.Fatal("no log of a node names the leader of the metadata")
	}
	return id
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
		return len(told) > 0 && int(told[0].Leader) == id
	})
	if !elected {
		c.t.Fatalf("node %d does not lead within a minute: %v", id, last)
	}
}
