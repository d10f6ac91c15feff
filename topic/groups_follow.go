package topic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// In a cluster each node follows who is there and who has which slot, drops the
// slots that it has lost, and claims those that it should have. Nothing rests on all
// nodes seeing the same: who has a slot is decided by a compare-and-set of its
// record, and what the slot's groups write is guarded by that record's revision.

const (
	// lookInterval is how often a node looks without being told of a change.
	lookInterval = 10 * time.Second
	// claimRetry is how long it waits after a claim or a load that failed.
	claimRetry = time.Second
	// forgetInterval is how long it waits between two looks for offsets of topics
	// that are gone.
	forgetInterval = time.Second
)

// slotState is what a node has of a slot: nothing without a lease.
type slotState struct {
	lease   *lease
	serving bool // its groups are loaded
}

// follower is what the loop has that follows the cluster.
type follower struct {
	work *lifecycle.Group
	wake chan struct{} // one is in it if there may be something to do

	// The loop's own.
	wants       [groupSlots]slotWant
	disputes    [groupSlots]slotDispute
	claiming    chan bool // its answer says whether all claims went well; nil: none is under way
	claimAfter  time.Time // not before
	forgetAfter time.Time
	// topicsChanged says that offsets may be of a topic that is gone.
	topicsChanged atomic.Bool
}

// slotWant is since when a node has wanted a slot.
type slotWant struct {
	since    time.Time // zero: it does not want it
	after    time.Duration
	revision uint64
}

// slotItem is a slot's record with its revision; 0 if there is none.
type slotItem struct {
	slot     int
	record   slotRecord
	revision uint64
}

func newFollower() *follower {
	return &follower{work: lifecycle.NewGroup(context.Background()), wake: make(chan struct{}, 1)}
}

func (gs *Groups) startFollowing() {
	gs.mu.Lock()
	gs.loaded = true
	gs.mu.Unlock()
	cancels := []func(){gs.cluster.Watch(gs.wakeUp)}
	for _, prefix := range []string{slotPrefix, nodesPrefix} {
		cancels = append(cancels, gs.meta.Watch(prefix, gs.wakeUp))
	}
	cancels = append(cancels, gs.meta.Watch(topicsPrefix, func() {
		gs.follow.topicsChanged.Store(true)
		gs.wakeUp()
	}))
	gs.follow.work.Go("follow coordinators", func(ctx context.Context) error {
		for _, cancel := range cancels {
			defer cancel()
		}
		return gs.followCluster(ctx)
	})
	gs.work.Go("expire offsets", gs.expireLoop)
}

func (gs *Groups) wakeUp() {
	select {
	case gs.follow.wake <- struct{}{}:
	default:
	}
}

func (gs *Groups) followCluster(ctx context.Context) error {
	timer := time.NewTimer(lookInterval)
	defer timer.Stop()
	for {
		wait, err := gs.look(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			gs.log.Error("follow the coordinators of groups", "error", err, "again_in", claimRetry)
			wait = claimRetry
		}
		timer.Reset(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gs.follow.wake:
		case <-timer.C:
		case ok := <-gs.follow.claiming:
			gs.follow.claiming = nil
			if !ok {
				gs.follow.claimAfter = time.Now().Add(claimRetry)
			}
		}
	}
}

// look does what there is to do, and returns when to look again if nothing tells
// to do so before.
func (gs *Groups) look(ctx context.Context, now time.Time) (time.Duration, error) {
	held := gs.held()
	members, slots, err := gs.survey(ctx)
	if err != nil {
		return 0, err
	}
	gs.dropLost(held, members, slots)
	for slot, item := range slots {
		gs.follow.disputes[slot].look(now, held[slot].lease != nil, item.record.Node, members)
	}
	wait, err := gs.forgetTopics(ctx, now)
	if err != nil {
		return 0, err
	}
	if gs.follow.claiming != nil {
		return wait, nil
	}
	due, next := gs.wanted(now, held, members, slots)
	var unloaded [groupSlots]*lease
	for slot, state := range gs.held() {
		if !state.serving {
			unloaded[slot] = state.lease
		}
	}
	if len(due) == 0 && unloaded == ([groupSlots]*lease{}) {
		return min(wait, next), nil
	}
	if early := gs.follow.claimAfter.Sub(now); early > 0 {
		return min(wait, early), nil
	}
	done := make(chan bool, 1)
	gs.follow.claiming = done
	gs.follow.work.Go("claim groups", func(ctx context.Context) error {
		done <- gs.claim(ctx, due, unloaded)
		return nil
	})
	return wait, nil
}

// held returns what this node has of the slots. Who compares it with their records
// must read those after it: a record is never older than a lease.
func (gs *Groups) held() [groupSlots]slotState {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.slots
}

// survey returns what this node knows of the nodes, and of who has which slot.
func (gs *Groups) survey(ctx context.Context) (membership, [groupSlots]slotItem, error) {
	members, err := gs.membership(ctx)
	if err != nil {
		return members, [groupSlots]slotItem{}, err
	}
	slots, err := listSlots(ctx, gs.meta)
	return members, slots, err
}

