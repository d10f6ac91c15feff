package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Nodes is a cluster in memory: one [NodeStore] for each node, with shared logs and metadata,
// the state that a majority has. A node can be made to see an older state, and its writes to
// fail.
//
// Unless [Nodes.ElectAfter] was called, elections happen on request only: a log whose leader
// was killed or cut off has none until then.
type Nodes struct {
	mu      sync.Mutex
	members []int32 // in order, without removed ones
	stores  map[int32]*NodeStore
	logs    map[string]*nodesLog
	// items and changes are the metadata and its history.
	items    map[string]topic.Item
	changes  []metaChange
	revision uint64

	unanswered time.Duration
	electAfter time.Duration
	leadsNew   int32
}

// unansweredAfter is how long a call without an answer takes.
const unansweredAfter = 100 * time.Millisecond

// NewCluster returns a cluster of the nodes 1 to n, all alive, without logs.
func NewCluster(n int) *Nodes {
	all := &Nodes{
		stores: map[int32]*NodeStore{}, logs: map[string]*nodesLog{}, items: map[string]topic.Item{}, unanswered: unansweredAfter,
	}
	for id := range int32(n) {
		all.Add(id + 1)
	}
	return all
}

// Add adds a node and returns its store.
func (n *Nodes) Add(id int32) *NodeStore {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = append(n.members, id)
	slices.Sort(n.members)
	return n.join(id)
}

// join makes the store of a node that starts.
func (n *Nodes) join(id int32) *NodeStore {
	s := &NodeStore{nodes: n, id: id, gone: make(chan struct{}), items: map[string]topic.Item{}}
	n.stores[id] = s
	s.catchUp()
	n.changed()
	return s
}

// Store returns the current store of a node. [Nodes.Restart] replaces it.
func (n *Nodes) Store(id int32) *NodeStore {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stores[id]
}

// AnswerWithin sets how long a call without an answer takes; default 100 ms.
func (n *Nodes) AnswerWithin(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unanswered = d
}

// ElectAfter makes elections happen d after a node was killed, cut off, healed or restarted;
// 0 for elections on request only.
func (n *Nodes) ElectAfter(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.electAfter = d
}

// LeadNew makes a node the leader of each new log that it keeps; 0, the default, for the
// first of the nodes that keep it.
func (n *Nodes) LeadNew(node int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leadsNew = node
}

// Kill ends a node, as SIGKILL does: its store fails with topic.ErrClosed, others see that it
// is dead, and the logs that it led have no leader.
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

// Restart starts a killed node and returns its store, which is up to date.
func (n *Nodes) Restart(id int32) *NodeStore {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.electLater()
	return n.join(id)
}

// Cut takes a node off the network. It keeps seeing its last state: the metadata, the logs,
// and the ones that it led, but no other node. Its writes have no answer and no effect.
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

// lose ends the leadership of a node in all its logs.
func (n *Nodes) lose(id int32) {
	for _, log := range n.logs {
		if log.leader == id {
			log.leader = 0
		}
	}
	n.changed()
	n.electLater()
}

// Elect makes a node the leader of a log, and reports whether it can be: it keeps the log,
// and a majority of the replicas is up. Node 0 leaves the log without a leader.
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

// ElectAll elects a leader for each log without one: the first node that can lead it.
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

// Leader returns the leader of a log, 0 if it has none.
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

// Entries returns the entries of a log.
func (n *Nodes) Entries(log string) []topic.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.logs[log]; l != nil {
		return slices.Clone(l.entries)
	}
	return nil
}

// electLater schedules an election, if ElectAfter was called.
func (n *Nodes) electLater() {
	if n.electAfter > 0 {
		time.AfterFunc(n.electAfter, n.ElectAll)
	}
}

func (n *Nodes) electable(log *nodesLog, node int32) bool {
	return slices.Contains(log.nodes, node) && n.up(node) && !n.stores[node].left && !n.stores[node].behind && n.majority(log.nodes)
}

// next returns the first node that can lead a log, 0 if none can.
func (n *Nodes) next(log *nodesLog) int32 {
	for _, node := range log.nodes {
		if n.electable(log, node) {
			return node
		}
	}
	return 0
}

// up reports whether other nodes can reach a node.
func (n *Nodes) up(node int32) bool {
	s := n.stores[node]
	return s != nil && !s.dead && !s.cut
}

// majority reports whether more than half of some nodes are up.
func (n *Nodes) majority(nodes []int32) bool { return 2*len(n.those(nodes)) > len(nodes) }

// those returns the nodes, of some, that are up.
func (n *Nodes) those(nodes []int32) (up []int32) {
	for _, node := range nodes {
		if n.up(node) {
			up = append(up, node)
		}
	}
	return up
}

// changed signals all watches of the cluster.
func (n *Nodes) changed() {
	for _, s := range n.stores {
		for _, signal := range s.clusterWatches {
			(*signal)()
		}
	}
}
