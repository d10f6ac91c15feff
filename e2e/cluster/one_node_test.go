//go:build cluster

package cluster

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// The load runs on one node without a cluster, which is killed: so violations in the cluster tests
// are due to the cluster.
func TestLoadOnOneNode(t *testing.T) {
	c := newCluster(t, layout{nodes: 1, alone: true})
	l := newLoad(c, 4, 1)
	l.flows(1000)
	healed, recovered := l.recorder.Began("kill", 1)
	c.node(1).kill()
	c.node(1).launch()
	c.node(1).awaitReady()
	healed()
	l.flows(1000)
	recovered()
	healed, recovered = l.recorder.Began("stop", 1)
	c.node(1).stop()
	c.node(1).launch()
	c.node(1).awaitReady()
	healed()
	l.flows(1000)
	recovered()
	report := l.finish()
	if report.Commits == 0 || report.Read < report.Acknowledged || len(report.Faults) != 2 {
		t.Errorf("%d looks at commits, %d read of %d, %d faults", report.Commits, report.Read, report.Acknowledged, len(report.Faults))
	}
}

// A leader accepts the request that TestIsolation builds by hand.
func TestProduceDirectly(t *testing.T) {
	c := newCluster(t, layout{nodes: 1, alone: true})
	c.newTopic(topicName, 1, 1)
	direct := c.directTo(1)
	var acknowledged []string
	for _, acks := range []int16{-1, 1} {
		acknowledged = append(acknowledged, produceDirectly(t, acks, direct))
	}
	checkAll(t, c, kadm.NewClient(c.connect()), acknowledged)
}

// Changes of the topics of one node are linearizable.
func TestMetadataOfOneNode(t *testing.T) {
	c := newCluster(t, layout{nodes: 1, alone: true})
	checkLinearizable(t, c.changeTopics(kill, stop))
}