// membership returns what this node knows of all nodes.
func (gs *Groups) membership(ctx context.Context) (membership, error) {
	items, err := gs.meta.List(ctx, nodesPrefix)
	if err != nil {
		return membership{}, err
	}
	registered := make([]nodeRecord, 0, len(items))
	for _, item := range items {
		node, err := readNodeRecord(item)
		if err != nil {
			return membership{}, err
		}
		registered = append(registered, node)
	}
	return newMembership(gs.cluster.Node(), gs.cluster.Alive(), registered), nil
}

// listSlots returns all slots, also those without a record.
func listSlots(ctx context.Context, meta Meta) ([groupSlots]slotItem, error) {
	var slots [groupSlots]slotItem
	for slot := range slots {
		slots[slot].slot = slot
	}
	items, err := meta.List(ctx, slotPrefix)
	if err != nil {
		return slots, err
	}
	for _, item := range items {
		slot, err := strconv.Atoi(strings.TrimPrefix(item.Key, slotPrefix))
		if err != nil || slot < 0 || slot >= groupSlots {
			return slots, fmt.Errorf("metadata %q: want a number below %d", item.Key, groupSlots)
		}
		record, err := readSlotRecord(item)
		if err != nil {
			return slots, err
		}
		slots[slot] = slotItem{slot: slot, record: record, revision: item.Revision}
	}
	return slots, nil
}

// dropLost drops the slots that others have claimed, and all if this node is
// isolated.
func (gs *Groups) dropLost(held [groupSlots]slotState, members membership, slots [groupSlots]slotItem) {
	isolated := members.isolated()
	lost := 0
	for slot, state := range held {
		if state.lease != nil && (isolated || slots[slot].revision != state.lease.guard.Revision) {
			gs.depose(state.lease)
			lost++
		}
	}
	if lost > 0 {
		gs.log.Info("gave up groups", "slots", lost, "isolated", isolated)
	}
}

// depose ends the coordinators of a lease's groups.
func (gs *Groups) depose(l *lease) {
	gs.mu.Lock()
	var lost []*coordinator
	for slot := range gs.slots {
		if gs.slots[slot].lease == l {
			gs.slots[slot] = slotState{}
		}
	}
	maps.DeleteFunc(gs.byName, func(_ string, c *coordinator) bool {
		if c.lease == l {
			lost = append(lost, c)
		}
		return c.lease == l
	})
	gs.mu.Unlock()
	for _, c := range lost {
		c.depose()
	}
	gs.wakeUp()
}

// renew lets a slot be claimed anew, which gives its groups new numbers for their
// generations. It does not wait, and may be called with the lock of a coordinator.
func (gs *Groups) renew(l *lease) {
	gs.follow.work.Go("renew the claim of "+l.guard.Key, func(context.Context) error {
		gs.depose(l)
		return nil
	})
}

// wanted returns the slots that this node should claim now, and when to look again.
func (gs *Groups) wanted(now time.Time, held [groupSlots]slotState, members membership, slots [groupSlots]slotItem) (due []slotItem, next time.Duration) {
	next = lookInterval
	for slot, item := range slots {
		want := &gs.follow.wants[slot]
		after, ok := members.claims(slot, item.record)
		if !ok || held[slot].lease != nil {
			*want = slotWant{}
			continue
		}
		if want.since.IsZero() || want.after != after || want.revision != item.revision {
			*want = slotWant{since: now, after: after, revision: item.revision}
		}
		if wait := max(want.since.Add(after).Sub(now), gs.follow.disputes[slot].notYet.Sub(now)); wait > 0 {
			next = min(next, wait)
			continue
		}
		due = append(due, item)
	}
	return due, next
}

// Confirm makes sure that no other broker has taken over a group that this one
// coordinates, as far as that was before the call: what this one says of groups is
// then as new as what any other says. Without a cluster that is always so.
// ErrCoordinatorUnavailable if it cannot be known; ErrClosed.
func (gs *Groups) Confirm(ctx context.Context) error {
	if gs.cluster == nil {
		return nil
	}
	if err := gs.ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held := gs.held()
	if err := gs.meta.Sync(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	members, slots, err := gs.survey(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	gs.dropLost(held, members, slots)
	return nil
}

// Coordinator returns the node that coordinates a group, which need not exist; 0
// without a cluster. ErrCoordinatorUnavailable: nobody does at present, or this node
// cannot know.
func (gs *Groups) Coordinator(ctx context.Context, name string) (int32, error) {
	if gs.cluster == nil {
		return 0, nil
	}
	members, err := gs.membership(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	if members.isolated() {
		return 0, fmt.Errorf("%w: %d of %d nodes can be reached", ErrCoordinatorUnavailable, members.reached, members.registered)
	}
	item, err := getItem(ctx, gs.meta, slotKey(slotOf(name)))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	if item.Revision == 0 {
		return 0, fmt.Errorf("%w: nobody has claimed group %q yet", ErrCoordinatorUnavailable, name)
	}
	record, err := readSlotRecord(item)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	if record.Node == 0 || !slices.Contains(members.alive, record.Node) {
		return 0, fmt.Errorf("%w: that of group %q was node %d", ErrCoordinatorUnavailable, name, max(record.Node, record.Left))
	}
	return record.Node, nil
}
