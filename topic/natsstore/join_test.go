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
	for inTime := false; !inTime && !t.Failed(); {
		t.Run("with one late", func(t *testing.T) { inTime = beginsOnAll(t) })
	}
}

// beginsOnAll reports whether the last node was not too late for the others, which wait for a
// while only.
func beginsOnAll(t *testing.T) (inTime bool) {
	t.Helper()
	ns := newNodes(t, 3, nil)
	began := time.Now()
	var late sync.WaitGroup
	late.Go(func() {
		<-time.After(time.Second)
		ns.start(3)
	})
	ns.start(1, 2)
	late.Wait()
	if time.Since(began) >= beginWithin {
		t.Logf("the last node was there after %v", time.Since(began))
		return false
	}
	for _, node := range ns.running() {
		info, err := ns.node(node).info(t.Context(), metaStream)
		if err != nil {
			t.Fatal(err)
		}
		if replicas := info.Config.Replicas; replicas != 3 {
			t.Errorf("node %d is open while the metadata has %d replicas, want 3", node, replicas)
		}
	}
	return true
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

// TestMetadataOutlivesTwoOfFive stops two of five nodes that keep the metadata, which topics with
// five replicas outlive: so does the metadata.
func TestMetadataOutlivesTwoOfFive(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5, nil)
	ns.replicated(t)
	revision := put(t, ns.node(1).meta, "key", "1", 0)
	info, err := ns.node(1).info(t.Context(), metaStream)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range replicasOf(info).Nodes[:2] {
		ns.stop(node)
	}
	put(t, ns.node(ns.running()[0]).meta, "key", "2", revision)
}
