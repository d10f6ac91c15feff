package topic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// Which node coordinates which groups. A group belongs to one of groupSlots slots,
// by a hash of its name, and each slot to one node: who that is stands in the
// metadata, and who it should be is a function of the nodes that are there.

const (
	// groupSlots is how many slots there are. It is part of what is stored: it
	// cannot change.
	groupSlots = 32
	slotPrefix = "coordinators/"
	// slotFormat is the version of what is stored of a slot.
	slotFormat = 1
	// takeOverWait is how long a node that should have a slot leaves it to one
	// that has it and lives: nodes that come and go at once move no slots. It is
	// also how long each node waits for the one that comes before it, where nobody
	// has the slot.
	takeOverWait = 3 * time.Second
)

// slotRecord is what is stored of a slot.
type slotRecord struct {
	Format int `json:"format"`
	// Node coordinates the slot's groups; 0: nobody, until one claims it.
	Node int32 `json:"node"`
	// Epoch counts the claims.
	Epoch int64 `json:"epoch"`
	// Left is the node that gave the slot up because it stops.
	Left int32 `json:"left,omitempty"`
}

func slotKey(slot int) string { return slotPrefix + strconv.Itoa(slot) }

func readSlotRecord(item Item) (slotRecord, error) {
	var r slotRecord
	if err := json.Unmarshal(item.Value, &r); err != nil {
		return r, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if r.Format != slotFormat {
		return r, fmt.Errorf("metadata %q: format %d; this version reads %d", item.Key, r.Format, slotFormat)
	}
	return r, nil
}

// slotOf returns the slot of a group.
func slotOf(group string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(group)) // does not fail
	return int(hash.Sum32() % groupSlots)
}

// slotSeed is one with which the first nodes have about as many slots each.
const slotSeed = 446

// slotOrder returns the nodes in the order in which they should have a slot, by
// rendezvous hashing: when a node comes or goes, only its slots move.
func slotOrder(slot int, nodes []int32) []int32 {
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

// membership is what a node knows of all nodes.
type membership struct {
	self int32
	// alive have been heard of lately. candidates are those of them that belong to
	// the cluster and are not being drained; all that are alive, if none is.
	alive, candidates []int32
	// registered is how many nodes belong to the cluster, dead or alive, and
	// reached how many of them are alive.
	registered, reached int
}

// newMembership puts together who is alive and who is registered.
func newMembership(self int32, alive []int32, registered []nodeRecord) membership {
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

// isolated says that a node sees half of the nodes, or fewer: others may have
// taken over what was its own.
func (m membership) isolated() bool { return m.registered > 0 && 2*m.reached <= m.registered }

// claims says whether a node that does not serve a slot should claim it, and for how
// long things must have stood like that.
func (m membership) claims(slot int, r slotRecord) (after time.Duration, ok bool) {
	if m.isolated() {
		return 0, false
	}
	if r.Node == m.self {
		return 0, true // it had it before it restarted: nobody else takes it
	}
	candidates := m.candidates
	held := r.Node != 0 && slices.Contains(m.alive, r.Node)
	if !held && r.Node == 0 && r.Left != m.self {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(n int32) bool { return n == r.Left })
	}
	rank := slices.Index(slotOrder(slot, candidates), m.self)
	switch {
	case rank < 0:
		return 0, false
	case held:
		return takeOverWait, rank == 0
	default:
		return time.Duration(rank) * takeOverWait, true
	}
}
