package natsstore

import (
	"sync"
	"testing"
	"time"
)

// TestMetadataBeginsOnAllItsNodes starts a cluster for the first time, with one node late:
// the metadata has three replicas from its first change on.
func TestMetadataBeginsOnAllItsNodes(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 3, nil)
	var late sync.WaitGroup
	late.Go(func() {
		<-time.After(time.Second)
		ns.start(3)
	})
	ns.start(1, 2)
	late.Wait()
	for _, node := range ns.running() {
		info, err := ns.node(node).info(t.Context(), metaStream)
		if err != nil {
			t.Fatal(err)
		}
		if replicas := info.Config.Replicas; replicas != 3 {
			t.Errorf("node %d is open while the metadata has %d replicas, want 3", node, replicas)
		}
	}
}

// TestMetadataBeginsWithoutANode starts a cluster for the first time without one node: it
// works, and the metadata gets the missing replica when the node starts.
func TestMetadataBeginsWithoutANode(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 3, nil)
	ns.start(1, 2)
	put(t, ns.node(1).meta, "key", "1", 0)
	ns.start(3)
	ns.replicated(t)
}
