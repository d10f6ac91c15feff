package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Drain moves all replicas of a node to other nodes, and places no new ones on it,
// until it is called with drain false; then the node may get replicas again, see
// Balance. Drain returns when that is stored, with the number of partitions to be
// moved; Reassignments returns those that still are. A dead node may be drained.
// Errors: ErrNoNode; before anything is changed, ErrNodeInUse for the last node that may
// keep replicas, and ErrInvalidReplicas if a partition has more replicas than there are
// other nodes.
func (b *Broker) Drain(ctx context.Context, node int32, drain bool) (moves int, err error) {
	if drain {
		records, err := b.records(ctx)
		if err != nil {
			return 0, err
		}
		nodes := b.Nodes()
		for i := range nodes {
			nodes[i].Draining = nodes[i].Draining || nodes[i].ID == node
		}
		if !slices.ContainsFunc(nodes, func(n topic.Node) bool { return !n.Draining }) {
			return 0, fmt.Errorf("%w: no other node could keep its replicas; add a node before node %d is drained", topic.ErrNodeInUse, node)
		}
		for _, record := range records {
			if err := drained(topic.NewPlaces(nodes, nil), &record.Topic, node); err != nil {
				return 0, fmt.Errorf("drain node %d: topic %s: %w; add a node, or lower the replicas of the topic", node, record.name, err)
			}
		}
	}
	if err := b.changeNode(ctx, node, false, func(n *catalog.Node) { n.Draining = drain }); err != nil || !drain {
		return 0, err
	}
	// A partition that was just being created may be on this node: see drainRest.
	if err := b.store.Meta().Sync(ctx); err != nil {
		return 0, err
	}
	records, err := b.records(ctx)
	if err != nil {
		return 0, err
	}
	return b.drainTopics(ctx, records, node)
}

// drainTopics removes a node from the targets of all partitions, and returns how many
// it has changed.
func (b *Broker) drainTopics(ctx context.Context, records []namedRecord, node int32) (moves int, err error) {
	for _, record := range records {
		if !record.Targets(node) {
			continue
		}
		changed, err := b.retarget(ctx, record.name, func(ps topic.Places, now *catalog.Topic) error {
			return drained(ps, now, node)
		})
		moves += changed
		if err != nil && !errors.Is(err, topic.ErrNoTopic) {
			return moves, fmt.Errorf("topic %s: %w", record.name, err)
		}
	}
	return moves, nil
}

// drained replaces a node by others in the targets of a record, which it changes.
func drained(ps topic.Places, record *catalog.Topic, node int32) error {
	for i := range record.Partitions {
		p := &record.Partitions[i]
		if !slices.Contains(p.Replicas, node) {
			continue
		}
		replicas, err := ps.Without(p.Replicas, node)
		if err != nil {
			return err
		}
		ps.Load(p.Replicas, -1)
		ps.Load(replicas, 1)
		p.Replicas = replicas
	}
	return nil
}

// drainRest moves partitions that were placed on a node while its draining began. The
// alive node with the lowest number does it.
func (b *Broker) drainRest(ctx context.Context, records []namedRecord) {
	if !b.first() {
		return
	}
	for _, n := range b.registry.all() {
		if !n.Draining {
			continue
		}
		if moves, err := b.drainTopics(ctx, records, n.ID); err != nil && ctx.Err() == nil {
			b.log.Warn("node cannot be drained", "node", n.ID, "error", err)
		} else if moves > 0 {
			b.log.Info("node is drained", "node", n.ID, "partitions", moves)
		}
	}
}

// first reports whether this node is the first of the alive nodes, which are more than
// half of all: it does the work that one node has to do for all. For a while, two nodes
// may believe this of themselves.
func (b *Broker) first() bool {
	alive := b.cluster.Alive()
	return len(alive) > 0 && alive[0] == b.cluster.Node() && !b.Isolated()
}

// RemoveNode removes a node from the cluster permanently. The node must have been
// drained and then stopped. Errors: ErrNoNode; ErrNodeInUse, which says
// what to do first.
func (b *Broker) RemoveNode(ctx context.Context, node int32) error {
	if err := b.store.Meta().Sync(ctx); err != nil {
		return err
	}
	key := catalog.NodeKey(node)
	item, err := b.store.Meta().Get(ctx, key)
	if errors.Is(err, topic.ErrNotFound) {
		return fmt.Errorf("%w: %d", topic.ErrNoNode, node)
	}
	if err != nil {
		return err
	}
	records, err := b.records(ctx)
	if err != nil {
		return err
	}
	kept := 0
	for _, record := range records {
		for _, p := range record.Partitions {
			if slices.Contains(p.Replicas, node) {
				kept++
			}
		}
	}
	if kept > 0 {
		return fmt.Errorf("%w: node %d is to keep replicas of %d partitions; drain it first", topic.ErrNodeInUse, node, kept)
	}
	if err := b.checkGone(ctx, records, node); err != nil {
		return err
	}
	if slices.Contains(b.Alive(), node) {
		return fmt.Errorf("%w: node %d is alive; it is drained, so stop it, and remove it then", topic.ErrNodeInUse, node)
	}
	if err := b.cluster.Remove(ctx, node); err != nil {
		return err
	}
	if err := b.store.Meta().Delete(ctx, key, item.Revision); err != nil && !errors.Is(err, topic.ErrNotFound) {
		return err
	}
	return b.listNodes(ctx)
}

// checkGone returns an ErrNodeInUse while a node still keeps some log.
func (b *Broker) checkGone(ctx context.Context, records []namedRecord, node int32) error {
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(replicasAsked)
	for _, record := range records {
		for number := range record.Partitions {
			logs, err := b.logsOf(ctx, record.Topic, number)
			if err != nil {
				return err
			}
			for _, log := range logs {
				asking.Go(func() error {
					known, err := b.cluster.Replicas(ctx, log)
					if errors.Is(err, topic.ErrNoLog) {
						return nil
					}
					if err == nil && slices.Contains(known.Nodes, node) {
						err = fmt.Errorf("%w: %s/%d is still being moved away from node %d; wait until that is done", topic.ErrNodeInUse, record.name, number, node)
					}
					return err
				})
			}
		}
	}
	return asking.Wait()
}
