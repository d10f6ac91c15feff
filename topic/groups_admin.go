package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// GroupDescription is what there is to know of a group.
type GroupDescription struct {
	Name       string
	State      GroupState
	Generation int32
	// ProtocolType is what kind of members it has or had: "consumer", mostly;
	// empty if it never had any.
	ProtocolType string
	// Protocol is the one that was chosen; empty unless the group is stable.
	Protocol string
	Members  []MemberDescription
}

// MemberDescription is what there is to know of a member.
type MemberDescription struct {
	Member, Instance, Client, Host string
	// Metadata and Assignment are set in a stable group only.
	Metadata, Assignment []byte
}

// List returns all groups that this broker coordinates, by name, without their members.
// While nobody alive coordinates some of the groups it is an ErrCoordinatorUnavailable,
// as they would be missing in what all brokers together list. Other errors:
// ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) List() ([]GroupDescription, error) {
	if err := gs.ready(); err != nil {
		return nil, err
	}
	if err := gs.complete(); err != nil {
		return nil, err
	}
	all := gs.all()
	list := make([]GroupDescription, 0, len(all))
	for _, c := range all {
		c.mu.Lock()
		if !c.gone {
			list = append(list, c.group.describe())
		}
		c.mu.Unlock()
	}
	return list, nil
}

// complete returns an error while groups that are stored are coordinated by nobody
// alive, or by this broker, which has not loaded them.
func (gs *Groups) complete() error {
	if gs.cluster == nil {
		return nil
	}
	slots, err := listSlots(context.Background(), gs.meta) // it is in memory
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	held, alive := gs.held(), gs.cluster.Alive()
	for slot, item := range slots {
		switch node := item.record.Node; {
		case item.revision == 0: // nobody has had it so far, so it has no groups
		case node == gs.cluster.Node():
			if !held[slot].serving {
				return ErrCoordinatorLoading
			}
		case !slices.Contains(alive, node):
			return fmt.Errorf("%w: that of slot %d was node %d", ErrCoordinatorUnavailable, slot, max(node, item.record.Left))
		}
	}
	return nil
}

func (gs *Groups) ready() error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	switch {
	case gs.closed:
		return ErrClosed
	case gs.fenced:
		return ErrNotCoordinator
	case !gs.loaded:
		return ErrCoordinatorLoading
	}
	return nil
}

// Describe returns a group with its members, in the order in which they came.
// Errors: ErrNoGroup, ErrInvalidGroup, ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) Describe(name string) (GroupDescription, error) {
	var d GroupDescription
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		d = c.group.describe()
		for _, m := range c.group.inOrder() {
			member := MemberDescription{Member: m.id, Instance: m.instance, Client: m.client, Host: m.host}
			if d.State == GroupStable {
				member.Metadata, member.Assignment = m.metadata(d.Protocol), m.assignment
			}
			d.Members = append(d.Members, member)
		}
		return nil
	})
	return d, err
}

func (g *group) describe() GroupDescription {
	d := GroupDescription{Name: g.name, State: g.state, Generation: g.generation, ProtocolType: g.protocolType}
	if g.state == GroupStable {
		d.Protocol = g.protocol
	}
	return d
}

// Delete removes a group without members, and its offsets.
// Errors: ErrNoGroup, ErrGroupNotEmpty, ErrInvalidGroup, ErrCoordinatorLoading,
// ErrCoordinatorUnavailable, ErrClosed.
func (gs *Groups) Delete(name string) *Awaited[struct{}] {
	var answer *Awaited[struct{}]
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		if c.group.state != GroupEmpty {
			return fmt.Errorf("%w: %d members", ErrGroupNotEmpty, len(c.group.members))
		}
		answer = c.remove()
		return nil
	})
	if err != nil {
		return settled(struct{}{}, err)
	}
	return answer
}

// Offsets returns the offsets that a group has committed, by topic and partition;
// none if it does not exist. The maps of partitions are read-only.
// Errors: ErrInvalidGroup, ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) Offsets(name string) (map[string]map[int32]CommittedOffset, error) {
	topics := map[string]map[int32]CommittedOffset{}
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		for topic, offsets := range c.offsets {
			if len(offsets.partitions) > 0 {
				topics[topic] = offsets.partitions
			}
		}
		return nil
	})
	if errors.Is(err, ErrNoGroup) {
		err = nil
	}
	return topics, err
}

// OffsetDelete names an offset to remove.
type OffsetDelete struct {
	Topic     string
	Partition int32
}

// DeleteOffsets removes offsets of topics that the group does not read. The
// answer comes when they are gone for good: an error for each that is not, in
// their order (ErrSubscribed, ErrCoordinatorUnavailable), or one for all:
// ErrNoGroup, ErrGroupNotEmpty for a group whose members are no consumers,
// ErrInvalidGroup, ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) DeleteOffsets(name string, offsets []OffsetDelete) *Awaited[[]error] {
	var answer *Awaited[[]error]
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		if c.group.state != GroupEmpty && c.group.protocolType != consumerProtocol {
			return fmt.Errorf("%w: what its members read is unknown", ErrGroupNotEmpty)
		}
		answer = c.deleteOffsets(offsets)
		return nil
	})
	if err != nil {
		return settled[[]error](nil, err)
	}
	return answer
}

func (c *coordinator) deleteOffsets(offsets []OffsetDelete) *Awaited[[]error] {
	subscribed, known := c.group.subscribed()
	changes := newWaitingCommit(len(offsets))
	for i, o := range offsets {
		changes.topics[i] = o.Topic
		if subscribed[o.Topic] || !known {
			changes.errs[i] = fmt.Errorf("%w: %q", ErrSubscribed, o.Topic)
			continue
		}
		c.change(o.Topic, map[int32]offsetChange{o.Partition: {}})
	}
	return c.await(changes)
}
