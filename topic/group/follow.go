package group

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Each node follows the alive nodes and the owners of the slots, drops the
// slots that it has lost, and claims those that it should own. Safety does not depend on
// all nodes seeing the same: a compare-and-set of a slot's record decides its owner, and
// the record's revision guards all writes of the slot's groups.

const (
	// lookInterval is how often a node looks without a notification.
	lookInterval = time.Minute
	// claimRetry is the wait after a claim or a load that failed.
	claimRetry = time.Second
	// forgetInterval is the time between two searches for offsets of topics that were
	// deleted.
	forgetInterval = time.Second
)

// slotState is a node's state of a slot; zero without an ownership.
type slotState struct {
	owner   *Ownership
	serving bool // its groups are loaded
}

// follower is the state of the loop that follows the cluster.
type follower struct {
	work *lifecycle.Group
	wake lifecycle.Signal // holds a value if there may be work
	// looked is closed when the first claims have ended.
	looked chan struct{}

	// Used by the loop only.
	wants       [SlotCount]slotWant
	disputes    [SlotCount]slotDispute
	claiming    chan bool // receives whether all claims succeeded; nil: no claims in progress
	claimAfter  time.Time // earliest time of the next claims
	reported    int       // slots that it was last logged to serve
	forgetAfter time.Time
	// topicsChanged reports that topics may have been deleted since the last search.
	topicsChanged atomic.Bool
}

// slotWant is the time since which a node wants a slot.
type slotWant struct {
	since    time.Time // zero: the node does not want it
	after    time.Duration
	revision uint64
}

// SlotItem is a slot's record with its revision; 0 if there is none.
type SlotItem struct {
	Slot     int
	Record   SlotRecord
	Revision uint64
}

func newFollower() *follower {
	return &follower{work: lifecycle.NewGroup(context.Background()), wake: lifecycle.NewSignal(), looked: make(chan struct{})}
}

