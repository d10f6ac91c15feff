package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group/assign"
	"github.com/sluice-project/sluice/topic/share"
)

// A share group (KIP-932) has the members, the epochs and the record of a group of the consumer protocol. Its
// partitions have no owners: several members may read one, so that a member reaches its target with
// its next heartbeat. The leaders of partitions keep what members do with records, in
// windows of package share.

// shareProtocol is the protocol type of share groups.
const shareProtocol = "share"

func (g *group) isShare() bool { return g.consumers != nil && g.consumers.shared }

// kind returns the type of the group.
func (g *group) kind() string {
	switch {
	case g.consumers == nil:
		return TypeClassic
	case g.consumers.shared:
		return TypeShare
	default:
		return TypeConsumer
	}
}

func (cs *consumers) protocolType() string {
	if cs.shared {
		return shareProtocol
	}
	return consumerProtocol
}

// share brings a member of a share group to its target, and reports whether that is a change.
func (g *group) share(m *consumer) bool {
	if m.epoch == g.generation {
		return false
	}
	m.setEpoch(g.generation)
	m.assigned = m.target
	return true
}

// keepsWindows reports whether a share group without members is still kept, with what it
// knows of records: as long as offsets are.
func (g *group) keepsWindows(now time.Time) bool {
	return g.isShare() && g.emptySince.Add(g.config.OffsetRetention).After(now)
}

// removeWindows removes what a group knows of records. Windows are made under the condition that the stored group is a share
// group, at a revision: so it is made an empty one of no protocol first, and windows that are found after that are all. If
// this broker ends in between, that group is removed as others without offsets are, with its windows.
func (c *coordinator) removeWindows(ctx context.Context) error {
	if err := c.endShare(ctx); err != nil {
		return err
	}
	items, err := c.groups.meta.List(ctx, share.Prefix)
	for _, item := range items {
		if _, _, of := share.SplitKey(item.Key); of == c.name && err == nil {
			err = RemoveItem(ctx, c.owner, item.Key, item.Revision)
		}
	}
	return err
}

// endShare stores a share group as a group of no protocol.
func (c *coordinator) endShare(ctx context.Context) error {
	c.mu.Lock()
	shared, record := c.group.isShare(), c.group.record(nil)
	c.mu.Unlock()
	if !shared {
		return nil
	}
	record.ProtocolType, record.Protocol, record.Consumers = "", "", nil
	revision, err := storeGroup(ctx, c.owner, GroupKey(c.name), c.revision, record)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision, c.unsure = revision, err != nil
	return err
}

// ShareGuard returns the condition under which a window of a share group may be made: that
// the stored group is as it was. ErrNoGroup if there is no such group; ErrOtherProtocol if it is no
// share group.
func ShareGuard(ctx context.Context, meta topic.Meta, name string) (topic.Guard, error) {
	item, err := meta.Get(ctx, GroupKey(name))
	if errors.Is(err, topic.ErrNotFound) {
		return topic.Guard{}, &groupError{ErrNoGroup, name}
	}
	if err != nil {
		return topic.Guard{}, err
	}
	var record groupRecord
	if err := json.Unmarshal(item.Value, &record); err != nil {
		return topic.Guard{}, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if record.Consumers == nil || !record.Consumers.Shared {
		return topic.Guard{}, fmt.Errorf("%w: %q is no share group", ErrOtherProtocol, name)
	}
	return topic.Guard{Key: item.Key, Revision: item.Revision}, nil
}

// MakeShare makes a share group without members, unless there is a group of that name, and returns when it is durable. Errors:
// those of Describe but ErrNoGroup; ErrTooManyGroups, ErrCoordinatorUnavailable.
func (gs *Groups) MakeShare(ctx context.Context, name string) error {
	made := settled(ConsumerResult{}, nil)
	err := gs.with(name, true, func(c *coordinator, now time.Time) error {
		g := c.group
		if c.unused() {
			g.consumers, g.protocolType, g.emptySince = newConsumers(), shareProtocol, now
			g.consumers.shared, g.consumers.assignor = true, assign.SimpleName
		}
		if g.isShare() && c.revision == 0 {
			answer := newAwaited[ConsumerResult]()
			g.saveConsumers(g.consumers, func(err error) { answer.settle(ConsumerResult{}, err) })
			made = answer
		}
		return nil
	})
	if err == nil {
		_, err = made.Wait(ctx)
	}
	return err
}

// MayReset returns an error unless the group is a share group without members: ErrNoGroup, ErrOtherProtocol,
// ErrGroupNotEmpty; other errors are those of Describe.
func (gs *Groups) MayReset(name string) error {
	d, err := gs.Describe(name)
	switch {
	case err != nil:
		return err
	case d.Type != TypeShare:
		return fmt.Errorf("%w: %q is no share group", ErrOtherProtocol, name)
	case d.State != Empty:
		return fmt.Errorf("%w: %d members", ErrGroupNotEmpty, len(d.Members))
	}
	return nil
}
