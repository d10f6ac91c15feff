package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/catalog"
)

// nodes returns the live nodes with their addresses for a client. An isolated node
// does not know which nodes are alive and returns all: a client that knows only this node would
// never ask another.
func (s *Server) nodes(c *call) []topic.Node {
	if moved := s.broker.MovedTo(); moved != nil {
		return movedNodes(c, moved)
	}
	var alive []topic.Node
	isolated := s.broker.Isolated()
	for _, n := range s.broker.Nodes() {
		if !n.Alive && !isolated {
			continue
		}
		alive = append(alive, s.reached(c, n))
	}
	return alive
}

// reached returns a node with its address for a client: that of the listener through which the client
// came. This node, without an advertised address, is at the address that the client connected to.
func (s *Server) reached(c *call, n topic.Node) topic.Node {
	listener := c.session.listener
	directed(&n, listener)
	if n.ID == s.broker.Node() && (n.Host == "" || listener.Advertise != "") {
		n.Host, n.Port = advertised(c)
	}
	return n
}

// directed gives a node the address for clients that came through a listener. If the node has none of that name, as while
// the settings of a cluster's nodes change one after the other, it stays at the first.
func directed(n *topic.Node, listener *Listener) {
	if address, named := n.Listeners[listener.Name]; named {
		n.Host, n.Port, _ = splitAddress(address) // empty, or checked when it was set
	}
}

// movedNodes returns the nodes of the cluster that the topics were migrated to. Clients
// continue there by themselves.
func movedNodes(c *call, moved []catalog.Address) []topic.Node {
	nodes := make([]topic.Node, len(moved))
	for i, at := range moved {
		n := topic.Node{ID: at.ID, Advertised: topic.Advertised{Host: at.Host, Port: at.Port, Listeners: at.Listeners, Rack: at.Rack}, Alive: true}
		directed(&n, c.session.listener)
		nodes[i] = n
	}
	return nodes
}

// controller returns the node for administrative requests. Any node can handle them, so it is
// the first.
func controller(nodes []topic.Node) int32 {
	if len(nodes) == 0 {
		return -1
	}
	return nodes[0].ID
}

// rackOf returns a node's rack, null for none.
func rackOf(n topic.Node) *string {
	if n.Rack == "" {
		return nil
	}
	return &n.Rack
}

// offline returns the replicas that are not among the nodes.
func offline(nodes []topic.Node, replicas []int32) []int32 {
	var dead []int32
	for _, id := range replicas {
		if !among(nodes, id) {
			dead = append(dead, id)
		}
	}
	return dead
}

func among(nodes []topic.Node, id int32) bool {
	for _, n := range nodes {
		if n.ID == id {
			return true
		}
	}
	return false
}

// led returns a partition that this node leads. believed is the leader epoch that the client
// expects, -1 for none. It is checked first, so that a client with old metadata refreshes it, and
// one with newer metadata than this node's waits. Errors: ErrNoPartition, FENCED_LEADER_EPOCH,
// UNKNOWN_LEADER_EPOCH, ErrNotLeader, ErrRetry.
func led(t *broker.Topic, number, believed int32) (*broker.Partition, error) {
	p, err := t.Find(number)
	if err != nil {
		return nil, err
	}
	if err := checkEpoch(believed, p.Epoch()); err != nil {
		return nil, err
	}
	if err := p.Ready(); err != nil {
		return nil, err
	}
	return p, nil
}

// confirmTime bounds how long a request waits for the metadata where a client knows more than the leader.
const confirmTime = time.Second

// certainty is what a request has found out about the leadership of its partitions. A client that was at an offset or in an epoch which the
// leader does not know may have been told so by a later leader: then it must not take its records for lost.
type certainty struct{ unsure error }

// of returns nil if this broker leads a partition for certain. It does not ask again once the metadata has not answered.
func (c *certainty) of(ctx context.Context, p *broker.Partition) error {
	if c.unsure != nil {
		return c.unsure
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	err := p.Confirm(ctx)
	if errors.Is(err, topic.ErrRetry) {
		c.unsure = err
	}
	return err
}

// leaderOf returns the leader of a partition, for a client that has asked another node;
// nothing after other errors, or without a leader.
func leaderOf(err error, t *broker.Topic, number int32) (leader, epoch int32, known bool) {
	if t == nil {
		return -1, -1, false
	}
	switch kindOf(err) {
	case kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch:
	default:
		return -1, -1, false
	}
	p, err := t.Find(number)
	if err != nil {
		return -1, -1, false
	}
	leader, epoch = p.Leader(), p.Epoch()
	return leader, epoch, leader >= 0
}

// leaders are the nodes that an answer names as leaders.
type leaders map[int32]bool

// add adds a node, and creates the set if needed.
func (l *leaders) add(node int32) {
	if *l == nil {
		*l = leaders{}
	}
	(*l)[node] = true
}

// nodes returns the nodes that are in the set.
func (l leaders) nodes(all []topic.Node) []topic.Node {
	var told []topic.Node
	for _, n := range all {
		if l[n.ID] {
			told = append(told, n)
		}
	}
	return told
}