func (gs *Groups) startFollowing() {
	gs.mu.Lock()
	gs.loaded = true
	gs.mu.Unlock()
	cancels := []func(){gs.cluster.Watch(gs.wakeUp)}
	for _, prefix := range []string{SlotPrefix, catalog.NodesPrefix} {
		cancels = append(cancels, gs.meta.Watch(prefix, gs.wakeUp))
	}
	cancels = append(cancels, gs.meta.Watch(catalog.TopicsPrefix, func() {
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

func (gs *Groups) wakeUp() { gs.follow.wake.Wake() }

func (gs *Groups) followCluster(ctx context.Context) error {
	timer := time.NewTimer(lookInterval)
	defer timer.Stop()
	looked := sync.OnceFunc(func() { close(gs.follow.looked) })
	for {
		wait, err := gs.look(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			gs.log.Error("follow the coordinators of groups", "error", err, "again_in", claimRetry)
			wait = claimRetry
		}
		gs.report()
		if gs.follow.claiming == nil {
			looked()
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

// report logs how many slots this node serves, if that has changed.
func (gs *Groups) report() {
	serving := 0
	for _, state := range gs.held() {
		if state.serving {
			serving++
		}
	}
	if before := gs.follow.reported; serving != before {
		gs.log.Info("coordinates groups", "slots", serving, "before", before)
		gs.follow.reported = serving
	}
}

// look does the work that is due, and returns when to look again without a notification.
func (gs *Groups) look(ctx context.Context, now time.Time) (time.Duration, error) {
	if gs.isFenced() {
		return lookInterval, nil
	}
	held := gs.held()
	members, slots, err := gs.survey(ctx)
	if err != nil {
		return 0, err
	}
	gs.dropLost(held, members, slots)
	for slot, item := range slots {
		gs.follow.disputes[slot].look(now, held[slot].owner != nil, item.Record.Node, members)
	}
	wait, err := gs.forgetTopics(ctx, now)
	if err != nil {
		return 0, err
	}
	if gs.follow.claiming != nil {
		return wait, nil
	}
	due, next := gs.wanted(now, held, members, slots)
	var unloaded [SlotCount]*Ownership
	for slot, state := range gs.held() {
		if !state.serving {
			unloaded[slot] = state.owner
		}
	}
	if len(due) == 0 && unloaded == ([SlotCount]*Ownership{}) {
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

// held returns this node's slots. A caller that compares them with the slots' records
// must read the records afterwards: a record is never older than an ownership.
func (gs *Groups) held() [SlotCount]slotState {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.slots
}

// survey returns what this node knows of the nodes and of the slots' owners.
func (gs *Groups) survey(ctx context.Context) (membership, [SlotCount]SlotItem, error) {
	members, err := gs.membership(ctx)
	if err != nil {
		return members, [SlotCount]SlotItem{}, err
	}
	slots, err := ListSlots(ctx, gs.meta)
	return members, slots, err
}

// membership returns what this node knows of all nodes.
func (gs *Groups) membership(ctx context.Context) (membership, error) {
	items, err := gs.meta.List(ctx, catalog.NodesPrefix)
	if err != nil {
		return membership{}, err
	}
	registered := make([]catalog.Node, 0, len(items))
	for _, item := range items {
		node, err := catalog.ReadNode(item)
		if err != nil {
			return membership{}, err
		}
		registered = append(registered, node)
	}
	return newMembership(gs.cluster.Node(), gs.cluster.Alive(), registered), nil
}

// ListSlots returns all slots, including those without a record.
func ListSlots(ctx context.Context, meta topic.Meta) ([SlotCount]SlotItem, error) {
	var slots [SlotCount]SlotItem
	for slot := range slots {
		slots[slot].Slot = slot
	}
	items, err := meta.List(ctx, SlotPrefix)
	if err != nil {
		return slots, err
	}
	for _, item := range items {
		slot, err := strconv.Atoi(strings.TrimPrefix(item.Key, SlotPrefix))
		if err != nil || slot < 0 || slot >= SlotCount {
			return slots, fmt.Errorf("metadata %q: want a number below %d", item.Key, SlotCount)
		}
		record, err := readSlotRecord(item)
		if err != nil {
			return slots, err
		}
		slots[slot] = SlotItem{Slot: slot, Record: record, Revision: item.Revision}
	}
	return slots, nil
}

// dropLost drops the slots that other nodes have claimed, and all slots if this node is
// isolated.
func (gs *Groups) dropLost(held [SlotCount]slotState, members membership, slots [SlotCount]SlotItem) {
	isolated := members.isolated()
	for slot, state := range held {
		if state.owner != nil && (isolated || slots[slot].Revision != state.owner.guard.Revision) {
			gs.depose(state.owner)
		}
	}
}

// depose ends the coordinators of an ownership's groups.
func (gs *Groups) depose(l *Ownership) {
	gs.mu.Lock()
	var lost []*coordinator
	for slot := range gs.slots {
		if gs.slots[slot].owner == l {
			gs.slots[slot] = slotState{}
		}
	}
	maps.DeleteFunc(gs.byName, func(_ string, c *coordinator) bool {
		if c.owner == l {
			lost = append(lost, c)
		}
		return c.owner == l
	})
	gs.mu.Unlock()
	for _, c := range lost {
		c.depose()
	}
	gs.wakeUp()
}

// deposeAll ends the coordinators of all groups.
func (gs *Groups) deposeAll() {
	for _, state := range gs.held() {
		if state.owner != nil {
			gs.depose(state.owner)
		}
	}
}

// renew has a slot claimed again, which gives its groups new numbers for their
// generations. It does not wait, and may be called with the lock of a coordinator.
func (gs *Groups) renew(l *Ownership) {
	gs.follow.work.Go("renew the claim of "+l.guard.Key, func(context.Context) error {
		gs.depose(l)
		return nil
	})
}

// wanted returns the slots that this node should claim now, and when to look again.
func (gs *Groups) wanted(now time.Time, held [SlotCount]slotState, members membership, slots [SlotCount]SlotItem) (due []SlotItem, next time.Duration) {
	next = lookInterval
	for slot, item := range slots {
		want := &gs.follow.wants[slot]
		after, ok := members.claims(slot, item.Record)
		if !ok || held[slot].owner != nil {
			*want = slotWant{}
			continue
		}
		if want.since.IsZero() || want.after != after || want.revision != item.Revision {
			*want = slotWant{since: now, after: after, revision: item.Revision}
		}
		if wait := max(want.since.Add(after).Sub(now), gs.follow.disputes[slot].notYet.Sub(now)); wait > 0 {
			next = min(next, wait)
			continue
		}
		due = append(due, item)
	}
	return due, next
}

// Confirm checks that no other broker had taken over a group of this broker before the
// call: then this broker's answers about groups are as new as those of any other.
// Errors: ErrCoordinatorUnavailable if it cannot be
// known; ErrClosed.
func (gs *Groups) Confirm(ctx context.Context) error {
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

// Coordinator returns the node that coordinates a group, which need not exist.
// ErrCoordinatorUnavailable means that no node does at present, or
// that this node cannot know. The answer is the same for all groups of a slot, see SlotOf.
func (gs *Groups) Coordinator(ctx context.Context, name string) (int32, error) {
	members, err := gs.membership(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	if members.isolated() {
		return 0, fmt.Errorf("%w: %d of %d nodes can be reached", ErrCoordinatorUnavailable, members.reached, members.registered)
	}
	slot := SlotOf(name)
	item, err := catalog.Get(ctx, gs.meta, slotKey(slot))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	if item.Revision == 0 {
		return 0, fmt.Errorf("%w: nobody has claimed slot %d yet", ErrCoordinatorUnavailable, slot)
	}
	record, err := readSlotRecord(item)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	if record.Node == 0 || !slices.Contains(members.alive, record.Node) {
		return 0, fmt.Errorf("%w: that of slot %d was node %d", ErrCoordinatorUnavailable, slot, max(record.Node, record.Left))
	}
	return record.Node, nil
}
