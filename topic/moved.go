package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A store of one node can be moved into a cluster: see package move. While its last
// records are copied it is fenced, and afterwards it has moved. Both are in its
// metadata, so that they hold over restarts.

const (
	movedKey    = "moved"
	movedFormat = 1
)

// MoveState says whether a store of one node may serve.
type MoveState string

// The states of a store of one node.
const (
	// MoveServing: it serves; it was never fenced, or the fence was taken back.
	MoveServing MoveState = "serving"
	// MoveFenced: what it has is final for now. It takes no appends, no commits,
	// and no requests of groups.
	MoveFenced MoveState = "fenced"
	// MoveDone: its topics are served by the cluster. It only tells clients where.
	MoveDone MoveState = "moved"
)

// Move is what a store says of its move into a cluster.
type Move struct {
	Format int       `json:"format"`
	State  MoveState `json:"state"`
	// Cluster is the identity of the cluster. Run is the number of the attempt, of
	// the cluster's count: a fence of an earlier one is refused.
	Cluster string `json:"cluster,omitempty"`
	Run     int64  `json:"run,omitempty"`
	// Nodes are where clients find the topics, once they have moved.
	Nodes []Address `json:"nodes,omitempty"`
	// AtMS is when the state was written, in milliseconds since the epoch.
	AtMS int64 `json:"at_ms,omitempty"`
}

// Address is where the clients of a node connect to.
type Address struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
	Rack string `json:"rack,omitempty"`
}

// MovedError says that the topics of a store are in a cluster now, or are about to be
// in another one.
type MovedError struct{ Move Move }

func (e *MovedError) Error() string {
	if e.Move.State != MoveDone {
		return fmt.Sprintf("topics are being moved to the cluster %s: let that end, or take it back with --abort", e.Move.Cluster)
	}
	at := ""
	for _, node := range e.Move.Nodes {
		at += fmt.Sprintf(" %s:%d", node.Host, node.Port)
	}
	return fmt.Sprintf("topics have moved to the cluster %s; connect there:%s", e.Move.Cluster, at)
}

// readMove returns what a store says of its move, and the revision of that.
func readMove(ctx context.Context, meta Meta) (Move, uint64, error) {
	item, err := getItem(ctx, meta, movedKey)
	if err != nil || item.Revision == 0 {
		return Move{State: MoveServing}, 0, err
	}
	var move Move
	if err := json.Unmarshal(item.Value, &move); err != nil {
		return move, 0, fmt.Errorf("metadata of %s: %w", movedKey, err)
	}
	if move.Format != movedFormat {
		return move, 0, fmt.Errorf("metadata of %s: format %d; this version reads %d", movedKey, move.Format, movedFormat)
	}
	return move, item.Revision, nil
}

// changeMove replaces what a store says of its move, if allowed says nothing
// against it.
func changeMove(ctx context.Context, meta Meta, next Move, allowed func(Move) error) (uint64, error) {
	next.Format = movedFormat
	for range storeAttempts {
		now, revision, err := readMove(ctx, meta)
		if err != nil {
			return 0, err
		}
		if err := allowed(now); err != nil {
			return 0, err
		}
		if now.State == next.State && now.Cluster == next.Cluster && now.Run == next.Run && revision != 0 {
			return revision, nil
		}
		next.AtMS = time.Now().UnixMilli()
		value, err := json.Marshal(next)
		if err != nil {
			return 0, err
		}
		revision, err = meta.Put(ctx, movedKey, value, revision)
		if err == nil || !uncertain(err) {
			return revision, err
		}
	}
	return 0, fmt.Errorf("%q: %w, %d times", movedKey, ErrConflict, storeAttempts)
}

// mayFence refuses a fence of another cluster, or of an attempt before the last.
func mayFence(now, next Move) error {
	switch {
	case now.State == MoveDone, now.State == MoveFenced && now.Cluster != next.Cluster:
		return &MovedError{now}
	case now.Cluster == next.Cluster && now.Run > next.Run:
		return fmt.Errorf("%w: attempt %d to move to the cluster %s is over, %d goes on", ErrConflict, next.Run, next.Cluster, now.Run)
	}
	return nil
}

// mayUnfence refuses to take back a fence that is not of that attempt, or one
// before it.
func mayUnfence(now, next Move) error {
	if now.State == MoveServing {
		return nil
	}
	return mayFence(now, next)
}

// moving is what a broker knows of its move.
type moving struct {
	change   sync.Mutex // held while the state changes
	mu       sync.RWMutex
	move     Move
	revision uint64
}

func (m *moving) set(move Move, revision uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.move, m.revision = move, revision
}

// serves returns an ErrNotLeader unless the broker may change what it has.
func (m *moving) serves() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.move.State == MoveServing || m.move.State == "" {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotLeader, &MovedError{m.move})
}

// reads returns an ErrNotLeader once the topics are elsewhere.
func (m *moving) reads() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.move.State != MoveDone {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotLeader, &MovedError{m.move})
}

