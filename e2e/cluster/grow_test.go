//go:build cluster && long

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// moveTime bounds how long it takes to reassign all partitions.
const moveTime = until.Limit

// Three nodes become five, with five replicas of everything, and three again, under load.
func TestGrow(t *testing.T) {
	c := newCluster(t, layout{nodes: 5, begin: 3})
	l := newLoad(c, 4, 3)
	l.flows(500)
	l.during("join", func() {
		for _, n := range c.nodes[3:] {
			n.launch()
		}
		for _, n := range c.nodes[3:] {
			n.awaitReady()
		}
		c.expectNodes(l.admin, 1, 2, 3, 4, 5)
	})
	l.during("to five replicas", func() {
		l.place(func(partition int32) []int32 { return []int32{1, 2, 3, 4, 5} })
	})
	l.during("to three replicas", func() {
		l.place(func(partition int32) []int32 {
			return [][]int32{{4, 5, 1}, {5, 2, 4}, {3, 4, 5}, {1, 4, 2}}[partition%4]
		})
	})
	l.during("drain", func() {
		for _, n := range c.nodes[3:] {
			eventually(t, until.Limit, fmt.Sprintf("node %d is drained", n.id), func() bool {
				return c.try(http.MethodPost, fmt.Sprintf("/v1/cluster/nodes/%d/drain", n.id))
			})
		}
		eventually(t, moveTime, "nodes 4 and 5 keep nothing", func() bool {
			told := partitionsOf(t, l.admin, topicName)
			return len(told) > 0 && whole(t, l.admin, 3) && !slices.ContainsFunc(told, func(p kadm.PartitionDetail) bool { return slices.Max(p.Replicas) > 3 })
		})
	})
	l.during("remove", func() {
		for _, n := range c.nodes[3:] {
			n.stop()
			eventually(t, until.Limit, fmt.Sprintf("node %d is removed", n.id), func() bool {
				return c.try(http.MethodDelete, fmt.Sprintf("/v1/cluster/nodes/%d", n.id))
			})
		}
		c.expectNodes(l.admin, 1, 2, 3)
	})
	checkInterruptions(t, l.finish())
}

// during runs a change that takes time, and waits until records flow after it. The change is
// recorded as faults are.
func (l *load) during(kind string, do func()) {
	l.t.Helper()
	healed, recovered := l.recorder.Began(kind, 0)
	do()
	healed()
	l.flows(500)
	recovered()
}

// place reassigns each partition to the given nodes, and waits for it.
func (l *load) place(on func(partition int32) []int32) {
	l.t.Helper()
	var assignment kadm.AlterPartitionAssignmentsReq
	for partition := range int32(l.partitions) {
		assignment.Assign(topicName, partition, on(partition))
	}
	until.Succeeds(l.t, "reassign", func() error {
		ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
		defer cancel()
		altered, err := l.admin.AlterPartitionAssignments(ctx, assignment)
		return errors.Join(err, altered.Error())
	})
	placed := within(moveTime, func() bool {
		told := partitionsOf(l.t, l.admin, topicName)
		return len(told) == l.partitions && !slices.ContainsFunc(told, func(p kadm.PartitionDetail) bool {
			want := slices.Sorted(slices.Values(on(p.Partition)))
			return !slices.Equal(slices.Sorted(slices.Values(p.Replicas)), want) || !slices.Equal(slices.Sorted(slices.Values(p.ISR)), want)
		})
	})
	if !placed {
		l.t.Fatalf("not within %v: partitions are kept as %v says; they are %+v", moveTime, assignment, partitionsOf(l.t, l.admin, topicName))
	}
}

// expectNodes waits until clients see these nodes.
func (c *cluster) expectNodes(admin *kadm.Client, ids ...int32) {
	c.t.Helper()
	var told []int32
	is := func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		defer cancel()
		brokers, err := admin.ListBrokers(ctx)
		if err != nil {
			return false
		}
		told = brokers.NodeIDs()
		slices.Sort(told)
		return slices.Equal(told, ids)
	}
	if !within(until.Limit, is) {
		c.t.Fatalf("clients are told of the nodes %v, want %v", told, ids)
	}
}

// try reports whether a request to the API of node 1 succeeds.
func (c *cluster) try(method, path string) bool {
	c.t.Helper()
	status, body := c.node(1).request(method, path)
	if status/100 != 2 {
		c.t.Logf("%s %s: %d %s", method, path, status, body)
	}
	return status/100 == 2
}
