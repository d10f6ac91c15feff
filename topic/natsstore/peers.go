package natsstore

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// Of the heartbeats.
const (
	beatSubject = "sluice.nodes.beat"
	// beatEvery is how often a node says that it is there, and beatWithin how
	// long it counts as alive after that.
	beatEvery  = 500 * time.Millisecond
	beatWithin = 3 * time.Second
)

// beat is what a heartbeat says.
type beat struct {
	Node    int32 `json:"node"`
	Leaving bool  `json:"leaving,omitempty"`
	// Followed is how far the node follows the metadata; 0 while it does not.
	Followed uint64 `json:"followed,omitempty"`
}

// peers knows which nodes are alive.
type peers struct {
	self int32

	mu    sync.Mutex
	heard map[int32]heard // of the others, what they said last
	alive []int32         // what was told last
}

// heard is what a node said last, and when.
type heard struct {
	at       time.Time
	followed uint64
}

func newPeers(self int32) *peers {
	return &peers{self: self, heard: map[int32]heard{}, alive: []int32{self}}
}

// take notes a heartbeat, and tells whether other nodes are alive now.
func (p *peers) take(data []byte, now time.Time) (changed bool) {
	var b beat
	if json.Unmarshal(data, &b) != nil || b.Node < 1 || b.Node == p.self {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.Leaving {
		delete(p.heard, b.Node)
	} else {
		p.heard[b.Node] = heard{now, b.Followed}
	}
	return p.look(now)
}

// only forgets all nodes but those, with which there are connections.
func (p *peers) only(connected []int32, now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.heard, func(node int32, _ heard) bool { return !slices.Contains(connected, node) })
	return p.look(now)
}

// tick lets time pass.
func (p *peers) tick(now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.look(now)
}

// look finds out, with mu held, who is alive.
func (p *peers) look(now time.Time) (changed bool) {
	alive := []int32{p.self}
	for node, h := range p.heard {
		if now.Sub(h.at) < beatWithin {
			alive = append(alive, node)
		}
	}
	slices.Sort(alive)
	changed = !slices.Equal(alive, p.alive)
	p.alive = alive
	return changed
}

// now returns the nodes that are alive, in order.
func (p *peers) now() []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.alive)
}

// followed tells whether all others that are alive and follow the metadata do so up
// to a revision.
func (p *peers) followed(revision uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, h := range p.heard {
		if h.followed > 0 && h.followed < revision && slices.Contains(p.alive, node) {
			return false
		}
	}
	return true
}