// unmoved returns the condition under which the catalog may be changed: nobody has
// fenced the store since. That of a cluster is never moved.
func (b *Broker) unmoved() []Guard {
	if b.cluster != nil {
		return nil
	}
	b.moving.mu.RLock()
	defer b.moving.mu.RUnlock()
	return []Guard{{Key: movedKey, Revision: b.moving.revision}}
}

// MovedTo returns where the broker's topics have moved to; nil if they have not.
func (b *Broker) MovedTo() []Address {
	b.moving.mu.RLock()
	defer b.moving.mu.RUnlock()
	if b.moving.move.State != MoveDone {
		return nil
	}
	return b.moving.move.Nodes
}

// MovedCoordinator returns the node that should coordinate a group in the cluster that
// the topics have moved to; ok is false if they have not.
func (b *Broker) MovedCoordinator(group string) (at Address, ok bool) {
	nodes := b.MovedTo()
	if len(nodes) == 0 {
		return Address{}, false
	}
	var ids []int32
	for _, node := range nodes {
		ids = append(ids, node.ID)
	}
	first := slotOrder(slotOf(group), ids)[0]
	return nodes[slices.Index(ids, first)], true
}

// loadMove reads at the start whether the store may be served.
func (b *Broker) loadMove(ctx context.Context) error {
	if b.cluster != nil {
		return nil
	}
	move, revision, err := readMove(ctx, b.store.Meta())
	if err != nil {
		return err
	}
	if move.State == MoveDone {
		return &MovedError{move}
	}
	b.moving.set(move, revision)
	if move.State == MoveFenced {
		b.log.Warn("topics are being moved to a cluster, and not served until that has ended or is taken back", "cluster", move.Cluster)
		return b.groups.fence(ctx)
	}
	return nil
}

// Fence makes what the broker has final: when it returns, nothing is under way any
// more, and all appends, commits and changes of topics fail with ErrNotLeader or
// ErrNotCoordinator, also after a restart. A fence of the same attempt may be asked
// for again. *MovedError if the store is fenced for another cluster, or has moved;
// ErrConflict for an attempt before the last.
func (b *Broker) Fence(ctx context.Context, cluster string, run int64) error {
	b.moving.change.Lock()
	defer b.moving.change.Unlock()
	move := Move{State: MoveFenced, Cluster: cluster, Run: run}
	revision, err := changeMove(ctx, b.store.Meta(), move, func(now Move) error { return mayFence(now, move) })
	if err != nil {
		return err
	}
	b.moving.set(move, revision)
	b.admin.Lock()   // what changes topics has ended, or is refused
	b.admin.Unlock() //nolint:staticcheck // It is waited for, nothing more.
	if err := b.groups.fence(ctx); err != nil {
		return err
	}
	return b.settle(ctx)
}

// settle waits until nothing of what was taken is under way, and ends what holds the
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

// settle waits until the appends under way have landed or failed.
func (p *Partition) settle(ctx context.Context) error {
	p.mu.Lock()
	p.flush()
	p.madeRoom()
	last := p.appends.last()
	p.mu.Unlock()
	if last != nil {
		_, _, _ = last.Wait(ctx) // whoever appended is told
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// After the appends, of which they write what became.
	p.delays.finish(ctx)
	return ctx.Err()
}

// Unfence takes a fence back: the broker serves as before. Of attempts it allows what
// Fence does.
func (b *Broker) Unfence(ctx context.Context, cluster string, run int64) error {
	b.moving.change.Lock()
	defer b.moving.change.Unlock()
	move := Move{State: MoveServing, Cluster: cluster, Run: run}
	revision, err := changeMove(ctx, b.store.Meta(), move, func(now Move) error { return mayUnfence(now, move) })
	if err != nil {
		return err
	}
	if b.moving.serves() == nil {
		b.moving.set(move, revision)
		return nil
	}
	if err := b.groups.reload(ctx); err != nil {
		return err
	}
	b.moving.set(move, revision)
	for _, p := range b.partitions() {
		p.delays.resume(p)
	}
	return nil
}

// Moved says that the topics are served by the cluster from now on, at these
// addresses: clients are sent there. It cannot be taken back.
func (b *Broker) Moved(ctx context.Context, cluster string, run int64, nodes []Address) error {
	b.moving.change.Lock()
	defer b.moving.change.Unlock()
	move := Move{State: MoveDone, Cluster: cluster, Run: run, Nodes: nodes}
	revision, err := changeMove(ctx, b.store.Meta(), move, mayBeDone(cluster))
	if err != nil {
		return err
	}
	b.moving.set(move, revision)
	for _, p := range b.partitions() {
		p.watchers.signal()
	}
	return nil
}

// mayBeDone refuses to leave a store that is not fenced for that cluster.
func mayBeDone(cluster string) func(Move) error {
	return func(now Move) error {
		switch {
		case now.State == MoveServing:
			return fmt.Errorf("%w: the store is not fenced", ErrConflict)
		case now.Cluster != cluster:
			return &MovedError{now}
		}
		return nil
	}
}
