package natsstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// place brings a log to nodes.
func (ns *nodes) place(node int32, log string, on ...int32) {
	ns.t.Helper()
	began, steps := time.Now(), 0
	eventually(ns.t, fmt.Sprintf("log %s on %v", log, on), func() bool {
		steps++
		placed, err := ns.node(node).Cluster().Place(ns.t.Context(), log, on)
		if err != nil {
			ns.t.Logf("place: %v", err)
		}
		if r, err := ns.node(node).Cluster().Replicas(ns.t.Context(), log); err == nil && 2*len(r.Current) < len(r.Nodes) {
			ns.t.Errorf("a majority is not current: %+v", r)
		}
		return placed
	})
	r, err := ns.node(node).Cluster().Replicas(ns.t.Context(), log)
	if err != nil || !slices.Equal(r.Nodes, on) || r.Moving {
		ns.t.Fatalf("log %s is on %+v, want %v: %v", log, r, on, err)
	}
	ns.t.Logf("on %v within %v", on, time.Since(began))
}

// TestPlace moves a log over five nodes while entries are appended.
func TestPlace(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5, func(o *Options) { o.Timeout = 3 * time.Second })
	w := startWriter(t, ns.open(5, "log", 2))
	w.more(50)
	for _, on := range [][]int32{{2, 3, 4}, {1, 2, 3, 4, 5}, {1, 3, 5}, {2, 4, 5}, {3}, {1}} {
		ns.place(1, "log", on...)
		w.more(20)
	}
	checkNumbered(t, ns.open(4, "log"), w.end())
	if placed, err := ns.node(1).Cluster().Place(t.Context(), "none", []int32{1}); placed || !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("a log that does not exist: %v, %v", placed, err)
	}
	for _, on := range [][]int32{nil, {0}, {1, 1}, {1, 2, 3, 4, 5, 6}} {
		if _, err := ns.node(1).Cluster().Place(t.Context(), "log", on); err == nil {
			t.Errorf("nodes %v are taken", on)
		}
	}
}

// TestRemove takes a stopped node out of four: what it kept gets another replica,
// and its number does not count any more.
func TestRemove(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 4, nil)
	l := ns.open(1, "log", 1, 2, 4)
	wantOutcomes(t, send(l, 1, 2), nil, nil)
	c := ns.node(1).Cluster()
	if err := c.Remove(t.Context(), 4); !errors.Is(err, ErrAlive) {
		t.Fatalf("remove one that is alive: %v", err)
	}
	if err := ns.node(4).Cluster().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.stop(4)
	ns.waitAliveOnly(3)
	if err := c.Remove(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), 4); err != nil {
		t.Fatalf("remove again: %v", err)
	}
	ns.place(1, "log", 1, 2, 3)
	if _, expected := ns.node(1).engine.members(); expected != 3 {
		t.Errorf("the cluster has %d nodes, want 3", expected)
	}
	wantOutcomes(t, send(l, 3), nil)
}
