package group

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"
)

// rebalance begins a rebalance, or continues the present one.
func (g *group) rebalance(now time.Time) {
	switch g.state {
	case PreparingRebalance, Dead:
		g.tryComplete(now)
		return
	case CompletingRebalance:
		for _, m := range g.members {
			m.touchIfWaiting(now)
			failAwaited(&m.sync, ErrRebalanceInProgress)
		}
	}
	first := g.state == Empty
	g.state, g.syncAt, g.savingGeneration = PreparingRebalance, time.Time{}, 0
	g.rebalanceAt = now.Add(g.rebalanceTime())
	if first && g.config.InitialDelay > 0 {
		g.delaying, g.added = true, false
		g.delayUntil = g.rebalanceAt
		g.rebalanceAt = earliest(now.Add(g.config.InitialDelay), g.delayUntil)
	}
	g.tryComplete(now)
}

func (m *groupMember) touchIfWaiting(now time.Time) {
	if m.sync != nil {
		m.touch(now)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// rebalanceTime returns how long members have to join: the longest rebalance timeout of
// a member.
func (g *group) rebalanceTime() time.Duration {
	var longest time.Duration
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// tryComplete ends the joining when no member is missing.
func (g *group) tryComplete(now time.Time) {
	if g.state != PreparingRebalance || g.delaying || len(g.pending) > 0 {
		return
	}
	for _, m := range g.members {
		if m.join == nil {
			return
		}
	}
	g.completeJoin(now)
}

// rebalanceTimeout ends the joining when its time has run out. The initial delay is
// repeated while members arrive.
func (g *group) rebalanceTimeout(now time.Time) {
	if g.delaying && g.added && now.Before(g.delayUntil) {
		g.added = false
		g.rebalanceAt = earliest(now.Add(g.config.InitialDelay), g.delayUntil)
		return
	}
	if g.delaying {
		g.delaying = false
		g.rebalanceAt = now.Add(g.rebalanceTime())
		if len(g.pending) > 0 {
			return
		}
	}
	g.completeJoin(now)
}

// completeJoin begins the next generation with the members that have joined. Static
// members stay in it until their session ends, even if they have not joined.
func (g *group) completeJoin(now time.Time) {
	for _, m := range g.inOrder() {
		if m.join == nil && m.instance == "" {
			g.remove(m, fmt.Errorf("%w: it did not join in time", ErrUnknownMember))
		}
	}
	if len(g.members) > 0 && !g.electLeader() {
		g.rebalanceAt = now.Add(g.rebalanceTime())
		return
	}
	if g.unstored >= unstoredGenerations {
		g.rebalanceAt = now.Add(max(g.rebalanceTime(), time.Second))
		g.spent()
		return
	}
	g.rebalanceAt = time.Time{}
	if g.generation >= math.MaxInt32-g.skip {
		g.generation = 0
	}
	g.generation += 1 + g.skip
	g.skip, g.begunIn = 0, g.epoch
	g.unstored++
	if len(g.members) == 0 {
		g.becomeEmpty(now)
		return
	}
	g.state = CompletingRebalance
	g.protocol = g.chooseProtocol()
	g.syncAt = now.Add(g.rebalanceTime())
	for _, m := range g.members {
		m.synced, m.absent, m.epoch = false, m.join == nil, 0
	}
	for _, m := range g.members {
		if m.join != nil {
			m.assignment = nil // what it still reads, it has said when it joined
			m.fresh = false
			m.touch(now)
			m.join.settle(g.joinResult(m), nil)
			m.join = nil
		}
	}
}

// becomeEmpty begins a generation without members.
func (g *group) becomeEmpty(now time.Time) {
	g.state, g.protocol, g.leader, g.emptySince = Empty, "", "", now
	g.save(g.record(nil), func(time.Time, error) {})
}

// electLeader keeps the leader if it has joined, or elects the oldest member that has;
// false if none has.
func (g *group) electLeader() bool {
	if leader := g.members[g.leader]; leader != nil && leader.join != nil {
		return true
	}
	for _, m := range g.inOrder() {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// joinResult returns a member's answer for the present generation.
func (g *group) joinResult(m *groupMember) JoinResult {
	result := JoinResult{
		Member: m.id, Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader,
	}
	if m.id == g.leader {
		for _, other := range g.inOrder() {
			result.Members = append(result.Members, JoinedMember{other.id, other.instance, other.metadata(g.protocol)})
		}
	}
	return result
}

// metadata returns a member's metadata for a protocol.
func (m *groupMember) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *groupMember) offers(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == protocol })
}

// sharedByAll reports whether every member offers the protocol.
func (g *group) sharedByAll(protocol string) bool {
	for _, m := range g.members {
		if !m.offers(protocol) {
			return false
		}
	}
	return true
}

// supports returns an error if a member with these protocols cannot be in the group.
func (g *group) supports(protocolType string, protocols []Protocol) error {
	if g.isShare() && len(g.consumers.members) > 0 {
		return fmt.Errorf("%w: it is a share group", ErrInconsistentProtocol)
	}
	if len(g.members) == 0 {
		return nil
	}
	if protocolType != g.protocolType {
		return fmt.Errorf("%w: type %q; the group's is %q", ErrInconsistentProtocol, protocolType, g.protocolType)
	}
	for _, p := range protocols {
		if g.sharedByAll(p.Name) {
			return nil
		}
	}
	return fmt.Errorf("%w: all other members share none of those offered", ErrInconsistentProtocol)
}

// chooseProtocol lets every member vote for its preferred protocol of those that all
// share; in a tie, the protocol of the oldest member wins.
func (g *group) chooseProtocol() string {
	shared := map[string]bool{}
	var candidates []string
	votes := map[string]int{}
	for _, m := range g.inOrder() {
		for _, p := range m.protocols {
			if _, known := shared[p.Name]; !known {
				shared[p.Name] = g.sharedByAll(p.Name)
			}
			if shared[p.Name] {
				candidates = append(candidates, p.Name)
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range candidates {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// remove drops a member; its waiting requests get the error.
func (g *group) remove(m *groupMember, why error) {
	failAwaited(&m.join, why)
	failAwaited(&m.sync, why)
	delete(g.members, m.id)
	if g.instances[m.instance] == m.id {
		delete(g.instances, m.instance)
	}
}

// end answers all waiting requests, when the broker stops or another broker has taken
// over the group.
func (g *group) end(why error) {
	for _, m := range g.members {
		failAwaited(&m.join, why)
		failAwaited(&m.sync, why)
	}
}

// consumerProtocol is the type of groups whose metadata list the topics that the members
// read.
const consumerProtocol = "consumer"

// subscribed returns the topics that members read; known is false if that cannot be
// determined, because members are not consumers or use another encoding.
func (g *group) subscribed() (topics map[string]bool, known bool) {
	topics = map[string]bool{}
	if g.consumers != nil {
		for name := range g.consumers.subscribed {
			topics[name] = true
		}
		return topics, true
	}
	if len(g.members) > 0 && g.protocolType != consumerProtocol {
		return nil, false
	}
	for _, m := range g.members {
		for _, p := range m.protocols {
			names, ok := subscription(p.Metadata)
			if !ok {
				return nil, false
			}
			for _, name := range names {
				topics[name] = true
			}
		}
	}
	return topics, true
}

// sameSubscription reports whether two metadata subscribe to the same topics; other
// metadata than a consumer's must be equal.
func sameSubscription(a, b []byte) bool {
	x, xOK := subscription(a)
	y, yOK := subscription(b)
	if !xOK || !yOK {
		return bytes.Equal(a, b)
	}
	x, y = slices.Clone(x), slices.Clone(y)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
