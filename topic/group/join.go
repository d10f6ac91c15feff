package group

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// join adds a member to the group, or to its next generation.
func (g *group) join(now time.Time, r JoinRequest) *Awaited[JoinResult] {
	answer, err := g.tryJoin(now, r)
	if err != nil {
		return settled(JoinResult{Member: r.Member, Generation: -1}, err)
	}
	return answer
}

func (g *group) tryJoin(now time.Time, r JoinRequest) (*Awaited[JoinResult], error) {
	if err := r.validate(g.config); err != nil {
		return nil, err
	}
	if g.mixes() {
		return g.joinClassic(now, r)
	}
	if err := g.hasRoom(r); err != nil {
		return nil, err
	}
	if err := g.supports(r.ProtocolType, r.Protocols); err != nil {
		return nil, err
	}
	if r.Member == "" {
		return g.joinNew(now, r)
	}
	if _, pending := g.pending[r.Member]; pending && r.Instance == "" {
		delete(g.pending, r.Member)
		return g.add(now, r.Member, r), nil
	}
	m, err := g.check(MemberIdentity{Member: r.Member, Instance: r.Instance})
	if err != nil {
		return nil, err
	}
	return g.joinAgain(now, m, r), nil
}

// hasRoom refuses new members above the bounds; known members may return.
func (g *group) hasRoom(r JoinRequest) error {
	old := g.members[cmp.Or(g.instances[r.Instance], r.Member)]
	if r.Member == "" && old == nil && len(g.members)+len(g.pending) >= g.config.MembersMax {
		return fmt.Errorf("%w: it may have at most %d members", ErrGroupFull, g.config.MembersMax)
	}
	size, more := r.size(), memberBytes+r.size()
	for _, m := range g.members {
		if m != old {
			size += m.size
		}
	}
	if old != nil {
		more = r.size() - old.size
	}
	if size > maxGroupBytes {
		return fmt.Errorf("%w: all members bring %d bytes; want at most %d", ErrGroupTooLarge, size, maxGroupBytes)
	}
	return g.reserve(more)
}

// joinNew is the join of a member without an id.
func (g *group) joinNew(now time.Time, r JoinRequest) (*Awaited[JoinResult], error) {
	if r.Instance != "" {
		id := newMemberID(r.Instance)
		if old := g.members[g.instances[r.Instance]]; old != nil {
			return g.replace(now, old, id, r), nil
		}
		return g.add(now, id, r), nil
	}
	id := newMemberID(r.Client)
	if !r.RequireMember {
		return g.add(now, id, r), nil
	}
	g.pending[id] = now.Add(r.Session)
	return settled(JoinResult{Member: id, Generation: -1}, ErrMemberIDRequired), nil
}

// add adds a member that is not in the group.
func (g *group) add(now time.Time, id string, r JoinRequest) *Awaited[JoinResult] {
	if len(g.members) == 0 {
		g.protocolType, g.consumers = r.ProtocolType, nil
	}
	g.lastNumber++
	m := &groupMember{
		id: id, instance: r.Instance, number: g.lastNumber, fresh: true, deadline: now.Add(newMemberTimeout),
	}
	m.update(r)
	g.members[id] = m
	if r.Instance != "" {
		g.instances[r.Instance] = id
	}
	g.added = true
	return g.await(now, m)
}

// update sets a member's fields from a join request.
func (m *groupMember) update(r JoinRequest) {
	m.client, m.host = r.Client, r.Host
	m.session, m.rebalance = r.Session, min(r.Rebalance, maxMemberTimeout)
	m.protocols, m.size = r.Protocols, r.size()
}

// await makes a member wait for the next generation.
func (g *group) await(now time.Time, m *groupMember) *Awaited[JoinResult] {
	failAwaited(&m.join, fmt.Errorf("%w: the member has joined again", ErrRebalanceInProgress))
	answer := newAwaited[JoinResult]()
	m.join = answer
	g.rebalance(now)
	return answer
}

// joinAgain is the join of a member that is in the group. The present generation stays
// if the member brings nothing new and is not the leader, which joins again to assign
// again.
func (g *group) joinAgain(now time.Time, m *groupMember, r JoinRequest) *Awaited[JoinResult] {
	same := slices.EqualFunc(m.protocols, r.Protocols, Protocol.equal)
	stands := g.state == CompletingRebalance || g.state == Stable && m.id != g.leader
	if same && stands {
		m.absent = false
		m.touch(now)
		return settled(g.joinResult(m), nil)
	}
	m.update(r)
	return g.await(now, m)
}

// replace gives a static member that came back without its id a new one, and fences the
// old one. If nothing else has changed in a stable group, the generation stays, and the
// member gets its old assignment.
func (g *group) replace(now time.Time, old *groupMember, id string, r JoinRequest) *Awaited[JoinResult] {
	fenced := fmt.Errorf("%w: the instance has joined again", ErrFencedInstance)
	failAwaited(&old.join, fenced)
	failAwaited(&old.sync, fenced)
	oldID, oldMetadata := old.id, old.metadata(g.protocol)
	delete(g.members, old.id)
	old.id, g.members[id], g.instances[r.Instance] = id, old, id
	if g.leader == oldID {
		g.leader = id
	}
	old.update(r)
	stands := g.state == Stable && g.chooseProtocol() == g.protocol &&
		(g.protocolType != consumerProtocol || sameSubscription(oldMetadata, old.metadata(g.protocol)))
	if !stands {
		return g.await(now, old)
	}
	old.absent = false
	old.touch(now)
	result := g.joinResult(old)
	if g.leader == id {
		result.SkipAssignment = r.SkipsAssignment
		if !r.SkipsAssignment {
			// A member that took itself for the leader would assign.
			result.Leader, result.Members = oldID, nil
		}
	}
	answer := newAwaited[JoinResult]()
	g.save(g.record(nil), func(_ time.Time, err error) {
		if err != nil {
			result = JoinResult{Member: "", Generation: -1}
		}
		answer.settle(result, err)
	})
	return answer
}
