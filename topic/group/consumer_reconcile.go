package group

import (
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// reconcile brings a member closer to its target, if that is possible, and reports whether it did. Owned are the
// partitions that the member says it owns; nil if it does not say.
func (g *group) reconcile(now time.Time, m *consumer, owned assign.Partitions) bool {
	if g.consumers.shared {
		return g.share(m)
	}
	switch m.state {
	case reconciled:
		if m.epoch == g.generation {
			return false
		}
		return g.advance(now, m, m.epoch, owned)
	case unrevoked:
		if owned == nil || len(m.revoking.Both(owned)) > 0 {
			return false
		}
		// The higher epoch fences commits of what was revoked.
		return g.advance(now, m, m.epoch+1, owned)
	default:
		return g.advance(now, m, m.epoch, owned)
	}
}

// advance computes a member's next assignment. While partitions have to be revoked, the member stays in an
// epoch; then it reaches that of the target, with those partitions that no other member has.
func (g *group) advance(now time.Time, m *consumer, epoch int32, owned assign.Partitions) bool {
	cs := g.consumers
	kept := m.assigned.Both(m.target)
	lost := m.assigned.Without(m.target)
	if len(lost) > 0 && (owned == nil || len(lost.Both(owned)) > 0) {
		cs.own(m, kept, lost)
		m.setEpoch(epoch)
		m.state, m.revokeBy = unrevoked, now.Add(m.rebalance)
		return true
	}
	missing := m.target.Without(kept)
	free := cs.free(m, missing)
	state := reconciled
	if free.Count() < missing.Count() {
		state = unreleased
	}
	changed := state != m.state || m.epoch != g.generation || len(free) > 0 || len(lost) > 0 || len(m.revoking) > 0
	if changed {
		cs.own(m, kept.And(free), nil)
		m.setEpoch(g.generation)
		m.state, m.revokeBy = state, time.Time{}
	}
	return changed
}

func (m *consumer) setEpoch(epoch int32) {
	if epoch != m.epoch {
		m.previous, m.epoch = m.epoch, epoch
	}
}

// free returns those of the partitions that no other member owns.
func (cs *consumers) free(m *consumer, of assign.Partitions) assign.Partitions {
	owned := assign.Partitions{}
	for topic, numbers := range of {
		for _, number := range numbers {
			if owner := cs.owners[partition{topic, number}]; owner != nil && owner != m {
				owned[topic] = append(owned[topic], number)
			}
		}
	}
	return of.Without(owned)
}

// own sets what a member is assigned, and what of it it has yet to revoke.
func (cs *consumers) own(m *consumer, assigned, revoking assign.Partitions) {
	if cs.shared {
		m.assigned = assigned
		return
	}
	for _, part := range []assign.Partitions{m.assigned, m.revoking} {
		for topic, numbers := range part {
			for _, number := range numbers {
				delete(cs.owners, partition{topic, number})
			}
		}
	}
	m.assigned, m.revoking = assigned, revoking
	for _, part := range []assign.Partitions{assigned, revoking} {
		for topic, numbers := range part {
			for _, number := range numbers {
				cs.owners[partition{topic, number}] = m
			}
		}
	}
}
