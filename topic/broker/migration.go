package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
)

// A store of one node can be migrated into a cluster: see package migrate. While its
// last records are copied, the store is fenced; afterwards it is marked as moved. Both
// states are in its metadata, so that they survive restarts.

// moving is the state of a broker's migration.
type moving struct {
	change   sync.Mutex // held while the state changes
	mu       sync.RWMutex
	move     catalog.Migration
	revision uint64
}

func (m *moving) set(move catalog.Migration, revision uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.move, m.revision = move, revision
}

// serves returns an ErrNotLeader unless the broker may change its topics.
func (m *moving) serves() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.move.State == catalog.Serving || m.move.State == "" {
		return nil
	}
	return fmt.Errorf("%w: %w", topic.ErrNotLeader, &catalog.MigratedError{Migration: m.move})
}

// reads returns an ErrNotLeader once the topics have been migrated.
func (m *moving) reads() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.move.State != catalog.Migrated {
		return nil
	}
	return fmt.Errorf("%w: %w", topic.ErrNotLeader, &catalog.MigratedError{Migration: m.move})
}

// unmoved returns the guard for changes of the catalog: the store has not been fenced
// since.
func (b *Broker) unmoved() []topic.Guard {
	b.moving.mu.RLock()
	defer b.moving.mu.RUnlock()
	return []topic.Guard{{Key: catalog.MovedKey, Revision: b.moving.revision}}
}

// MovedTo returns the addresses to which the broker's topics were migrated; nil if
// they were not.
func (b *Broker) MovedTo() []catalog.Address {
	b.moving.mu.RLock()
	defer b.moving.mu.RUnlock()
	if b.moving.move.State != catalog.Migrated {
		return nil
	}
	return b.moving.move.Nodes
}

// MovedCoordinator returns the node that should coordinate a group in the cluster to
// which the topics were migrated; ok is false if they were not.
func (b *Broker) MovedCoordinator(groupName string) (at catalog.Address, ok bool) {
	nodes := b.MovedTo()
	if len(nodes) == 0 {
		return catalog.Address{}, false
	}
	var ids []int32
	for _, node := range nodes {
		ids = append(ids, node.ID)
	}
	first := group.SlotOrder(group.SlotOf(groupName), ids)[0]
	return nodes[slices.Index(ids, first)], true
}

// loadMove reads at the start whether the store may be served.
func (b *Broker) loadMove(ctx context.Context) error {
	move, revision, err := catalog.ReadMigration(ctx, b.store.Meta())
	if err != nil {
		return err
	}
	if move.State == catalog.Migrated {
		return &catalog.MigratedError{Migration: move}
	}
	b.moving.set(move, revision)
	if move.State == catalog.Fenced {
		b.log.Warn("topics are being moved to a cluster, and not served until that has ended or is taken back", "cluster", move.Cluster)
		return b.groups.Fence(ctx)
	}
	return nil
}

// Fence makes the broker's data final: when it returns, no write is in flight, and all
// appends, commits and changes of topics fail with ErrNotLeader or ErrNotCoordinator,
// also after a restart. A fence of the same attempt may be repeated. Errors:
// *catalog.MigratedError if the store is fenced for another cluster, or has moved;
// ErrConflict for an attempt before the last.
func (b *Broker) Fence(ctx context.Context, cluster string, run int64) error {
	b.moving.change.Lock()
	defer b.moving.change.Unlock()
	move := catalog.Migration{State: catalog.Fenced, Cluster: cluster, Run: run}
	revision, err := catalog.ChangeMigration(ctx, b.store.Meta(), move, func(now catalog.Migration) error { return catalog.MayFence(now, move) })
	if err != nil {
		return err
	}
	b.moving.set(move, revision)
	b.admin.Lock()   // changes of topics have ended, or are refused
	b.admin.Unlock() //nolint:staticcheck // It is waited for, nothing more.
	if err := b.groups.Fence(ctx); err != nil {
		return err
	}
	return b.settle(ctx)
}

// settle waits until all appends in flight have landed, and ends the holders of the
// delayed records.
func (b *Broker) settle(ctx context.Context) error {
	partitions := b.partitions()
	failed := make([]error, len(partitions))
	var settling sync.WaitGroup
	for i, p := range partitions {
		settling.Go(func() { failed[i] = p.settle(ctx) })
	}
	settling.Wait()
	return errors.Join(failed...)
}

// settle waits until the appends in flight have landed or failed.
func (p *Partition) settle(ctx context.Context) error {
	p.mu.Lock()
	p.flush()
	p.madeRoom()
	last := p.appends.last()
	p.mu.Unlock()
	if last != nil {
		_, _, _ = last.Wait(ctx) // its waiters get the error
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// After the appends, whose results it writes.
	p.delays.finish(ctx)
	return ctx.Err()
}

// Unfence removes a fence: the broker serves as before. It accepts the same attempts as
// Fence.
func (b *Broker) Unfence(ctx context.Context, cluster string, run int64) error {
	b.moving.change.Lock()
	defer b.moving.change.Unlock()
	move := catalog.Migration{State: catalog.Serving, Cluster: cluster, Run: run}
	revision, err := catalog.ChangeMigration(ctx, b.store.Meta(), move, func(now catalog.Migration) error { return catalog.MayUnfence(now, move) })
	if err != nil {
		return err
	}
	if b.moving.serves() == nil {
		b.moving.set(move, revision)
		return nil
	}
	if err := b.groups.Unfence(ctx); err != nil {
		return err
	}
	b.moving.set(move, revision)
	for _, p := range b.partitions() {
		p.delays.resume(p)
	}
	return nil
}

// Moved records that the cluster serves the topics from now on, at these addresses, to
// which clients are redirected. It cannot be undone.
func (b *Broker) Moved(ctx context.Context, cluster string, run int64, nodes []catalog.Address) error {
	b.moving.change.Lock()
	defer b.moving.change.Unlock()
	move := catalog.Migration{State: catalog.Migrated, Cluster: cluster, Run: run, Nodes: nodes}
	revision, err := catalog.ChangeMigration(ctx, b.store.Meta(), move, catalog.MayBeDone(cluster))
	if err != nil {
		return err
	}
	b.moving.set(move, revision)
	for _, p := range b.partitions() {
		p.watchers.signal()
	}
	return nil
}
