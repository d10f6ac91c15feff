package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Drain moves all replicas of a node to others, and keeps new ones from it, until
// it is called with false; then it may get some again, see Balance. It returns when
// that is stored, and how many partitions are to be moved: Reassignments tells
// which still are. A node that is dead may be drained. Errors: ErrNoNode,
// ErrNoCluster, and ErrInvalidReplicas, before anything is changed, where a
// partition has more replicas than there are other nodes.
func (b *Broker) Drain(ctx context.Context, node int32, drain bool) (moves int, err error) {
	if b.cluster == nil {
		return 0, ErrNoCluster
	}
	if drain {
		records, err := b.records(ctx)
		if err != nil {
			return 0, err
		}
		nodes := b.Nodes()
		for i := range nodes {
			nodes[i].Draining = nodes[i].Draining || nodes[i].ID == node
		}
		for _, record := range records {
			if err := drained(newPlaces(nodes, nil), &record.topicRecord, node); err != nil {
				return 0, fmt.Errorf("drain node %d: topic %s: %w; add a node, or lower the replicas of the topic", node, record.name, err)
			}
		}
	}
	if err := b.changeNode(ctx, node, false, func(n *nodeRecord) { n.Draining = drain }); err != nil || !drain {
		return 0, err
	}
	// What was just being made may have this node still: see drainRest.
	if err := b.store.Meta().Sync(ctx); err != nil {
		return 0, err
	}
	records, err := b.records(ctx)
	if err != nil {
		return 0, err
	}
	return b.drainTopics(ctx, records, node)
}

// drainTopics changes the targets of all partitions that a node is to keep, and
// returns how many those are.
func (b *Broker) drainTopics(ctx context.Context, records []namedRecord, node int32) (moves int, err error) {
	for _, record := range records {
		if !record.targets(node) {
			continue
		}
		changed, err := b.retarget(ctx, record.name, func(ps places, now *topicRecord) error {
			return drained(ps, now, node)
		})
		moves += changed
		if err != nil && !errors.Is(err, ErrNoTopic) {
			return moves, fmt.Errorf("topic %s: %w", record.name, err)
		}
	}
	return moves, nil
}

// targets tells whether a node is to keep some partition of the record.
func (r *topicRecord) targets(node int32) bool {
	return slices.ContainsFunc(r.Partitions, func(p partitionRecord) bool { return slices.Contains(p.Replicas, node) })
}

// drained puts other nodes in the place of one, in the targets of a record, which
// it changes.
func drained(ps places, record *topicRecord, node int32) error {
	for i := range record.Partitions {
		p := &record.Partitions[i]
		if !slices.Contains(p.Replicas, node) {
			continue
		}
		replicas, err := ps.without(p.Replicas, node)
		if err != nil {
			return err
		}
		ps.load(p.Replicas, -1)
		ps.load(replicas, 1)
		p.Replicas = replicas
	}
	return nil
}

// drainRest moves what was put on a node while it began to be drained. The alive
// node with the lowest number does it.
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

// first tells whether this node is the first of those that are alive, and they are
// more than half of all: it does what one has to do for all. Two may believe that,
// for a while.
func (b *Broker) first() bool {
	alive := b.cluster.Alive()
	return len(alive) > 0 && alive[0] == b.cluster.Node() && !b.Isolated()
}

// RemoveNode takes a node out of the cluster for good. It must have been drained,
// and then stopped. Errors: ErrNoNode, ErrNoCluster, and ErrNodeInUse, which says
// what is to be done first.
func (b *Broker) RemoveNode(ctx context.Context, node int32) error {
	cluster := b.cluster
	if cluster == nil {
		return ErrNoCluster
	}
	if err := b.store.Meta().Sync(ctx); err != nil {
		return err
	}
	key := nodeKey(node)
	item, err := b.store.Meta().Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %d", ErrNoNode, node)
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
		return fmt.Errorf("%w: node %d is to keep replicas of %d partitions; drain it first", ErrNodeInUse, node, kept)
	}
	if err := b.checkGone(ctx, records, node); err != nil {
		return err
	}
	if slices.Contains(cluster.Alive(), node) {
		return fmt.Errorf("%w: node %d is alive; it is drained, so stop it, and remove it then", ErrNodeInUse, node)
	}
	if err := cluster.Remove(ctx, node); err != nil {
		return err
	}
	if err := b.store.Meta().Delete(ctx, key, item.Revision); err != nil && !errors.Is(err, ErrNotFound) {
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
			names := record.names(number)
			logs := []string{names.records}
			if record.Delays {
				logs = append(logs, names.delays)
			}
			for _, log := range logs {
				asking.Go(func() error {
					known, err := b.cluster.Replicas(ctx, log)
					if errors.Is(err, ErrNoLog) {
						return nil
					}
					if err == nil && slices.Contains(known.Nodes, node) {
						err = fmt.Errorf("%w: %s/%d is still being moved away from node %d; wait until that is done", ErrNodeInUse, record.name, number, node)
					}
					return err
				})
			}
		}
	}
	return asking.Wait()
}
