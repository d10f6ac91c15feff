package topic

import (
	"context"
	"errors"
	"fmt"
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

// List returns all groups, by name, without their members.
// Errors: ErrCoordinatorLoading, ErrClosed.
func (gs *Groups) List() ([]GroupDescription, error) {
	if err := gs.ready(); err != nil {
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

func (gs *Groups) ready() error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	switch {
	case gs.closed:
		return ErrClosed
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

// ForgetTopic removes all offsets of a topic, which does not exist any more, and
// returns when they are gone for good. Errors: ErrCoordinatorUnavailable,
// ErrCoordinatorLoading, ErrClosed, ctx's.
func (gs *Groups) ForgetTopic(ctx context.Context, topic string) error {
	if err := gs.ready(); err != nil {
		return err
	}
	var answers []*Awaited[[]error]
	for _, c := range gs.all() {
		_, err := c.do(func(c *coordinator, _ time.Time) error {
			if forget := c.forgetTopic(topic); forget != nil {
				answers = append(answers, forget)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrCoordinatorLoading) { // that one is being removed
			return err
		}
	}
	var failed error
	for _, answer := range answers {
		errs, err := answer.Wait(ctx)
		failed = errors.Join(failed, err, errors.Join(errs...))
	}
	return failed
}

// forgetTopic removes the offsets of a topic, also those on their way; nil if
// there are none.
func (c *coordinator) forgetTopic(topic string) *Awaited[[]error] {
	partitions := map[int32]offsetChange{}
	for partition := range c.offsets[topic].partitions {
		partitions[partition] = offsetChange{}
	}
	for _, w := range []*groupWrite{c.underway, c.waiting} {
		if w != nil {
			for partition := range w.offsets[topic] {
				partitions[partition] = offsetChange{}
			}
		}
	}
	if len(partitions) == 0 {
		return nil
	}
	c.change(topic, partitions)
	changes := newWaitingCommit(1)
	changes.topics[0] = topic
	return c.await(changes)
}
