package group

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// classicMember is what a member of a group of the consumer protocol has in addition if it uses the classic one. It
// joins to learn its epoch, says what it owns when it joins, and asks for its assignment by SyncGroup. Heartbeats
// tell it to join again when there is something to give up or to get.
type classicMember struct {
	session   time.Duration
	protocols []Protocol
	// join is a join that waited when the group was converted.
	join *Awaited[JoinResult]
}

func (m *classicMember) record() *classicRecord {
	if m == nil {
		return nil
	}
	return &classicRecord{SessionMS: m.session.Milliseconds(), Protocols: m.protocols}
}

// mixes reports whether classic members join a group of the consumer protocol: it has members.
func (g *group) mixes() bool {
	return g.consumers != nil && !g.consumers.shared && len(g.consumers.members) > 0
}

// anyClassic reports whether some members use the classic protocol.
func (cs *consumers) anyClassic() bool {
	for _, m := range cs.members {
		if m.classic != nil {
			return true
		}
	}
	return false
}

// onlyClassic reports whether there are members, and all use the classic protocol.
func (cs *consumers) onlyClassic() bool {
	for _, m := range cs.members {
		if m.classic == nil {
			return false
		}
	}
	return len(cs.members) > 0
}

// checkClassic returns the classic member that a request names.
func (cs *consumers) checkClassic(r MemberIdentity) (*consumer, error) {
	m, err := cs.check(r)
	if err == nil && m.classic == nil {
		err = fmt.Errorf("%w: %q uses the consumer protocol", ErrUnknownMember, r.Member)
	}
	return m, err
}

// supports returns an error if a classic member with these protocols cannot be in the group with the other ones.
func (cs *consumers) supports(r JoinRequest) error {
	if r.ProtocolType != consumerProtocol {
		return fmt.Errorf("%w: type %q; the group's is %q", ErrInconsistentProtocol, r.ProtocolType, consumerProtocol)
	}
	shared := slices.ContainsFunc(r.Protocols, func(p Protocol) bool {
		for _, m := range cs.members {
			if m.classic != nil && !slices.ContainsFunc(m.classic.protocols, func(of Protocol) bool { return of.Name == p.Name }) {
				return false
			}
		}
		return true
	})
	if !shared {
		return fmt.Errorf("%w: all other members of the classic protocol share none of those offered", ErrInconsistentProtocol)
	}
	return nil
}

// joinClassic adds a classic member to a group of the consumer protocol, or brings one closer to its target.
func (g *group) joinClassic(now time.Time, r JoinRequest) (*Awaited[JoinResult], error) {
	cs := g.consumers
	if err := cs.supports(r); err != nil {
		return nil, err
	}
	topics, owned, err := g.readSubscription(r.Protocols)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInconsistentProtocol, err)
	}
	m, id, err := g.classicOf(r)
	if err == nil {
		err = g.roomFor(cs, m, r.size())
	}
	if err != nil {
		return nil, err
	}
	if id == "" {
		id = newMemberID(r.Client)
		g.pending[id] = now.Add(r.Session)
		return settled(JoinResult{Member: id, Generation: -1}, ErrMemberIDRequired), nil
	}
	delete(g.pending, id)
	if m == nil || m.id != id {
		m = g.enter(m, id)
	}
	if g.updateClassic(m, r, topics) || cs.digest != g.digest() {
		g.beginEpoch(now)
	}
	g.touchConsumer(now, m)
	if cs.onlyClassic() { // it is the static member that was the last of the consumer protocol
		g.downgrade(now)
		return g.await(now, g.members[m.id]), nil
	}
	answer := newAwaited[JoinResult]()
	g.answerJoin(now, m, owned, answer)
	return answer, nil
}

// classicOf returns the member that joins and its id; nil for a new one, and "" if that is to join again with
// an id.
func (g *group) classicOf(r JoinRequest) (m *consumer, id string, err error) {
	cs := g.consumers
	_, pending := g.pending[r.Member]
	switch {
	case r.Member == "" && r.Instance != "":
		return cs.members[cs.instances[r.Instance]], newMemberID(r.Instance), nil
	case r.Member == "" && len(cs.members)+len(g.pending) >= g.config.MembersMax:
		return nil, "", fmt.Errorf("%w: it may have at most %d members", ErrGroupFull, g.config.MembersMax)
	case r.Member == "" && r.RequireMember:
		return nil, "", nil
	case r.Member == "":
		return nil, newMemberID(r.Client), nil
	case pending && r.Instance == "":
		return nil, r.Member, nil
	}
	m, err = cs.checkClassic(MemberIdentity{Member: r.Member, Instance: r.Instance})
	return m, r.Member, err
}

