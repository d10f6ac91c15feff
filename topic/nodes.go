package topic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// What the metadata has of nodes: one key for each, which it writes when it
// starts. Whether a node is alive is not in it: the store knows that.

const nodesPrefix = "nodes/"

// Advertised is what the other nodes, and clients, are told of a node.
type Advertised struct {
	// Host and Port are where Kafka clients reach it.
	Host string
	Port int32
	// HTTP is the base URL of its HTTP interface; empty if it has none.
	HTTP string
	// Rack is where it stands: replicas are spread over racks. A node without one
	// is a rack of its own.
	Rack string
}

// Node is one of the cluster's.
type Node struct {
	// ID is its number, from 1; that of a broker without a cluster is 0.
	ID int32
	Advertised
	// Alive says that it was heard of lately.
	Alive bool
	// Draining says that it is to keep no replicas: it gets no new ones, and those
	// that it has go to others.
	Draining bool
}

// nodeRecord is what is stored of a node.
type nodeRecord struct {
	ID       int32  `json:"id"`
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	HTTP     string `json:"http,omitempty"`
	Rack     string `json:"rack,omitempty"`
	Draining bool   `json:"draining,omitempty"`
}

// registry is the nodes that are registered, as the metadata had them last.
type registry struct {
	nodes atomic.Pointer[[]nodeRecord] // by id
}

func (r *registry) all() []nodeRecord {
	if nodes := r.nodes.Load(); nodes != nil {
		return *nodes
	}
	return nil
}

// Nodes returns the nodes of the cluster, by number: this one alone if there is
// none.
func (b *Broker) Nodes() []Node {
	cluster := b.cluster
	if cluster == nil {
		return []Node{{ID: b.Node(), Advertised: b.config.Advertise, Alive: true}}
	}
	alive := cluster.Alive()
	records := b.registry.all()
	nodes := make([]Node, len(records))
	for i, n := range records {
		nodes[i] = Node{
			ID: n.ID, Advertised: Advertised{Host: n.Host, Port: n.Port, HTTP: n.HTTP, Rack: n.Rack},
			Alive: slices.Contains(alive, n.ID), Draining: n.Draining,
		}
	}
	return nodes
}

// Registered returns how many nodes belong to the cluster, dead or alive: a node
// that sees half of them or fewer decides nothing.
func (b *Broker) Registered() int {
	if b.cluster == nil {
		return 1
	}
	return len(b.registry.all())
}

// register writes this node into the metadata, and follows what is there.
func (b *Broker) register(ctx context.Context) error {
	cluster := b.cluster
	if cluster == nil {
		return nil
	}
	at := b.config.Advertise
	err := b.changeNode(ctx, cluster.Node(), true, func(n *nodeRecord) {
		*n = nodeRecord{ID: cluster.Node(), Host: at.Host, Port: at.Port, HTTP: at.HTTP, Rack: at.Rack, Draining: n.Draining}
	})
	if err != nil {
		return fmt.Errorf("register node %d: %w", cluster.Node(), err)
	}
	changed := make(chan struct{}, 1)
	cancel := b.store.Meta().Watch(nodesPrefix, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err := b.listNodes(ctx); err != nil {
		cancel()
		return err
	}
	b.group.Go("follow nodes", func(ctx context.Context) error {
		defer cancel()
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
			for b.listNodes(ctx) != nil && lifecycle.Sleep(ctx, nil, nodesRetry) {
				continue // a list of what is in memory fails only when the store closes
			}
		}
	})
	return nil
}

// nodesRetry is how long the registry waits when the metadata cannot be read.
const nodesRetry = time.Second

// listNodes reads the nodes that are registered.
func (b *Broker) listNodes(ctx context.Context) error {
	items, err := b.store.Meta().List(ctx, nodesPrefix)
	if err != nil {
		return err
	}
	nodes := make([]nodeRecord, 0, len(items))
	for _, item := range items {
		n, err := readNodeRecord(item)
		if err != nil {
			b.log.Error("node cannot be read", "error", err)
			continue
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(x, y nodeRecord) int { return cmp.Compare(x.ID, y.ID) })
	b.registry.nodes.Store(&nodes)
	return nil
}

// changeNode changes what is stored of a node, as often as others change it
// meanwhile. One that is not there is made if it may be, or is ErrNoNode.
func (b *Broker) changeNode(ctx context.Context, id int32, create bool, change func(*nodeRecord)) error {
	meta, key := b.store.Meta(), nodeKey(id)
	for {
		item, err := meta.Get(ctx, key)
		n := nodeRecord{}
		switch {
		case errors.Is(err, ErrNotFound) && create:
			item.Revision = 0
		case errors.Is(err, ErrNotFound):
			return fmt.Errorf("%w: %d", ErrNoNode, id)
		case err != nil:
			return err
		default:
			if n, err = readNodeRecord(item); err != nil {
				return err
			}
		}
		before := n
		if change(&n); n == before && item.Revision > 0 {
			return nil
		}
		value, err := json.Marshal(n)
		if err != nil {
			return err
		}
		_, err = meta.Put(ctx, key, value, item.Revision)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return b.listNodes(ctx)
	}
}

func nodeKey(id int32) string { return nodesPrefix + strconv.Itoa(int(id)) }

func readNodeRecord(item Item) (nodeRecord, error) {
	var n nodeRecord
	if err := json.Unmarshal(item.Value, &n); err != nil {
		return n, fmt.Errorf("metadata of %s: %w", item.Key, err)
	}
	if want := strings.TrimPrefix(item.Key, nodesPrefix); strconv.Itoa(int(n.ID)) != want {
		return n, fmt.Errorf("metadata of %s: it is of node %d", item.Key, n.ID)
	}
	return n, nil
}
