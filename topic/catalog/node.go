package catalog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/topic"
)

// NodesPrefix begins the keys of nodes.
const NodesPrefix = "nodes/"

// Node is the record of a node.
type Node struct {
	Header
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
	// Listeners are as in topic.Advertised.
	Listeners map[string]string `json:"listeners,omitempty"`
	HTTP      string            `json:"http,omitempty"`
	Rack      string            `json:"rack,omitempty"`
	Draining  bool              `json:"draining,omitempty"`
	// Transactions is the latest version of transactions that the node knows; 0 is version 1.
	Transactions int16 `json:"transactions,omitempty"`
	// Compacts reports whether the node knows that partitions of a cluster have clean generations.
	Compacts bool `json:"compacts,omitempty"`
}

// NodeKey returns the key of a node.
func NodeKey(id int32) string { return NodesPrefix + strconv.Itoa(int(id)) }

// ReadNode decodes what is stored of a node.
func ReadNode(item topic.Item) (Node, error) {
	n, err := decode(item, func(n *Node) *Header { return &n.Header })
	if err != nil {
		return n, err
	}
	if want := strings.TrimPrefix(item.Key, NodesPrefix); strconv.Itoa(int(n.ID)) != want {
		return n, fmt.Errorf("metadata of %s: it is of node %d", item.Key, n.ID)
	}
	return n, nil
}

// Encode returns what is to be stored of the node.
func (n Node) Encode() ([]byte, error) {
	n.Format = recordFormat
	return encode(n, n.Header)
}
