package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

func drawIDs(t *rapid.T, label string) []int32 {
	return rapid.SliceOfNDistinct(rapid.Int32Range(1, 50), 1, 9, rapid.ID).Draw(t, label)
}

// The slot of a group is stored with its coordinator: it must not change from one
// version to the next.
func TestSlotOfGroup(t *testing.T) {
	for name, want := range map[string]int{"": 5, "g": 6, "orders": 12, "checkout": 25} {
		if got := SlotOf(name); got != want {
			t.Errorf("group %q is in slot %d, want %d", name, got, want)
		}
	}
	used := map[int]bool{}
	for i := range 1000 {
		used[SlotOf(fmt.Sprint("group-", i))] = true
	}
	if len(used) != SlotCount {
		t.Errorf("1,000 groups are in %d slots, want all %d", len(used), SlotCount)
	}
}

// The nodes of a small cluster have about as many slots each.
func TestSlotsAreSpread(t *testing.T) {
	for count := int32(2); count <= 7; count++ {
		var nodes []int32
		for id := range count {
			nodes = append(nodes, id+1)
		}
		had := map[int32]int{}
		for slot := range SlotCount {
			had[SlotOrder(slot, nodes)[0]]++
		}
		fair := SlotCount / float64(count)
		for _, node := range nodes {
			if n := float64(had[node]); n < fair-2 || n > fair+2 {
				t.Errorf("of %d nodes, node %d has %v slots, want about %.1f", count, node, n, fair)
			}
		}
	}
}

// When a node goes, its slots move to the next nodes in order, and no others move.
func TestOnlySlotsOfANodeMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawIDs(t, "nodes")
		goes := rapid.SampledFrom(nodes).Draw(t, "goes")
		for slot := range SlotCount {
			before := SlotOrder(slot, nodes)
			after := SlotOrder(slot, slices.DeleteFunc(slices.Clone(nodes), func(n int32) bool { return n == goes }))
			want := slices.DeleteFunc(slices.Clone(before), func(n int32) bool { return n == goes })
			if !slices.Equal(after, want) {
				t.Fatalf("slot %d: %v without %d became %v", slot, before, goes, after)
			}
			shuffled := rapid.Permutation(nodes).Draw(t, "shuffled")
			if !slices.Equal(SlotOrder(slot, shuffled), before) {
				t.Fatalf("slot %d depends on the order of %v", slot, nodes)
			}
		}
	})
}

// If all nodes see the same state, exactly one claims a free slot first, and exactly the
// preferred owner takes a slot from another.
func TestOneNodeClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawIDs(t, "nodes")
		var registered []catalog.Node
		var alive []int32
		for _, id := range all {
			registered = append(registered, catalog.Node{ID: id, Draining: rapid.IntRange(0, 4).Draw(t, "draining") == 0})
			if rapid.IntRange(0, 3).Draw(t, "alive") > 0 {
				alive = append(alive, id)
			}
		}
		record := SlotRecord{
			Node: rapid.SampledFrom(append([]int32{0}, all...)).Draw(t, "holder"),
			Left: rapid.SampledFrom(append([]int32{0}, all...)).Draw(t, "left"),
		}
		if record.Node != 0 {
			record.Left = 0
		}
		slot := rapid.IntRange(0, SlotCount-1).Draw(t, "slot")
		at := map[time.Duration][]int32{}
		for _, id := range alive {
			members := newMembership(id, alive, registered)
			after, ok := members.claims(slot, record)
			if members.isolated() != (2*len(alive) <= len(all)) {
				t.Fatalf("%d of %d nodes: isolated is %v", len(alive), len(all), members.isolated())
			}
			if ok && members.isolated() {
				t.Fatalf("node %d is isolated and claims", id)
			}
			if ok {
				at[after] = append(at[after], id)
			}
		}
		if 2*len(alive) <= len(all) {
			return
		}
		held := slices.Contains(alive, record.Node)
		for after, nodes := range at {
			if len(nodes) > 1 && (record.Left == 0 || !slices.Contains(nodes, record.Left)) {
				t.Fatalf("%v claim a slot at once, after %v", nodes, after)
			}
			if held && after == 0 && !slices.Equal(nodes, []int32{record.Node}) {
				t.Fatalf("%v claim at once what node %d has", nodes, record.Node)
			}
		}
		if !held && len(at[0]) == 0 {
			t.Fatal("nobody claims a free slot at once")
		}
	})
}

// A slot of a newer version is refused, with what to do.
func TestNewerSlotIsRefused(t *testing.T) {
	if _, err := readSlotRecord(topic.Item{Key: slotKey(1), Value: []byte(`{"format":2}`)}); err == nil || !strings.Contains(err.Error(), "upgrade this node") {
		t.Errorf("a slot of format 2: %v", err)
	}
}
