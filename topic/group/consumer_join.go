package group

import (
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// consumerOf returns the member that sent a heartbeat. A new one is added.
func (g *group) consumerOf(now time.Time, r ConsumerHeartbeat) (*consumer, error) {
	if r.Epoch == JoinEpoch {
		return g.joinConsumers(now, r)
	}
	m, err := g.consumers.checkModern(r)
	if err != nil {
		return nil, err
	}
	// The answer with the present epoch may have been lost: a member that has the epoch before, and no
	// partition that it may not have, goes on.
	lost := r.Epoch == m.previous && (r.Share || r.Owned != nil && len(r.Owned.Without(m.assigned)) == 0)
	if r.Epoch != m.epoch && (r.Epoch > m.epoch || !lost) {
		return nil, fmt.Errorf("%w: %d; the member is in %d", ErrFencedEpoch, r.Epoch, m.epoch)
	}
	if r.Topics == nil && r.Pattern == nil {
		return m, nil
	}
	return m, g.roomFor(g.consumers, m, r.size())
}

// check returns the member that a request names.
func (cs *consumers) check(r MemberIdentity) (*consumer, error) {
	if cs == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownMember, r.Member)
	}
	if r.Instance != "" {
		id, known := cs.instances[r.Instance]
		switch {
		case !known:
			return nil, fmt.Errorf("%w: no member has the instance id %q", ErrUnknownMember, r.Instance)
		case id != r.Member:
			return nil, fmt.Errorf("%w: %q is not %q", ErrFencedInstance, r.Instance, r.Member)
		}
	}
	m := cs.members[r.Member]
	if m == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownMember, r.Member)
	}
	return m, nil
}

// checkModern returns the member of the consumer protocol that sent a heartbeat.
func (cs *consumers) checkModern(r ConsumerHeartbeat) (*consumer, error) {
	m, err := cs.check(MemberIdentity{Member: r.Member, Instance: r.Instance})
	if err == nil && m.classic != nil {
		err = fmt.Errorf("%w: %q uses the classic protocol", ErrUnknownMember, r.Member)
	}
	return m, err
}

// joinConsumers adds a member, or lets one join again that owns nothing any more. A static member takes
// the place of the one of the same name that is away, or uses the classic protocol.
func (g *group) joinConsumers(now time.Time, r ConsumerHeartbeat) (*consumer, error) {
	cs, err := g.consumersFor(now, r.Share)
	if err != nil {
		return nil, err
	}
	m := cs.members[r.Member]
	if static := cs.members[cs.instances[r.Instance]]; r.Instance != "" && static != nil {
		if static.epoch != PauseEpoch && static.id != r.Member && static.classic == nil {
			return nil, fmt.Errorf("%w: %q has %q", ErrUnreleasedInstance, static.id, r.Instance)
		}
		m = static
	}
	if err := g.roomFor(cs, m, r.size()); err != nil {
		return nil, err
	}
	g.use(cs)
	id := r.Member
	if id == "" {
		id = newMemberID(r.Client)
	}
	m = g.enter(m, id)
	m.classic = nil
	return m, nil
}

// consumersFor returns the members that one of the consumer protocol, or of a share group, joins: those of an empty group may
// use any protocol, and those of a classic one are converted.
func (g *group) consumersFor(now time.Time, shared bool) (*consumers, error) {
	switch {
	case g.consumers != nil && g.consumers.shared == shared:
		return g.consumers, nil
	case g.state != Empty:
		return g.converted(now)
	}
	cs := newConsumers()
	cs.shared = shared
	return cs, nil
}

// use makes cs the members of the group, in place of others.
func (g *group) use(cs *consumers) {
	if g.consumers == cs {
		return
	}
	for _, m := range g.members {
		failAwaited(&m.sync, fmt.Errorf("%w: the group uses the consumer protocol now", ErrRebalanceInProgress))
	}
	clear(g.members)
	clear(g.instances)
	if cs.shared { // others take in classic members
		clear(g.pending)
	}
	g.consumers, g.protocol, g.leader, g.protocolType = cs, "", "", cs.protocolType()
	g.rebalanceAt, g.syncAt, g.savingGeneration, g.delaying = time.Time{}, time.Time{}, 0, false
}

// enter adds a member, or lets m join under an id without anything that it had yet to revoke.
func (g *group) enter(m *consumer, id string) *consumer {
	cs := g.consumers
	if m == nil {
		g.lastNumber++
		m = &consumer{number: g.lastNumber, assigned: assign.Partitions{}, target: assign.Partitions{}}
	} else {
		delete(cs.members, m.id)
		cs.own(m, m.assigned, nil)
		m.epoch, m.previous, m.state, m.revokeBy = 0, 0, reconciled, time.Time{}
	}
	m.id = id
	if other := cs.members[m.id]; other != nil { // it was not static before
		cs.remove(other)
	}
	cs.members[m.id] = m
	cs.touch(m)
	return m
}

// roomFor refuses a member of that size if it is above the bounds; m is nil for a new one.
func (g *group) roomFor(cs *consumers, m *consumer, size int) error {
	old := 0
	if m != nil {
		old = m.size
	}
	if size > maxMemberBytes {
		return fmt.Errorf("%w: member brings %d bytes; want at most %d", ErrGroupTooLarge, size, maxMemberBytes)
	}
	total := size - old
	if m == nil && len(cs.members) >= g.config.MembersMax {
		return fmt.Errorf("%w: it may have at most %d members", ErrGroupFull, g.config.MembersMax)
	}
	for _, other := range cs.members {
		total += other.size
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
	cs := g.consumers
	m, err := cs.checkModern(r)
	if err == nil && r.Epoch == PauseEpoch && m.instance == "" {
		err = fmt.Errorf("%w: only a static member can be away", ErrInvalidGroupRequest)
	}
	if err != nil {
		return settled(ConsumerResult{}, err)
	}
	answer := newAwaited[ConsumerResult]()
	stored := func(err error) { answer.settle(ConsumerResult{Member: m.id, Epoch: r.Epoch}, err) }
	if r.Epoch == PauseEpoch {
		cs.own(m, m.assigned, nil)
		m.epoch, m.state, m.revokeBy = PauseEpoch, reconciled, time.Time{}
		g.touchConsumer(now, m)
		cs.touch(m)
		g.saveConsumers(cs, stored)
	} else {
		cs.remove(m)
		g.continueWithout(now, stored)
	}
	return answer
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
