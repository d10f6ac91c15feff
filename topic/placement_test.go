package topic

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawNodes(t *rapid.T, least int) []Node {
	count := rapid.IntRange(least, 9).Draw(t, "nodes")
	racks := rapid.SampledFrom([][]string{{""}, {"a", "b"}, {"a", "b", "c"}, {"a", "a", "b", ""}}).Draw(t, "racks")
	var nodes []Node
	for id := range count {
		n := Node{ID: int32(id + 1), Alive: rapid.IntRange(0, 9).Draw(t, "alive") > 0, Draining: rapid.IntRange(0, 9).Draw(t, "draining") == 0}
		n.Rack = rapid.SampledFrom(racks).Draw(t, "rack")
		nodes = append(nodes, n)
	}
	return nodes
}

func openNodes(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !n.Alive || n.Draining })
}

// rackOf returns a node's rack; a node without one is a rack of its own.
func rackOf(nodes []Node, id int32) string {
	n := nodes[id-1]
	if n.Rack == "" {
		return fmt.Sprint("node ", id)
	}
	return n.Rack
}

// crowding returns how many replicas of a partition share a rack with an earlier one.
func crowding(nodes []Node, set []int32) int {
	racks := map[string]bool{}
	for _, id := range set {
		racks[rackOf(nodes, id)] = true
	}
	return len(set) - len(racks)
}

// checkSet fails if a partition is not on the wanted number of different open nodes, or
// shares racks needlessly.
func checkSet(t *rapid.T, nodes []Node, set []int32, want int) {
	t.Helper()
	open := openNodes(nodes)
	racks := map[string]bool{}
	for _, n := range open {
		racks[rackOf(nodes, n.ID)] = true
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(set)))
	if len(set) != want || len(distinct) != want {
		t.Fatalf("replicas %v, want %d different ones", set, want)
	}
	for _, id := range set {
		if !slices.ContainsFunc(open, func(n Node) bool { return n.ID == id }) {
			t.Fatalf("replicas %v: %d is dead or draining: %+v", set, id, nodes)
		}
	}
	if got, least := crowding(nodes, set), max(want-len(racks), 0); got != least {
		t.Fatalf("replicas %v: %d share a rack, need not be more than %d: %+v", set, got, least, nodes)
	}
}

// checkSpares fails if a partition is not on the wanted number of different nodes,
// including all open ones, with an open node as the preferred leader.
func checkSpares(t *rapid.T, nodes []Node, set []int32, want int) {
	t.Helper()
	if distinct := slices.Compact(slices.Sorted(slices.Values(set))); len(set) != want || len(distinct) != want {
		t.Fatalf("replicas %v, want %d different ones", set, want)
	}
	if first := nodes[set[0]-1]; !first.Alive || first.Draining {
		t.Fatalf("replicas %v: the first is dead or draining: %+v", set, nodes)
	}
	for _, n := range nodes {
		if has := slices.Contains(set, n.ID); has && n.Draining || !has && n.Alive && !n.Draining {
			t.Fatalf("replicas %v of %+v", set, nodes)
		}
	}
}

func counts(sets [][]int32) (replicas, leaders map[int32]int) {
	replicas, leaders = map[int32]int{}, map[int32]int{}
	for _, set := range sets {
		leaders[set[0]]++
		for _, id := range set {
			replicas[id]++
		}
	}
	return replicas, leaders
}

// width returns the difference between the largest and the smallest number of open nodes.
func width(nodes []Node, of map[int32]int) int {
	most, least := 0, 1<<30
	for _, n := range openNodes(nodes) {
		most, least = max(most, of[n.ID]), min(least, of[n.ID])
	}
	return most - least
}

func TestAssignSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 1)
		partitions, replicas := rapid.IntRange(1, 40).Draw(t, "partitions"), rapid.IntRange(1, 6).Draw(t, "replicas")
		sets, err := NewPlaces(nodes, nil).Assign(partitions, replicas)
		open, spare := len(openNodes(nodes)), 0
		for _, n := range nodes {
			if !n.Alive && !n.Draining {
				spare++
			}
		}
		if replicas > min(open+spare, MaxReplicas) || open < Majority(replicas) {
			if !errors.Is(err, ErrInvalidReplicas) {
				t.Fatalf("%d replicas on %d nodes, %d are dead: %v", replicas, open, spare, err)
			}
			return
		}
		if err != nil || len(sets) != partitions {
			t.Fatal(sets, err)
		}
		if replicas > open {
			for _, set := range sets {
				checkSpares(t, nodes, set, replicas)
			}
			return
		}
		for _, set := range sets {
			checkSet(t, nodes, set, replicas)
		}
		plain := !slices.ContainsFunc(nodes, func(n Node) bool { return n.Rack != "" })
		kept, led := counts(sets)
		if plain && (width(nodes, kept) > 1 || width(nodes, led) > 3) { // one after the other they cannot be chosen better
			t.Fatalf("uneven: %v, leaders %v", kept, led)
		}
	})
}

