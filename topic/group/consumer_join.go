package group

import (
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// consumerOf returns the member that sent a heartbeat. A new one is added.
func (g *group) consumerOf(r ConsumerHeartbeat) (*consumer, error) {
	if r.Epoch == JoinEpoch {
		return g.joinConsumers(r)
	}
	m, err := g.knownConsumer(r)
	if err != nil {
		return nil, err
	}
	// The answer with the present epoch may have been lost: a member that has the epoch before, and no
	// partition that it may not have, goes on.
	lost := r.Epoch == m.previous && (r.Share || r.Owned != nil && len(r.Owned.Without(m.assigned)) == 0)
	if r.Epoch != m.epoch && (r.Epoch > m.epoch || !lost) {
		return nil, fmt.Errorf("%w: %d; the member is in %d", ErrFencedEpoch, r.Epoch, m.epoch)
	}
	return m, g.roomFor(m, r)
}

// knownConsumer returns the member that a request names.
func (g *group) knownConsumer(r ConsumerHeartbeat) (*consumer, error) {
	if g.consumers == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownMember, r.Member)
	}
	if r.Instance != "" {
		id, known := g.consumers.instances[r.Instance]
		switch {
		case !known:
			return nil, fmt.Errorf("%w: no member has the instance id %q", ErrUnknownMember, r.Instance)
		case id != r.Member:
			return nil, fmt.Errorf("%w: %q is not %q", ErrFencedInstance, r.Instance, r.Member)
		}
	}
	m := g.consumers.members[r.Member]
	if m == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownMember, r.Member)
	}
	return m, nil
}

// joinConsumers adds a member, or lets one join again that owns nothing any more. A static member takes
// the place of the one of the same name that is away.
func (g *group) joinConsumers(r ConsumerHeartbeat) (*consumer, error) {
	cs := g.consumers
	if cs == nil || cs.shared != r.Share {
		cs = newConsumers()
		cs.shared = r.Share
	}
	m := cs.members[r.Member]
	if static := cs.members[cs.instances[r.Instance]]; r.Instance != "" && static != nil {
		if static.epoch != PauseEpoch && static.id != r.Member {
			return nil, fmt.Errorf("%w: %q has %q", ErrUnreleasedInstance, static.id, r.Instance)
		}
		m = static
	}
	if err := g.roomFor(m, r); err != nil {
		return nil, err
	}
	if g.consumers != cs { // the members of an empty group may use any protocol
		g.consumers, g.protocol, g.protocolType = cs, "", cs.protocolType()
		clear(g.pending)
	}
	if m == nil {
		g.lastNumber++
		m = &consumer{number: g.lastNumber, assigned: assign.Partitions{}, target: assign.Partitions{}}
	} else {
		delete(cs.members, m.id)
		cs.own(m, m.assigned, nil)
		m.epoch, m.previous, m.state, m.revokeBy = 0, 0, reconciled, time.Time{}
	}
	if m.id = r.Member; m.id == "" {
		m.id = newMemberID(r.Client)
	}
	if other := cs.members[m.id]; other != nil { // it was not static before
		cs.remove(other)
	}
	cs.members[m.id] = m
	cs.touch(m)
	return m, nil
}

// roomFor refuses what is above the bounds; m is nil for a new member.
func (g *group) roomFor(m *consumer, r ConsumerHeartbeat) error {
	if r.Topics == nil && r.Pattern == nil && m != nil {
		return nil
	}
	cs, size, old := g.consumers, r.size(), 0
	if m != nil {
		old = m.size
	}
	if size > maxMemberBytes {
		return fmt.Errorf("%w: member brings %d bytes; want at most %d", ErrGroupTooLarge, size, maxMemberBytes)
	}
	total := size - old
	if cs != nil {
		if m == nil && len(cs.members) >= g.config.MembersMax {
			return fmt.Errorf("%w: it may have at most %d members", ErrGroupFull, g.config.MembersMax)
		}
		for _, other := range cs.members {
			total += other.size
		}
	}
	if total > maxGroupBytes {
		return fmt.Errorf("%w: all members bring %d bytes; want at most %d", ErrGroupTooLarge, total, maxGroupBytes)
	}
	if m == nil {
		return g.reserve(memberBytes + size)
	}
	return g.reserve(size - old)
}

// size returns the size of what a member brings in bytes.
func (r ConsumerHeartbeat) size() int {
	size := len(r.Member) + len(r.Instance) + len(r.Rack) + len(r.Client) + len(r.Assignor)
	for _, name := range r.Topics {
		size += len(name)
	}
	if r.Pattern != nil {
		size += len(*r.Pattern)
	}
	return size
}

// leaveConsumers removes a member, or lets a static one go away for a while.
func (g *group) leaveConsumers(now time.Time, r ConsumerHeartbeat) *Awaited[ConsumerResult] {
	m, err := g.knownConsumer(r)
	if err == nil && r.Epoch == PauseEpoch && m.instance == "" {
		err = fmt.Errorf("%w: only a static member can be away", ErrInvalidGroupRequest)
	}
	if err != nil {
		return settled(ConsumerResult{}, err)
	}
	cs := g.consumers
	if r.Epoch == PauseEpoch {
		cs.own(m, m.assigned, nil)
		m.epoch, m.state, m.revokeBy = PauseEpoch, reconciled, time.Time{}
		m.deadline = now.Add(g.config.ConsumerSession)
		cs.touch(m)
	} else {
		cs.remove(m)
		g.beginEpoch(now)
	}
	return g.saveConsumers(ConsumerResult{Member: m.id, Epoch: r.Epoch})
}

// remove drops a member: its partitions have no owner.
func (cs *consumers) remove(m *consumer) {
	cs.own(m, nil, nil)
	cs.read(m, nil, nil)
	delete(cs.members, m.id)
	if cs.instances[m.instance] == m.id {
		delete(cs.instances, m.instance)
	}
}
