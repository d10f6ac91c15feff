package natsstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

func TestNextStep(t *testing.T) {
	at := func(leader int32, nodes ...int32) topic.Replicas {
		return topic.Replicas{Leader: leader, Nodes: nodes, Current: nodes}
	}
	for name, c := range map[string]struct {
		r        topic.Replicas
		replicas int
		want     []int32
		step     step
	}{
		"there":                  {at(2, 1, 2, 3), 3, []int32{3, 2, 1}, step{kind: stepNone}},
		"grow":                   {at(2, 2), 1, []int32{1, 2, 3}, step{kind: stepGrow}},
		"move":                   {at(2, 2, 3, 4), 3, []int32{1, 2, 3}, step{kind: stepMove, nodes: []int32{1, 2, 3}}},
		"a replica is missing":   {at(2, 2, 3), 3, []int32{1, 2, 3}, step{kind: stepMove, nodes: []int32{1, 2, 3}}},
		"shrink":                 {at(2, 1, 2, 3), 3, []int32{2}, step{kind: stepShrink}},
		"the leader first":       {at(1, 1, 2, 3), 3, []int32{2}, step{kind: stepResign, nodes: []int32{2}}},
		"what stays comes first": {at(1, 1, 2, 3), 3, []int32{4}, step{kind: stepMove, nodes: []int32{1, 2, 4}}},
		"moving":                 {topic.Replicas{Leader: 1, Nodes: []int32{1}, Current: []int32{1}, Moving: true}, 1, []int32{1}, step{kind: stepWait}},
		"no leader":              {topic.Replicas{Nodes: []int32{1, 2, 3}, Current: []int32{1, 2, 3}}, 3, []int32{1, 2, 4}, step{kind: stepWait}},
		"no majority":            {topic.Replicas{Leader: 1, Nodes: []int32{1, 2, 3}, Current: []int32{1}}, 3, []int32{1}, step{kind: stepWait}},
		"one that stays lags":    {topic.Replicas{Leader: 1, Nodes: []int32{1, 2, 3}, Current: []int32{1, 2}}, 3, []int32{3}, step{kind: stepWait}},
	} {
		got := nextStep(c.r, c.replicas, c.want)
		if got.kind != c.step.kind || !slices.Equal(got.nodes, c.step.nodes) {
			t.Errorf("%s: %+v, want %+v", name, got, c.step)
		}
	}
}

