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
// leader.
func TestShortStalls(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	l := newLoad(c, 6, 3)
	l.flows(500)
	before := c.epochs(l.admin)
	stalls := 0
	for end := time.Now().Add(chaosTime(t)); time.Now().Before(end); stalls++ {
		n := c.nodes[stalls%len(c.nodes)]
		n.signal(syscall.SIGSTOP)
		<-time.After(500 * time.Millisecond)
		n.signal(syscall.SIGCONT)
		<-time.After(time.Second)
	}
	if after := c.epochs(l.admin); !maps.Equal(after, before) {
		t.Errorf("after %d stalls the leader epochs of partitions are %v, they were %v", stalls, after, before)
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
