package topic

import "slices"

// Advertised is what a node tells the other nodes and clients about itself.
type Advertised struct {
	// Host and Port are the address for Kafka clients; no host: the one that a client has connected to.
	Host string
	Port int32
	// Listeners are the addresses for the clients of each listener that has a name, host:port, with the
	// address above among them; an empty one is the one that a client has connected to.
	Listeners map[string]string
	// HTTP is the base URL of the node's HTTP interface; empty if it has none.
	HTTP string
	// Rack is the node's rack: replicas are spread over racks. A node without one
	// counts as a rack of its own.
	Rack string
}

// Node is a node of the cluster.
type Node struct {
	// ID is the node's number, from 1.
	ID int32
	Advertised
	// Alive reports whether the node was heard of recently.
	Alive bool
	// Draining reports whether the node is to keep no replicas: it gets no new ones,
	// and the present ones go to other nodes.
	Draining bool
}

// WithAlive returns the registered nodes with those that are alive and have not registered
// yet: otherwise a topic that is created while a cluster starts would have too few replicas.
func WithAlive(registered []Node, alive []int32) []Node {
	for _, id := range alive {
		if !slices.ContainsFunc(registered, func(n Node) bool { return n.ID == id }) {
			registered = append(registered, Node{ID: id, Alive: true})
		}
	}
	return registered
}
