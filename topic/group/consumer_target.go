package group

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// update takes over what a request tells of a member, and reports whether it subscribes to other topics
// than before.
func (g *group) update(m *consumer, r ConsumerHeartbeat) (resubscribed bool) {
	cs, before := g.consumers, *m
	m.client, m.host = r.Client, r.Host
	if r.Instance != "" {
		delete(cs.instances, m.instance)
		m.instance = r.Instance
		cs.instances[m.instance] = m.id
	}
	if r.Rack != "" {
		m.rack = r.Rack
	}
	if r.Rebalance > 0 {
		m.rebalance = min(r.Rebalance, maxMemberTimeout)
	}
	if r.Assignor != "" {
		m.assignor = r.Assignor
	}
	if r.Pattern != nil {
		m.pattern, _ = compilePattern(*r.Pattern) // it is valid
	}
	topics, matched := m.topics, g.match(m, r.MayRead)
	if r.Topics != nil {
		topics = slices.Compact(slices.Sorted(slices.Values(r.Topics)))
	}
	if r.Topics != nil || r.Pattern != nil {
		m.size = r.size()
	}
	resubscribed = before.epoch == 0 && before.rebalance == 0 || !slices.Equal(topics, m.topics) || !slices.Equal(matched, m.matched)
	cs.read(m, topics, matched)
	changed := resubscribed || m.client != before.client || m.host != before.host || m.instance != before.instance ||
		m.rack != before.rack || m.rebalance != before.rebalance || m.assignor != before.assignor || text(m.pattern) != text(before.pattern)
	if changed {
		cs.touch(m)
	}
	return resubscribed
}

// match returns the topics that a member's pattern matches now and that it may read, by name.
func (g *group) match(m *consumer, mayRead func(string) bool) (matched []string) {
	if m.pattern == nil {
		return nil
	}
	for _, name := range g.topics.Names() {
		if matchesWhole(m.pattern, name) && (mayRead == nil || mayRead(name)) {
			matched = append(matched, name)
		}
	}
	slices.Sort(matched)
	return matched
}

// text returns the text of a pattern, "" for none.
func text(pattern *regexp.Regexp) string {
	if pattern == nil {
		return ""
	}
	return pattern.String()
}

// reads returns the names of all topics that a member reads, each once.
func (m *consumer) reads() []string {
	all := slices.Concat(m.topics, m.matched)
	slices.Sort(all)
	return slices.Compact(all)
}

// read sets the topics that a member reads.
func (cs *consumers) read(m *consumer, topics, matched []string) {
	for _, name := range m.reads() {
		if cs.subscribed[name]--; cs.subscribed[name] == 0 {
			delete(cs.subscribed, name)
		}
	}
	m.topics, m.matched = topics, matched
	for _, name := range m.reads() {
		cs.subscribed[name]++
	}
}

// digest returns a number that differs if other topics are to be assigned, or more partitions.
func (g *group) digest() (sum uint64) {
	for name := range g.consumers.subscribed {
		of, found := g.topics.Lookup(name)
		if !found {
			continue
		}
		hash := fnv.New64a()
		_, _ = hash.Write(of.ID[:]) // does not fail
		_, _ = hash.Write(binary.BigEndian.AppendUint32(nil, uint32(of.Partitions)))
		sum += hash.Sum64()
	}
	return sum
}

// beginEpoch computes a new target. Members reach it by their next heartbeats.
func (g *group) beginEpoch(now time.Time) {
	cs := g.consumers
	if g.generation >= math.MaxInt32-g.skip {
		g.generation = 0
	}
	g.generation += 1 + g.skip
	g.skip, g.begunIn = 0, g.epoch
	cs.version++
	if len(cs.members) == 0 {
		g.state, g.emptySince = Empty, now
		return
	}
	g.state = Stable
	order := cs.inOrder()
	members := make([]assign.Member, len(order))
	found := make(map[string]assign.Topic, len(cs.subscribed))
	for name := range cs.subscribed {
		if of, there := g.topics.Lookup(name); there {
			found[name] = of
		}
	}
	for i, m := range order {
		members[i].Had = m.target
		for _, name := range m.reads() {
			if of, there := found[name]; there {
				members[i].Topics = append(members[i].Topics, of)
			}
		}
	}
	cs.assignor, cs.digest = cs.preferred(), g.digest()
	policy := assign.Policies[cs.assignor]
	if cs.shared {
		cs.assignor, policy = assign.SimpleName, assign.Simple
	}
	for i, share := range policy(members) {
		order[i].target = share
	}
}

// preferred returns the policy that most members prefer; of several the first by name.
func (cs *consumers) preferred() string {
	votes := map[string]int{}
	for _, m := range cs.members {
		if m.assignor != "" {
			votes[m.assignor]++
		}
	}
	best := assign.Default
	for _, name := range Sorted(votes) {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}