// drawSets returns partitions on any nodes of which some are open.
func drawSets(t *rapid.T, nodes []Node) [][]int32 {
	var ids []int32
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	var sets [][]int32
	for range rapid.IntRange(1, 25).Draw(t, "partitions") {
		sets = append(sets, rapid.Permutation(ids).Draw(t, "set")[:rapid.IntRange(1, min(len(ids), MaxReplicas)).Draw(t, "count")])
	}
	return sets
}

func TestResizeKeepsWhatItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 1)
		before := drawSets(t, nodes)[0]
		want := rapid.IntRange(1, MaxReplicas).Draw(t, "want")
		after, err := NewPlaces(nodes, [][]int32{before}).Resize(before, want)
		if err != nil {
			free := slices.DeleteFunc(openNodes(nodes), func(n Node) bool { return slices.Contains(before, n.ID) })
			if !errors.Is(err, ErrInvalidReplicas) || len(before)+len(free) >= want {
				t.Fatalf("%v to %d of %+v: %v", before, want, nodes, err)
			}
			return
		}
		kept := 0
		for _, id := range after {
			if slices.Contains(before, id) {
				kept++
			}
		}
		if len(after) != want || kept != min(want, len(before)) || len(slices.Compact(slices.Sorted(slices.Values(after)))) != want {
			t.Fatalf("%v to %d: %v", before, want, after)
		}
		first := nodes[before[0]-1]
		if first.Alive && !first.Draining && after[0] != before[0] {
			t.Fatalf("%v to %d: %v prefers another leader", before, want, after)
		}
	})
}

func TestWithout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 2)
		before := drawSets(t, nodes)[0]
		gone := rapid.IntRange(1, len(nodes)).Draw(t, "gone")
		nodes[gone-1].Draining = true
		after, err := NewPlaces(nodes, [][]int32{before}).Without(before, int32(gone))
		if err != nil {
			free := slices.DeleteFunc(openNodes(nodes), func(n Node) bool { return slices.Contains(before, n.ID) })
			if !errors.Is(err, ErrInvalidReplicas) || len(free) > 0 {
				t.Fatal(err)
			}
			return
		}
		if slices.Contains(after, int32(gone)) || len(after) != len(before) {
			t.Fatalf("%v without %d: %v", before, gone, after)
		}
		for _, id := range before {
			if id != int32(gone) && !slices.Contains(after, id) {
				t.Fatalf("%v without %d: %v, which gives up %d too", before, gone, after, id)
			}
		}
	})
}

func TestBalanceEvensOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 1)
		for i := range nodes {
			nodes[i].Alive, nodes[i].Draining = true, false
		}
		sets := drawSets(t, nodes)
		before := slices.Clone(sets)
		most := rapid.SampledFrom([]int{0, 1, 3, 1 << 20}).Draw(t, "most")
		changed := NewPlaces(nodes, sets).Balance(sets, most)
		moved := 0
		for i, set := range sets {
			same := slices.Equal(slices.Sorted(slices.Values(set)), slices.Sorted(slices.Values(before[i])))
			if !same {
				moved++
			}
			if !slices.Equal(set, before[i]) && !changed[i] {
				t.Fatalf("partition %d was changed from %v to %v, and is not told", i, before[i], set)
			}
			if crowding(nodes, set) > crowding(nodes, before[i]) {
				t.Fatalf("%v to %v shares more racks", before[i], set)
			}
			if most == 1<<20 {
				checkSet(t, nodes, set, len(before[i]))
			}
		}
		if moved > most {
			t.Fatalf("%d moved, at most %d may be", moved, most)
		}
		if most < 1<<20 {
			return
		}
		if plain := !slices.ContainsFunc(nodes, func(n Node) bool { return n.Rack != "" }); plain {
			if kept, _ := counts(sets); width(nodes, kept) > 1 {
				t.Fatalf("uneven: %v", kept)
			}
		}
		if again := NewPlaces(nodes, sets).Balance(sets, most); len(again) > 0 {
			t.Fatalf("a second time changes %v", again)
		}
	})
}

// A node that is added to three gets its share, and no other partitions are moved.
func TestBalanceAfterGrowth(t *testing.T) {
	nodes := []Node{{ID: 1, Alive: true}, {ID: 2, Alive: true}, {ID: 3, Alive: true}}
	sets, err := NewPlaces(nodes, nil).Assign(12, 3)
	if err != nil {
		t.Fatal(err)
	}
	nodes = append(nodes, Node{ID: 4, Alive: true})
	changed := NewPlaces(nodes, sets).Balance(sets, 100)
	kept, led := counts(sets)
	if kept[4] != 9 || width(nodes, kept) > 0 || width(nodes, led) > 1 {
		t.Errorf("after growth %v, leaders %v", kept, led)
	}
	if len(changed) > 12 {
		t.Errorf("%d partitions were changed", len(changed))
	}
}
