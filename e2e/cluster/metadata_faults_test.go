//go:build cluster && long

package cluster

import "testing"

// Changes of topics through all nodes at once, during faults of the nodes, are linearizable.
func TestMetadataIsLinearizable(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	checkLinearizable(t, c.changeTopics(kill, stop, mute, kill))
}
