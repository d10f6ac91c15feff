package group

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
)

// claim claims slots, and then loads the groups of the claimed slots, and of those that
// could not be loaded before, in one pass. It reports whether nothing failed; a slot that
// another node claimed first is not a failure.
func (gs *Groups) claim(ctx context.Context, due []SlotItem, owned [SlotCount]*Ownership) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	claimErr := gs.claimAll(ctx, due, &owned)
	loadErr := gs.load(ctx, owned)
	if err := errors.Join(claimErr, loadErr); err != nil {
		if !errors.Is(err, context.Canceled) { // stopping
			gs.log.Error("claim groups", "error", err, "again_in", claimRetry)
		}
		return false
	}
	return true
}

// claimAll claims slots in parallel, and adds the ownerships of the claimed ones.
func (gs *Groups) claimAll(ctx context.Context, due []SlotItem, owned *[SlotCount]*Ownership) error {
	var mu sync.Mutex
	var claims errgroup.Group
	claims.SetLimit(parallelWrites)
	for _, item := range due {
		claims.Go(func() error {
			record := SlotRecord{Node: gs.cluster.Node(), Epoch: item.Record.Epoch + 1}
			revision, err := PutSlot(ctx, gs.meta, item, record)
			if errors.Is(err, topic.ErrConflict) {
				return nil
			}
			if err != nil {
				return err
			}
			l := &Ownership{Meta: gs.meta, guard: topic.Guard{Key: slotKey(item.Slot), Revision: revision}, epoch: record.Epoch}
			mu.Lock()
			defer mu.Unlock()
			owned[item.Slot] = l
			gs.begin(item.Slot, l)
			return nil
		})
	}
	return claims.Wait()
}

// PutSlot writes the record of a slot over the given item, and returns its new revision.
func PutSlot(ctx context.Context, meta topic.Meta, item SlotItem, record SlotRecord) (uint64, error) {
	record.Format = slotFormat
	value, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	return meta.Put(ctx, slotKey(item.Slot), value, item.Revision)
}

// begin records that this broker owns a slot, whose groups are being loaded.
func (gs *Groups) begin(slot int, l *Ownership) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.slots[slot] = slotState{owner: l}
}

// load reads the groups of slots, and serves the slots whose groups can all be read.
// All writes from before a slot's claim are visible by then, and no other broker can
// have written since.
func (gs *Groups) load(ctx context.Context, owned [SlotCount]*Ownership) error {
	if owned == ([SlotCount]*Ownership{}) {
		return nil
	}
	if err := gs.meta.Sync(ctx); err != nil {
		return err
	}
	byName, broken, err := gs.read(ctx, owned)
	if err != nil {
		return err
	}
	there, err := gs.topicsThere(ctx)
	if err != nil {
		return err
	}
	for name, c := range byName {
		slot := SlotOf(name)
		if broken[slot] == nil {
			c.mu.Lock()
			broken[slot] = c.forgetMissing(ctx, there)
			c.mu.Unlock()
		}
	}
	for slot, err := range broken {
		if err != nil {
			owned[slot] = nil
		}
	}
	gs.serve(owned, byName)
	return errors.Join(broken[:]...)
}

// serve begins to serve the slots that were not lost while they were loaded.
func (gs *Groups) serve(owned [SlotCount]*Ownership, byName map[string]*coordinator) {
	gs.mu.Lock()
	if gs.closed {
		gs.mu.Unlock()
		return
	}
	for slot, l := range owned {
		if l != nil && gs.slots[slot].owner == l {
			gs.slots[slot].serving = true
		}
	}
	served := make(map[string]*coordinator, len(byName))
	for name, c := range byName {
		if slot := gs.slots[SlotOf(name)]; slot.serving && slot.owner == c.owner {
			gs.byName[name], served[name] = c, c
		}
	}
	gs.mu.Unlock()
	beginAll(served)
}

// giveUp lets other nodes claim this node's slots when it stops.
func (gs *Groups) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := gs.offer(ctx); err != nil {
		gs.log.Warn("give up groups", "error", err)
	}
	gs.deposeAll()
}

// offer records that this node's slots have no owner, if there is another node.
func (gs *Groups) offer(ctx context.Context) error {
	self := gs.cluster.Node()
	if len(gs.cluster.Alive()) < 2 {
		return nil
	}
	slots, err := ListSlots(ctx, gs.meta)
	if err != nil {
		return err
	}
	var writes errgroup.Group
	writes.SetLimit(parallelWrites)
	for _, item := range slots {
		if item.Record.Node != self {
			continue
		}
		writes.Go(func() error {
			_, err := PutSlot(ctx, gs.meta, item, SlotRecord{Epoch: item.Record.Epoch, Left: self})
			return err
		})
	}
	return writes.Wait()
}
