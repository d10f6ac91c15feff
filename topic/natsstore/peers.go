package natsstore

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// Heartbeats.
const (
	beatSubject = "sluice.nodes.beat"
	// beatEvery is the interval of heartbeats. A node counts as alive for beatWithin after
	// one.
	beatEvery  = 500 * time.Millisecond
	beatWithin = 3 * time.Second
)

// beat is the content of a heartbeat.
type beat struct {
	Node    int32 `json:"node"`
	Leaving bool  `json:"leaving,omitempty"`
	// Followed is the revision up to which the node follows the metadata; 0 if it does not.
	Followed uint64 `json:"followed,omitempty"`
}

// peers records which nodes are alive.
type peers struct {
	self int32

	mu    sync.Mutex
	last  map[int32]heartbeat // of other nodes
	alive []int32             // as last returned
}

// heartbeat is the last one of a node.
type heartbeat struct {
	at       time.Time
	followed uint64
}

func newPeers(self int32) *peers {
	return &peers{self: self, last: map[int32]heartbeat{}, alive: []int32{self}}
}

// take records a heartbeat, and reports whether the set of alive nodes has changed.
func (p *peers) take(data []byte, now time.Time) (changed bool) {
	var b beat
	if json.Unmarshal(data, &b) != nil || b.Node < 1 || b.Node == p.self {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.Leaving {
		delete(p.last, b.Node)
	} else {
		p.last[b.Node] = heartbeat{now, b.Followed}
	}
	return p.look(now)
}

// keepOnly forgets all nodes without a connection.
func (p *peers) keepOnly(connected []int32, now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(node int32, _ heartbeat) bool { return !slices.Contains(connected, node) })
	return p.look(now)
}

// tick drops nodes without a recent heartbeat.
func (p *peers) tick(now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.look(now)
}

// look updates the alive nodes. The caller holds mu.
func (p *peers) look(now time.Time) (changed bool) {
	alive := []int32{p.self}
	for node, h := range p.last {
		if now.Sub(h.at) < beatWithin {
			alive = append(alive, node)
		}
	}
	slices.Sort(alive)
	changed = !slices.Equal(alive, p.alive)
	p.alive = alive
	return changed
}

// now returns the alive nodes, in order.
func (p *peers) now() []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.alive)
}

// followed reports whether all other alive nodes that follow the metadata have reached a
// revision.
func (p *peers) followed(revision uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, h := range p.last {
		if h.followed > 0 && h.followed < revision && slices.Contains(p.alive, node) {
			return false
		}
	}
	return true
}
