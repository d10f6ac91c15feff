package group

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Groups are divided among nodes by slots. A group belongs to one of SlotCount slots, by
// a hash of its name, and each slot to one node: the metadata record the present owner,
// and the preferred owner is a function of the nodes that are there.

const (
	// SlotCount is the number of slots. It is part of the stored format and cannot
	// change.
	SlotCount = 32
	// SlotPrefix begins the keys of slots.
	SlotPrefix = "coordinators/"
	// slotFormat is the version of a slot's record.
	slotFormat = 1
	// takeOverWait is how long a node leaves a slot that it should own to the present
	// owner, if that is alive: so nodes that come and go at once move no slots. It is
	// also how long each node waits for the one that comes before it in the order, if no
	// node has the slot.
	takeOverWait = 3 * time.Second
)

// SlotRecord is the stored record of a slot.
type SlotRecord struct {
	Format int `json:"format"`
	// Node coordinates the slot's groups; 0: no node, until one claims it.
	Node int32 `json:"node"`
	// Epoch counts the claims.
	Epoch int64 `json:"epoch"`
	// Left is the node that gave the slot up because it was stopping.
	Left int32 `json:"left,omitempty"`
}

func slotKey(slot int) string { return SlotPrefix + strconv.Itoa(slot) }

func readSlotRecord(item topic.Item) (SlotRecord, error) {
	var r SlotRecord
	if err := json.Unmarshal(item.Value, &r); err != nil {
		return r, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if r.Format != slotFormat {
		return r, fmt.Errorf("metadata %q: format %d; this version reads %d: upgrade this node", item.Key, r.Format, slotFormat)
	}
	return r, nil
}

// SlotOf returns the slot of a group.
func SlotOf(group string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(group)) // does not fail
	return int(hash.Sum32() % SlotCount)
}

// slotSeed is a seed that gives the first nodes about as many slots each.
const slotSeed = 446

// SlotOrder returns the nodes in order of preference for a slot, by rendezvous hashing:
// when a node comes or goes, only its slots move.
func SlotOrder(slot int, nodes []int32) []int32 {
	weight := func(node int32) uint64 { return mix(slotSeed + uint64(slot)<<32 + uint64(uint32(node))) }
	return slices.SortedFunc(slices.Values(nodes), func(a, b int32) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a, b))
	})
}

// mix spreads numbers that are near each other (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// membership is a node's view of all nodes.
type membership struct {
	self int32
	// alive nodes were heard of recently. candidates are those of them that belong to
	// the cluster and are not being drained; if there are none, all that are alive.
	alive, candidates []int32
	// registered is how many nodes belong to the cluster, dead or alive, and
	// reached how many of them are alive.
	registered, reached int
}

// newMembership combines the alive and the registered nodes.
func newMembership(self int32, alive []int32, registered []catalog.Node) membership {
	m := membership{self: self, alive: alive, registered: len(registered)}
	for _, n := range registered {
		if !slices.Contains(alive, n.ID) {
			continue
		}
		m.reached++
		if !n.Draining {
			m.candidates = append(m.candidates, n.ID)
		}
	}
	if len(m.candidates) == 0 {
		m.candidates = alive
	}
	return m
}

// isolated reports whether a node sees half of the nodes, or fewer: others may have
// taken over its slots.
func (m membership) isolated() bool { return m.registered > 0 && 2*m.reached <= m.registered }

// claims reports whether a node that does not serve a slot should claim it, and for how
// long the conditions must have held.
func (m membership) claims(slot int, r SlotRecord) (after time.Duration, ok bool) {
	if m.isolated() {
		return 0, false
	}
	if r.Node == m.self {
		return 0, true // its own from before a restart: no other node takes it
	}
	candidates := m.candidates
	held := r.Node != 0 && slices.Contains(m.alive, r.Node)
	if !held && r.Node == 0 && r.Left != m.self {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(n int32) bool { return n == r.Left })
	}
	rank := slices.Index(SlotOrder(slot, candidates), m.self)
	switch {
	case rank < 0:
		return 0, false
	case held:
		return takeOverWait, rank == 0
	default:
		return time.Duration(rank) * takeOverWait, true
	}
}