// updateClassic takes over what a join tells of a member, and reports whether it subscribes to other topics than before.
func (g *group) updateClassic(m *consumer, r JoinRequest, topics []string) (resubscribed bool) {
	same := m.classic != nil && m.classic.session == r.Session && slices.EqualFunc(m.classic.protocols, r.Protocols, Protocol.equal)
	if !same {
		g.consumers.touch(m)
	}
	m.classic = &classicMember{session: r.Session, protocols: r.Protocols}
	m.assignor = ""
	none := ""
	resubscribed = g.update(m, ConsumerHeartbeat{
		Instance: r.Instance, Client: r.Client, Host: r.Host, Rebalance: r.Rebalance, Topics: topics, Pattern: &none,
	})
	m.size = r.size()
	return resubscribed
}

func (p Protocol) equal(other Protocol) bool {
	return p.Name == other.Name && bytes.Equal(p.Metadata, other.Metadata)
}

// answerJoins answers joins that waited for the next generation of a classic group.
func (g *group) answerJoins(now time.Time) {
	for _, m := range g.consumers.inOrder() {
		if m.classic != nil && m.classic.join != nil {
			_, owned, _ := g.readSubscription(m.classic.protocols) // it was read before
			g.answerJoin(now, m, owned, m.classic.join)
			m.classic.join = nil
		}
	}
}

// answerJoin brings a classic member closer to its target, and tells it its epoch. Nobody is the leader.
func (g *group) answerJoin(now time.Time, m *consumer, owned assign.Partitions, answer *Awaited[JoinResult]) {
	if g.reconcile(now, m, owned) {
		g.consumers.touch(m)
	}
	if m.state != unrevoked { // then it has its time to revoke already
		m.revokeBy = now.Add(m.rebalance)
	}
	answerStored(g, m, answer, JoinResult{
		Member: m.id, Generation: m.epoch, ProtocolType: consumerProtocol, Protocol: m.classic.protocols[0].Name,
	})
}

// syncClassic tells a classic member its partitions.
func (g *group) syncClassic(now time.Time, r SyncRequest) *Awaited[SyncResult] {
	m, err := g.classicInEpoch(now, r.MemberIdentity)
	if err != nil {
		return settled(SyncResult{}, err)
	}
	result := SyncResult{ProtocolType: consumerProtocol, Protocol: m.classic.protocols[0].Name}
	switch {
	case r.ProtocolType != "" && r.ProtocolType != result.ProtocolType:
		err = fmt.Errorf("%w: type %q; the group's is %q", ErrInconsistentProtocol, r.ProtocolType, result.ProtocolType)
	case r.Protocol != "" && r.Protocol != result.Protocol:
		err = fmt.Errorf("%w: %q; the member's is %q", ErrInconsistentProtocol, r.Protocol, result.Protocol)
	case m.epoch < g.generation && m.state != unrevoked:
		err = ErrRebalanceInProgress
	}
	if err != nil {
		return settled(SyncResult{}, err)
	}
	if m.state != unrevoked {
		m.revokeBy = time.Time{}
	}
	result.Assignment = g.writeAssignment(m, m.assigned)
	answer := newAwaited[SyncResult]()
	answerStored(g, m, answer, result)
	return answer
}

// classicInEpoch returns the classic member of a request that belongs to its epoch, and restarts its session.
func (g *group) classicInEpoch(now time.Time, r MemberIdentity) (*consumer, error) {
	m, err := g.consumers.checkClassic(r)
	if err == nil {
		err = g.consumers.checkEpoch(r)
	}
	if err != nil {
		return nil, err
	}
	g.touchConsumer(now, m)
	return m, nil
}

// beatClassic extends a classic member's session. The member is to join again when the group has another epoch, when it has
// partitions to give up, and when all partitions that it waits for are free: an eager member stops for each join.
func (g *group) beatClassic(now time.Time, r MemberIdentity) error {
	m, err := g.classicInEpoch(now, r)
	if err != nil {
		return err
	}
	if m.epoch == g.generation && (m.state == reconciled || m.state == unreleased && !g.consumers.released(m)) {
		return nil
	}
	if m.revokeBy.IsZero() {
		m.revokeBy = now.Add(m.rebalance)
	}
	return ErrRebalanceInProgress
}

// released reports whether all partitions that a member waits for are free.
func (cs *consumers) released(m *consumer) bool {
	missing := m.target.Without(m.assigned)
	return cs.free(m, missing).Count() == missing.Count()
}

// leaveClassic removes a classic member at its own request, or an administrator's, which names it by its
// instance id.
func (g *group) leaveClassic(now time.Time, r MemberIdentity) error {
	if r.Member == "" && r.Instance != "" {
		r.Member = g.consumers.instances[r.Instance]
	}
	m, err := g.consumers.checkClassic(r)
	if err != nil {
		return err
	}
	g.consumers.remove(m)
	g.continueWithout(now, func(error) {})
	return nil
}

// commits restarts the session of a classic member that commits: those of the consumer protocol live by their heartbeats.
func (g *group) commits(now time.Time, member string) {
	if m := g.consumers.members[member]; m != nil && m.classic != nil {
		g.touchConsumer(now, m)
	}
}
