package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Nodes is a cluster in memory: one [NodeStore] for each node, over logs and
// metadata that they share. It is what a majority agrees on; what a node sees of
// that can be made older, and what it writes can be made to go wrong.
//
// Nothing happens by itself, unless [Nodes.ElectAfter] was called: a log whose
// leader was killed or cut off has none until somebody is elected.
type Nodes struct {
	mu      sync.Mutex
	members []int32 // in order; those that were not removed
	stores  map[int32]*NodeStore
	logs    map[string]*nodesLog
	// items and changes are the metadata: what it is, and how it became so.
	items    map[string]topic.Item
	changes  []metaChange
	revision uint64

	unanswered time.Duration
	electAfter time.Duration
	leadsNew   int32
}

// unansweredAfter is how long a call that nobody answers takes.
const unansweredAfter = 100 * time.Millisecond

// NewCluster returns a cluster of the nodes 1 to n, all of them alive, without
// logs.
func NewCluster(n int) *Nodes {
	all := &Nodes{
		stores: map[int32]*NodeStore{}, logs: map[string]*nodesLog{}, items: map[string]topic.Item{}, unanswered: unansweredAfter,
	}
	for id := range int32(n) {
		all.Add(id + 1)
	}
	return all
}

// Add lets a new node join, and returns its store.
func (n *Nodes) Add(id int32) *NodeStore {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = append(n.members, id)
	slices.Sort(n.members)
	return n.join(id)
}

// join makes the store of a node that comes up.
func (n *Nodes) join(id int32) *NodeStore {
	s := &NodeStore{nodes: n, id: id, gone: make(chan struct{}), items: map[string]topic.Item{}}
	n.stores[id] = s
	s.catchUp()
	n.changed()
	return s
}

// Store returns the store of a node: after [Nodes.Restart] another one.
func (n *Nodes) Store(id int32) *NodeStore {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stores[id]
}

// AnswerWithin sets how long a call that nobody answers takes; 100 ms at first.
func (n *Nodes) AnswerWithin(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unanswered = d
}

// ElectAfter makes elections happen by themselves, that long after a node was
// killed, cut off, healed or restarted. 0: not.
func (n *Nodes) ElectAfter(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.electAfter = d
}

// LeadNew has a node elected as the leader of each new log that it keeps. 0, as at
// first: the first of those that keep it.
func (n *Nodes) LeadNew(node int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leadsNew = node
}

// Kill ends a node, as a SIGKILL does: its store fails with topic.ErrClosed from
// now on, others see that it is dead, and its logs have no leader.
func (n *Nodes) Kill(id int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stores[id]
	if s.dead {
		return
	}
	s.dead = true
	close(s.gone)
	n.lose(id)
}

// Restart begins a killed node anew and returns its store, which knows what all
// others know.
func (n *Nodes) Restart(id int32) *NodeStore {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.electLater()
	return n.join(id)
}

// Cut takes a node off the network. It sees what it saw last: the metadata, the
// logs, and that it leads some, but no other node. What it writes is not
// answered, and never written.
func (n *Nodes) Cut(id int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stores[id]
	if s.cut {
		return
	}
	s.cut = true
	s.seen = map[string]seenLog{}
	for name, log := range n.logs {
		s.seen[name] = seenLog{log: log, last: log.last(), leads: log.leader == id}
	}
	n.lose(id)
}

// Heal undoes Cut.
func (n *Nodes) Heal(id int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stores[id]
	if !s.cut {
		return
	}
	s.cut, s.seen = false, nil
	if !s.lagging {
		s.catchUp()
	}
	n.changed()
	n.electLater()
}

// lose takes the lead of all its logs from a node.
func (n *Nodes) lose(id int32) {
	for _, log := range n.logs {
		if log.leader == id {
			log.leader = 0
		}
	}
	n.changed()
	n.electLater()
}

// Elect lets a node lead a log, and tells whether it can: it keeps the log, and a
// majority of those that do is there. Node 0 is none.
func (n *Nodes) Elect(log string, node int32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.logs[log]
	if l == nil || node != 0 && !n.electable(l, node) {
		return false
	}
	l.leader = node
	n.changed()
	return true
}

// ElectAll elects, for each log that has no leader, the first of its nodes that
// can be.
func (n *Nodes) ElectAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, log := range n.logs {
		if log.leader == 0 {
			log.leader = n.next(log)
		}
	}
	n.changed()
}

// Leader returns who leads a log: 0 if nobody does.
func (n *Nodes) Leader(log string) int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.logs[log]; l != nil {
		return l.leader
	}
	return 0
}

// Logs returns the names of all logs, in order.
func (n *Nodes) Logs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var names []string
	for name := range n.logs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Entries returns what a log holds.
func (n *Nodes) Entries(log string) []topic.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.logs[log]; l != nil {
		return slices.Clone(l.entries)
	}
	return nil
}

// electLater has an election held when it is time.
func (n *Nodes) electLater() {
	if n.electAfter > 0 {
		time.AfterFunc(n.electAfter, n.ElectAll)
	}
}

func (n *Nodes) electable(log *nodesLog, node int32) bool {
	return slices.Contains(log.nodes, node) && n.up(node) && !n.stores[node].left && !n.stores[node].behind && n.majority(log.nodes)
}

// next returns who can lead a log, 0 for nobody.
func (n *Nodes) next(log *nodesLog) int32 {
	for _, node := range log.nodes {
		if n.electable(log, node) {
			return node
		}
	}
	return 0
}

// up tells whether a node can be reached by others.
func (n *Nodes) up(node int32) bool {
	s := n.stores[node]
	return s != nil && !s.dead && !s.cut
}

// majority tells whether more than half of some nodes are up.
func (n *Nodes) majority(nodes []int32) bool { return 2*len(n.those(nodes)) > len(nodes) }

// those returns the nodes that are up, of some.
func (n *Nodes) those(nodes []int32) (up []int32) {
	for _, node := range nodes {
		if n.up(node) {
			up = append(up, node)
		}
	}
	return up
}

// changed tells all who watch the cluster.
func (n *Nodes) changed() {
	for _, s := range n.stores {
		for _, signal := range s.clusterWatches {
			(*signal)()
		}
	}
}
