package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Types of groups, by Kafka's names of them.
const (
	TypeClassic  = "classic"
	TypeConsumer = "consumer"
	TypeShare    = "share"
)

// Description describes a group.
type Description struct {
	Name       string
	State      State
	Generation int32
	// Type is "classic", "consumer" for a group that uses the consumer protocol, or "share".
	Type string
	// ProtocolType is the kind of members that it has or had: usually "consumer";
	// empty if it never had any.
	ProtocolType string
	// Protocol is the chosen protocol, or the policy of the consumer protocol; empty in a
	// classic group unless it is stable.
	Protocol string
	Members  []MemberDescription
}

// MemberDescription describes a member.
type MemberDescription struct {
	Member, Instance, Client, Host string
	// Metadata and Assignment are set in a stable classic group only.
	Metadata, Assignment []byte
	// Consumer is set in a group that uses the consumer protocol.
	Consumer *ConsumerDescription
}

// List returns all groups that this broker coordinates, by name, without their members.
// If some groups have no coordinator that is alive, the error is an
// ErrCoordinatorUnavailable, since they would be missing from the lists of all brokers
// together. Other errors: ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) List() ([]Description, error) {
	if err := gs.ready(); err != nil {
		return nil, err
	}
	if err := gs.complete(); err != nil {
		return nil, err
	}
	all := gs.all()
	list := make([]Description, 0, len(all))
	for _, c := range all {
		c.mu.Lock()
		if !c.gone {
			list = append(list, c.group.describe())
		}
		c.mu.Unlock()
	}
	return list, nil
}

// complete returns an error while stored groups have no coordinator that is alive, or
// this broker coordinates them and has not loaded them.
func (gs *Groups) complete() error {
	slots, err := ListSlots(context.Background(), gs.meta) // from memory
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	held, alive := gs.held(), gs.cluster.Alive()
	for slot, item := range slots {
		switch node := item.Record.Node; {
		case item.Revision == 0: // never owned, so it has no groups
		case node == gs.cluster.Node():
			if !held[slot].serving {
				return ErrCoordinatorLoading
			}
		case !slices.Contains(alive, node):
			return fmt.Errorf("%w: that of slot %d was node %d", ErrCoordinatorUnavailable, slot, max(node, item.Record.Left))
		}
	}
	return nil
}

func (gs *Groups) ready() error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	switch {
	case gs.closed:
		return topic.ErrClosed
	case gs.fenced:
		return ErrNotCoordinator
	case !gs.loaded:
		return ErrCoordinatorLoading
	}
	return nil
}

// Describe returns a group with its members, in the order in which they joined.
// Errors: ErrNoGroup, ErrInvalidGroup, ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) Describe(name string) (Description, error) {
	var d Description
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		d = c.group.describe()
		if c.group.consumers != nil {
			d.Members = c.group.consumers.describe()
		}
		for _, m := range c.group.inOrder() {
			member := MemberDescription{Member: m.id, Instance: m.instance, Client: m.client, Host: m.host}
			if d.State == Stable {
				member.Metadata, member.Assignment = m.metadata(d.Protocol), m.assignment
			}
			d.Members = append(d.Members, member)
		}
		return nil
	})
	return d, err
}

func (g *group) describe() Description {
	d := Description{Name: g.name, State: g.state, Type: g.kind(), Generation: g.generation, ProtocolType: g.protocolType}
	if cs := g.consumers; cs != nil {
		d.Protocol = cs.assignor
		if d.State == Stable && !cs.shared && !cs.isReconciled(g.generation) {
			d.State = Reconciling
		}
		return d
	}
	if g.state == Stable {
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
		if c.group.state != Empty {
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
	var topics map[string]map[int32]CommittedOffset
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		topics = make(map[string]map[int32]CommittedOffset, len(c.offsets))
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

// DeleteOffsets removes offsets of topics that the group does not read. The answer
// comes when they are removed durably: an error for each that is not, in their order
// (ErrSubscribed, ErrCoordinatorUnavailable), or one for all: ErrNoGroup,
// ErrGroupNotEmpty for a group whose members are not consumers, ErrInvalidGroup,
// ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) DeleteOffsets(name string, offsets []OffsetDelete) *Awaited[[]error] {
	var answer *Awaited[[]error]
	err := gs.with(name, false, func(c *coordinator, _ time.Time) error {
		if c.group.state != Empty && c.group.protocolType != consumerProtocol {
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
