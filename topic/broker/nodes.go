package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/txn"
)

// Nodes in the metadata: one key for each, which the node writes when it starts. The
// store, not the metadata, knows which nodes are alive.

// registry holds the registered nodes, as last read from the metadata.
type registry struct {
	nodes atomic.Pointer[[]catalog.Node] // by id
}

func (r *registry) all() []catalog.Node {
	if nodes := r.nodes.Load(); nodes != nil {
		return *nodes
	}
	return nil
}

// Nodes returns the nodes of the cluster, by number.
func (b *Broker) Nodes() []topic.Node {
	alive := b.Alive()
	records := b.registry.all()
	nodes := make([]topic.Node, len(records))
	for i, n := range records {
		nodes[i] = topic.Node{
			ID: n.ID, Advertised: topic.Advertised{Host: n.Host, Port: n.Port, Listeners: n.Listeners, HTTP: n.HTTP, Rack: n.Rack},
			Alive: slices.Contains(alive, n.ID), Draining: n.Draining,
		}
	}
	return nodes
}

// Registered returns how many nodes belong to the cluster, dead or alive: a node that
// sees half of them or fewer makes no decisions.
func (b *Broker) Registered() int { return len(b.registry.all()) }

// TransactionsVersion returns the latest version of transactions that all nodes of the cluster
// know, dead or alive. Only that one may be used: a node of an earlier version would neither
// add partitions to a transaction by itself, nor read its record.
func (b *Broker) TransactionsVersion() int16 {
	nodes := b.registry.all()
	if len(nodes) == 0 { // this node has not registered yet
		return 1
	}
	version := int16(txn.Version)
	for _, n := range nodes {
		version = min(version, max(n.Transactions, 1))
	}
	return version
}

// register writes this node into the metadata, and follows the registered nodes.
func (b *Broker) register(ctx context.Context) error {
	at := b.config.Advertise
	err := b.changeNode(ctx, b.Node(), true, func(n *catalog.Node) {
		n.ID, n.Host, n.Port, n.Listeners, n.HTTP, n.Rack = b.Node(), at.Host, at.Port, at.Listeners, at.HTTP, at.Rack
		n.Transactions, n.Compacts = txn.Version, true
	})
	if err != nil {
		return fmt.Errorf("register node %d: %w", b.Node(), err)
	}
	changed := lifecycle.NewSignal()
	cancel := b.store.Meta().Watch(catalog.NodesPrefix, changed.Wake)
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
				continue // listing from memory fails only when the store closes
			}
		}
	})
	return nil
}

// nodesRetry is how long the registry waits after the metadata could not be read.
const nodesRetry = time.Second

// listNodes reads the registered nodes.
func (b *Broker) listNodes(ctx context.Context) error {
	items, err := b.store.Meta().List(ctx, catalog.NodesPrefix)
	if err != nil {
		return err
	}
	nodes := make([]catalog.Node, 0, len(items))
	for _, item := range items {
		n, err := catalog.ReadNode(item)
		if err != nil {
			b.log.Error("node cannot be read", "error", err)
			continue
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(x, y catalog.Node) int { return cmp.Compare(x.ID, y.ID) })
	b.registry.nodes.Store(&nodes)
	return nil
}

// changeNode changes a node's stored record, and repeats this on conflicts. A missing
// record is created if create is set; otherwise the error is ErrNoNode.
func (b *Broker) changeNode(ctx context.Context, id int32, create bool, change func(*catalog.Node)) error {
	meta, key := b.store.Meta(), catalog.NodeKey(id)
	for {
		item, err := meta.Get(ctx, key)
		n := catalog.Node{}
		switch {
		case errors.Is(err, topic.ErrNotFound) && create:
			item.Revision = 0
		case errors.Is(err, topic.ErrNotFound):
			return fmt.Errorf("%w: %d", topic.ErrNoNode, id)
		case err != nil:
			return err
		default:
			if n, err = catalog.ReadNode(item); err != nil {
				return err
			}
		}
		before := n
		if change(&n); reflect.DeepEqual(n, before) && item.Revision > 0 {
			return nil
		}
		value, err := n.Encode()
		if err != nil {
			return err
		}
		_, err = meta.Put(ctx, key, value, item.Revision)
		if errors.Is(err, topic.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return b.listNodes(ctx)
	}
}
