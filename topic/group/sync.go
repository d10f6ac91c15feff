package group

import (
	"fmt"
	"time"
)

// syncMember gives a member its assignment of the present generation, when the
// leader has made it and it is stored.
func (g *group) syncMember(now time.Time, r SyncRequest) *Awaited[SyncResult] {
	if g.mixes() {
		return g.syncClassic(now, r)
	}
	m, err := g.checkGeneration(r.MemberIdentity)
	switch {
	case err != nil:
	case r.ProtocolType != "" && r.ProtocolType != g.protocolType:
		err = fmt.Errorf("%w: type %q; the group's is %q", ErrInconsistentProtocol, r.ProtocolType, g.protocolType)
	case r.Protocol != "" && r.Protocol != g.protocol:
		err = fmt.Errorf("%w: %q; the group's is %q", ErrInconsistentProtocol, r.Protocol, g.protocol)
	case g.state == PreparingRebalance:
		err = ErrRebalanceInProgress
	case g.state == Stable:
		m.synced = true
		m.touch(now)
		return settled(g.syncResult(m), nil)
	case g.state != CompletingRebalance:
		err = ErrUnknownMember
	case m.id == g.leader && g.savingGeneration != g.generation:
		err = g.takeIn(r.Assignments)
	}
	if err != nil {
		return settled(SyncResult{}, err)
	}
	failAwaited(&m.sync, fmt.Errorf("%w: the member has asked again", ErrRebalanceInProgress))
	answer := newAwaited[SyncResult]()
	m.sync, m.synced = answer, true
	if m.id == g.leader && g.savingGeneration != g.generation {
		g.assign(r.Assignments)
	}
	return answer
}

// takeIn checks the assignments of the leader, and counts them.
func (g *group) takeIn(assignments map[string][]byte) error {
	for id, assignment := range assignments {
		if len(assignment) > maxMemberBytes {
			return fmt.Errorf("%w: assignment of %q has %d bytes; want at most %d", ErrGroupTooLarge, id, len(assignment), maxMemberBytes)
		}
	}
	return g.reserve(assignedBytes(assignments))
}

func assignedBytes(assignments map[string][]byte) (total int) {
	for id, assignment := range assignments {
		total += len(id) + len(assignment)
	}
	return total
}

func (g *group) syncResult(m *groupMember) SyncResult {
	return SyncResult{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// assign stores the leader's assignments, and then answers the members.
func (g *group) assign(assignments map[string][]byte) {
	generation := g.generation
	g.savingGeneration = generation
	g.assigning += assignedBytes(assignments)
	g.save(g.record(assignments), func(now time.Time, err error) {
		g.assigning -= assignedBytes(assignments)
		if g.state != CompletingRebalance || g.savingGeneration != generation {
			return
		}
		g.savingGeneration = 0
		if err != nil {
			for _, m := range g.members {
				m.touchIfWaiting(now)
				failAwaited(&m.sync, err)
			}
			g.rebalance(now)
			return
		}
		g.state = Stable
		for _, m := range g.members {
			m.assignment = assignments[m.id]
			if m.sync != nil {
				m.touch(now)
				m.sync.settle(g.syncResult(m), nil)
				m.sync = nil
			}
		}
	})
}

// heartbeat extends a member's session, and reports a rebalance to it.
func (g *group) heartbeat(now time.Time, r MemberIdentity) error {
	if g.mixes() {
		return g.beatClassic(now, r)
	}
	m, err := g.checkGeneration(r)
	if err != nil {
		return err
	}
	m.touch(now)
	if g.state == PreparingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// leave removes a member at its own request, or an administrator's, which names it by its
// instance id.
func (g *group) leave(now time.Time, r MemberIdentity) error {
	if _, pending := g.pending[r.Member]; pending && r.Instance == "" {
		delete(g.pending, r.Member)
		g.tryComplete(now)
		return nil
	}
	if g.mixes() {
		return g.leaveClassic(now, r)
	}
	if r.Member == "" && r.Instance != "" {
		r.Member = g.instances[r.Instance]
	}
	m, err := g.check(r)
	if err != nil {
		return err
	}
	g.remove(m, fmt.Errorf("%w: it has left", ErrUnknownMember))
	g.rebalance(now)
	return nil
}