// Only the leader's answer counts: it does not list itself.
func TestSaidByLeader(t *testing.T) {
	said := func(leader string, replicas ...string) *jetstream.ClusterInfo {
		cluster := &jetstream.ClusterInfo{Leader: leader}
		for _, name := range replicas {
			cluster.Replicas = append(cluster.Replicas, &jetstream.PeerInfo{Name: name})
		}
		return cluster
	}
	for name, c := range map[string]struct {
		cluster *jetstream.ClusterInfo
		want    bool
	}{
		"the leader":                                {said("n3", "n1", "n2"), true},
		"the only replica":                          {said("n3"), true},
		"a replica that knows no leader":            {said("", "n1", "n2", "n3"), false},
		"a replica that has just heard of a leader": {said("n1", "n1", "n2"), false},
		"nothing": {nil, false},
	} {
		if got := saidByLeader(c.cluster); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestStepsLeadThere applies the steps of nextStep to an engine that chooses nodes at random.
func TestStepsLeadThere(t *testing.T) {
	defer rapidtest.Checks(100, 1000)()
	rapid.Check(t, func(rt *rapid.T) {
		set := func(name string) []int32 {
			all := rapid.Permutation([]int32{1, 2, 3, 4, 5, 6}).Draw(rt, name)
			return slices.Clone(all[:rapid.IntRange(1, maxReplicas).Draw(rt, name+" count")])
		}
		have, want := set("have"), set("want")
		r, copies := topic.Replicas{Leader: have[0], Nodes: have, Current: have}, 0
		for steps := 0; ; steps++ {
			next := nextStep(r, len(r.Nodes), want)
			if next.kind == stepNone {
				break
			}
			if steps > 6 {
				rt.Fatalf("%+v is not %v after %d steps", r, want, steps)
			}
			nodes := slices.Clone(r.Nodes)
			switch next.kind {
			case stepGrow:
				for _, node := range rapid.Permutation([]int32{1, 2, 3, 4, 5, 6}).Draw(rt, "added") {
					if len(nodes) < len(want) && !slices.Contains(nodes, node) {
						nodes = append(nodes, node)
						copies++
					}
				}
			case stepShrink:
				if !slices.Contains(want, r.Leader) {
					rt.Fatalf("the leader of %+v goes", r)
				}
				nodes = []int32{r.Leader}
				for _, node := range rapid.Permutation(r.Nodes).Draw(rt, "kept") {
					if len(nodes) < len(want) && node != r.Leader {
						nodes = append(nodes, node)
					}
				}
			case stepMove:
				if len(next.nodes) != len(r.Nodes) {
					rt.Fatalf("a move of %+v to %v", r, next.nodes)
				}
				nodes = next.nodes
			case stepResign:
				to := rapid.SampledFrom(next.nodes).Draw(rt, "to")
				if !slices.Contains(r.Nodes, to) {
					rt.Fatalf("%d has nothing of %+v", to, r)
				}
				r.Leader = to
			default:
				rt.Fatalf("it waits at %+v", r)
			}
			r.Nodes, r.Current = nodes, nodes
			if !slices.Contains(nodes, r.Leader) {
				r.Leader = nodes[0]
			}
		}
		if got := slices.Sorted(slices.Values(r.Nodes)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			rt.Fatalf("it is on %v, want %v", got, want)
		}
	})
}

// place places a log on nodes.
func (ns *nodes) place(node int32, log string, on ...int32) {
	ns.t.Helper()
	began, steps := time.Now(), 0
	until.True(ns.t, fmt.Sprintf("log %s on %v", log, on), func() bool {
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
	until.Succeeds(ns.t, "replicas", func() error {
		r, err := ns.node(node).Cluster().Replicas(ns.t.Context(), log)
		if err == nil && (!slices.Equal(r.Nodes, on) || r.Moving) {
			ns.t.Fatalf("log %s is on %+v, want %v", log, r, on)
		}
		return err
	})
	ns.t.Logf("on %v within %v", on, time.Since(began))
}

// TestPlace places a log on changing nodes of five while entries are appended.
func TestPlace(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5, func(o *Options) { o.Timeout = 3 * time.Second })
	w := startWriter(t, ns.log(5, "log", 2))
	w.more(50)
	for _, on := range [][]int32{{2, 3, 4}, {1, 2, 3, 4, 5}, {1, 3, 5}, {2, 4, 5}, {3}, {1}} {
		ns.place(1, "log", on...)
		w.more(20)
	}
	checkNumbered(t, ns.log(4, "log"), w.end())
	if placed, err := ns.node(1).Cluster().Place(t.Context(), "none", []int32{1}); placed || !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("a log that does not exist: %v, %v", placed, err)
	}
	for _, on := range [][]int32{nil, {0}, {1, 1}, {1, 2, 3, 4, 5, 6}} {
		if _, err := ns.node(1).Cluster().Place(t.Context(), "log", on); err == nil {
			t.Errorf("nodes %v are taken", on)
		}
	}
}

// TestRemove removes a stopped node of four: its logs get another replica, and it no longer
// counts as a member.
func TestRemove(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 4, nil)
	l := ns.log(1, "log", 1, 2, 4)
	wantOutcomes(t, send(l, 1, 2), nil, nil)
	c := ns.node(1).Cluster()
	if err := c.Remove(t.Context(), 4); !errors.Is(err, ErrAlive) {
		t.Fatalf("remove one that is alive: %v", err)
	}
	until.Succeeds(t, "it leaves", func() error { return ns.node(4).Cluster().Leave(t.Context()) }) // again if others lacked entries just then
	ns.stop(4)
	ns.waitAliveOnly(3)
	for _, what := range []string{"it is removed", "and again"} {
		until.Succeeds(t, what, func() error { return c.Remove(t.Context(), 4) })
	}
	ns.place(1, "log", 1, 2, 3)
	until.True(t, "the cluster has 3 nodes", func() bool {
		_, expected := ns.node(1).engine.members()
		return expected == 3
	})
	appendUntilTaken(t, l)
}
