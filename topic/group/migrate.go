package group

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// converted returns the members of a classic group as classic members of a group of the consumer protocol: that of the group when one
// of that protocol joins. Each keeps all partitions that it may still read: what it was last assigned, and what it says
// that it owns. ErrOtherProtocol if they cannot be read. The group stays as it is.
func (g *group) converted(now time.Time) (*consumers, error) {
	refused := func(why string, args ...any) error {
		return fmt.Errorf("%w: its members use that of classic groups, and cannot be taken over: %w", ErrOtherProtocol, fmt.Errorf(why, args...))
	}
	if g.protocolType != consumerProtocol {
		return nil, refused("they are %q, and no consumers", g.protocolType)
	}
	cs := newConsumers()
	claims := map[*consumer]assign.Partitions{}
	for _, old := range g.inOrder() {
		topics, owned, err := g.readSubscription(old.protocols)
		if err != nil {
			return nil, refused("member %q: %w", old.id, err)
		}
		assigned, err := g.readAssignment(old.assignment)
		if err != nil {
			return nil, refused("member %q: %w", old.id, err)
		}
		m := &consumer{
			id: old.id, instance: old.instance, client: old.client, host: old.host, number: old.number, rebalance: old.rebalance, size: old.size,
			classic: &classicMember{session: old.session, protocols: old.protocols, join: old.join},
		}
		if !old.fresh {
			m.epoch = cmp.Or(old.epoch, g.generation)
			m.previous = m.epoch
		}
		g.touchConsumer(now, m)
		cs.members[m.id] = m
		if m.instance != "" {
			cs.instances[m.instance] = m.id
		}
		cs.read(m, topics, nil)
		cs.own(m, cs.free(m, assigned), nil)
		cs.touch(m)
		claims[m] = owned
	}
	for _, m := range cs.inOrder() { // in a rebalance, a member may read what it is not assigned any more
		cs.own(m, m.assigned.And(cs.free(m, claims[m])), nil)
		m.target = m.assigned
	}
	return cs, nil
}

// downgrade makes a group whose last member of the consumer protocol is gone a classic group again, in which members join the
// next generation. Until they do, each may commit in the epoch that it has.
func (g *group) downgrade(now time.Time) {
	cs := g.consumers
	for _, m := range cs.members {
		g.members[m.id] = &groupMember{
			id: m.id, instance: m.instance, client: m.client, host: m.host, number: m.number,
			session: m.classic.session, rebalance: m.rebalance, protocols: m.classic.protocols, size: m.size,
			assignment: g.writeAssignment(m, m.assigned.And(m.revoking)), synced: true, epoch: m.epoch, deadline: m.deadline,
		}
		if m.instance != "" {
			g.instances[m.instance] = m.id
		}
	}
	g.consumers, g.state = nil, Stable
	g.rebalance(now)
}
