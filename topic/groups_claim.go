package topic

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// claim takes slots, and then loads the groups of those that it got, and of those that
// could not be loaded before, in one pass. It tells whether nothing went wrong:
// another that came first is nothing wrong.
func (gs *Groups) claim(ctx context.Context, due []slotItem, leases [groupSlots]*lease) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	claimErr := gs.claimAll(ctx, due, &leases)
	count, loadErr := gs.load(ctx, leases)
	if count > 0 {
		gs.log.Info("coordinates groups", "slots", count)
	}
	if err := errors.Join(claimErr, loadErr); err != nil {
		if !errors.Is(err, context.Canceled) { // it stops
			gs.log.Error("claim groups", "error", err, "again_in", claimRetry)
		}
		return false
	}
	return true
}

// claimAll claims slots side by side, and adds the leases of those that it got.
func (gs *Groups) claimAll(ctx context.Context, due []slotItem, leases *[groupSlots]*lease) error {
	var mu sync.Mutex
	var claims errgroup.Group
	claims.SetLimit(parallelWrites)
	for _, item := range due {
		claims.Go(func() error {
			record := slotRecord{Node: gs.cluster.Node(), Epoch: item.record.Epoch + 1}
			revision, err := putSlot(ctx, gs.meta, item, record)
			if errors.Is(err, ErrConflict) {
				return nil
			}
			if err != nil {
				return err
			}
			l := &lease{meta: gs.meta, guard: &Guard{Key: slotKey(item.slot), Revision: revision}, epoch: record.Epoch}
			mu.Lock()
			defer mu.Unlock()
			leases[item.slot] = l
			gs.begin(item.slot, l)
			return nil
		})
	}
	return claims.Wait()
}

func putSlot(ctx context.Context, meta Meta, item slotItem, record slotRecord) (uint64, error) {
	record.Format = slotFormat
	value, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	return meta.Put(ctx, slotKey(item.slot), value, item.revision)
}

// begin notes that this broker has a slot, whose groups are being loaded.
func (gs *Groups) begin(slot int, l *lease) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.slots[slot] = slotState{lease: l}
}

// load reads the groups of slots, and serves those slots in which all can be read.
// What was written before a slot was claimed is known by then, and nobody else can
// have written since.
func (gs *Groups) load(ctx context.Context, leases [groupSlots]*lease) (count int, err error) {
	if leases == ([groupSlots]*lease{}) {
		return 0, nil
	}
	if err := gs.meta.Sync(ctx); err != nil {
		return 0, err
	}
	byName, broken, err := gs.read(ctx, leases)
	if err != nil {
		return 0, err
	}
	there, err := gs.topicsThere(ctx)
	if err != nil {
		return 0, err
	}
	for name, c := range byName {
		slot := slotOf(name)
		if broken[slot] == nil {
			c.mu.Lock()
			broken[slot] = c.forgetMissing(ctx, there)
			c.mu.Unlock()
		}
	}
	for slot, err := range broken {
		if err != nil {
			leases[slot] = nil
		}
	}
	return gs.serve(leases, byName), errors.Join(broken[:]...)
}

// serve begins to serve the slots that were not lost while they were loaded, and
// returns how many.
func (gs *Groups) serve(leases [groupSlots]*lease, byName map[string]*coordinator) (count int) {
	gs.mu.Lock()
	if gs.closed {
		gs.mu.Unlock()
		return 0
	}
	for slot, l := range leases {
		if l != nil && gs.slots[slot].lease == l {
			gs.slots[slot].serving = true
			count++
		}
	}
	served := make(map[string]*coordinator, len(byName))
	for name, c := range byName {
		if slot := gs.slots[slotOf(name)]; slot.serving && slot.lease == c.lease {
			gs.byName[name], served[name] = c, c
		}
	}
	gs.mu.Unlock()
	beginAll(served)
	return count
}

// giveUp lets others claim what this node has, when it stops.
func (gs *Groups) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held := gs.held()
	slots, err := listSlots(ctx, gs.meta)
	if err != nil {
		gs.log.Warn("give up groups", "error", err)
		return
	}
	var writes errgroup.Group
	writes.SetLimit(parallelWrites)
	for _, item := range slots {
		if item.record.Node != gs.cluster.Node() {
			continue
		}
		writes.Go(func() error {
			_, err := putSlot(ctx, gs.meta, item, slotRecord{Epoch: item.record.Epoch, Left: gs.cluster.Node()})
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		gs.log.Warn("give up groups", "error", err)
	}
	for _, state := range held {
		if state.lease != nil {
			gs.depose(state.lease)
		}
	}
}
