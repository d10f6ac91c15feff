//go:build cluster && long

package cluster

import (
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Nodes stand still for half a second, as in a pause of their machine: no partition gets another
// leader. A busy machine may add to a pause, so one round of all nodes counts.
func TestShortStalls(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	l := newLoad(c, 6, 3)
	l.flows(500)
	end := time.Now().Add(chaosTime(t))
	rounds, kept := 0, 0
	for ; time.Now().Before(end); rounds++ {
		before := c.epochs(l.admin)
		for _, n := range c.nodes {
			n.signal(syscall.SIGSTOP)
			<-time.After(500 * time.Millisecond)
			n.signal(syscall.SIGCONT)
			<-time.After(time.Second)
		}
		if after := c.epochs(l.admin); maps.Equal(after, before) {
			kept++
		} else {
			t.Logf("after round %d the leader epochs of partitions are %v, they were %v", rounds, after, before)
		}
	}
	if kept == 0 {
		t.Errorf("leaders have changed in each of %d rounds of stalls", rounds)
	}
	l.finish()
}

// epochs returns the leader epoch of each partition, once all have leaders.
func (c *cluster) epochs(admin *kadm.Client) map[int32]int32 {
	c.t.Helper()
	c.leader(admin)
	epochs := map[int32]int32{}
	for _, p := range partitionsOf(c.t, admin, topicName) {
		epochs[p.Partition] = p.LeaderEpoch
	}
	return epochs
}
