package group

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// Epochs of a ConsumerHeartbeat that are not those of a member.
const (
	// JoinEpoch joins the group, or joins it again without any partition.
	JoinEpoch = 0
	// LeaveEpoch leaves the group.
	LeaveEpoch = -1
	// PauseEpoch leaves a static member's partitions to it until it joins again, at most
	// for its session.
	PauseEpoch = -2
)

// Topics is what groups know of topics.
type Topics interface {
	// Lookup returns the topic of that name.
	Lookup(name string) (of assign.Topic, found bool)
	// Names returns the names of all topics, in any order.
	Names() []string
}

// reconciliation is how far a member has come on the way from its assignment to its target:
//
//	         new target, nothing to revoke         some are still another's
//	Stable ────────────────────────────▶ advance ──────────────────────────▶ Unreleased
//	   │                                     ▲ │ all are its own                  │
//	   │ some are to be revoked              │ └─────────▶ Stable                 │
//	   └────────▶ Unrevoked ─────────────────┘                                    │
//	                        it owns them no more   ◀── each heartbeat tries again ┘
type reconciliation int

const (
	reconciled reconciliation = iota
	unrevoked
	unreleased
)

// consumers are the members of a group that use the consumer protocol (KIP-848). The server divides the
// partitions among them: the group's generation is the epoch of the present target, and each heartbeat
// brings one member closer to its part of it. Members that keep their partitions go on reading.
type consumers struct {
	// shared reports whether it is a share group: see shared.go.
	shared    bool
	members   map[string]*consumer
	instances map[string]string // instance id to member id
	// owners has the owner of each partition that a member is assigned, or has not yet revoked. No
	// partition is assigned to another before.
	owners map[partition]*consumer
	// subscribed counts the members that read each topic.
	subscribed map[string]int
	// assignor is the policy of the present target, and digest that of the topics it was made from.
	assignor string
	digest   uint64
	// version counts changes; stored is the last version that is durable.
	version, stored uint64
}

// partition names a partition.
type partition struct {
	topic  topic.ID
	number int32
}

// consumer is a member of the consumer protocol.
type consumer struct {
	id, instance, rack, client, host string
	number                           uint64 // order in which members joined
	rebalance                        time.Duration
	assignor                         string // that it prefers; empty: none
	topics                           []string
	pattern                          *regexp.Regexp // of further topics; nil: none
	matched                          []string       // those topics
	size                             int            // of what it brings, in bytes

	// epoch is the epoch of the target that it has reached, previous the epoch before; PauseEpoch if it
	// is away.
	epoch, previous int32
	state           reconciliation
	// classic is set for a member that uses the classic protocol.
	classic *classicMember
	// assigned are the partitions that it may read; those in revoking it must give up first.
	assigned, revoking, target assign.Partitions
	// deadline is the end of its session; revokeBy when it must have revoked, or zero. A classic member must
	// have joined again, or asked for its assignment, by then too.
	deadline, revokeBy time.Time
	version            uint64 // of its last change
}

func newConsumers() *consumers {
	return &consumers{
		members: map[string]*consumer{}, instances: map[string]string{}, owners: map[partition]*consumer{},
		subscribed: map[string]int{}, assignor: assign.Default,
	}
}

// inOrder returns the members in the order in which policies see them: static ones first, by their names, so
// that a static member that returns changes nothing; then the others in the order in which they joined.
func (cs *consumers) inOrder() []*consumer {
	return slices.SortedFunc(maps.Values(cs.members), func(a, b *consumer) int {
		if (a.instance == "") != (b.instance == "") {
			return cmp.Compare(b.instance, a.instance) // the one that has a name
		}
		return cmp.Or(cmp.Compare(a.instance, b.instance), cmp.Compare(a.number, b.number))
	})
}

// consume handles a heartbeat of the consumer protocol. The answer comes when all that it tells is durable.
func (g *group) consume(now time.Time, r ConsumerHeartbeat) *Awaited[ConsumerResult] {
	classic := g.state != Empty && g.consumers == nil
	if classic && r.Share || g.state != Empty && !classic && g.consumers.shared != r.Share {
		return settled(ConsumerResult{}, fmt.Errorf("%w: its members use that of %s groups", ErrOtherProtocol, g.kind()))
	}
	if r.Epoch < JoinEpoch {
		return g.leaveConsumers(now, r)
	}
	m, err := g.consumerOf(now, r)
	if err != nil {
		return settled(ConsumerResult{}, err)
	}
	cs, before := g.consumers, m.assigned
	g.touchConsumer(now, m)
	if g.update(m, r) || cs.digest != g.digest() {
		g.beginEpoch(now)
	}
	if g.reconcile(now, m, r.Owned) {
		cs.touch(m)
	}
	if classic { // it was, until this member joined
		g.answerJoins(now)
	}
	result := ConsumerResult{Member: m.id, Epoch: m.epoch, Heartbeat: g.config.ConsumerHeartbeat}
	if r.full() || !m.assigned.Equal(before) {
		result.Assigned = m.assigned
	}
	answer := newAwaited[ConsumerResult]()
	answerStored(g, m, answer, result)
	return answer
}

// answerStored answers a member when what is stored of it is what the answer tells.
func answerStored[T any](g *group, m *consumer, answer *Awaited[T], result T) {
	if m.version <= g.consumers.stored {
		answer.settle(result, nil)
		return
	}
	g.saveConsumers(g.consumers, func(err error) {
		if err != nil {
			var none T
			result = none
		}
		answer.settle(result, err)
	})
}

// touchConsumer restarts a member's session, which a classic member has chosen.
func (g *group) touchConsumer(now time.Time, m *consumer) {
	session := g.config.ConsumerSession
	if m.classic != nil {
		session = m.classic.session
	}
	m.deadline = now.Add(session)
}

// touch records that what is stored of a member has changed.
func (cs *consumers) touch(m *consumer) {
	cs.version++
	m.version = cs.version
}

// saveConsumers stores the group, whose members are cs or were until now, and then calls done.
func (g *group) saveConsumers(cs *consumers, done func(err error)) {
	version := cs.version
	g.save(g.record(nil), func(_ time.Time, err error) {
		if err == nil {
			cs.stored = max(cs.stored, version)
		}
		done(err)
	})
}

// continueWithout goes on after members were removed, and calls done when that is stored. A group that is left with
// classic members only becomes a classic one.
func (g *group) continueWithout(now time.Time, done func(err error)) {
	cs := g.consumers
	if cs.onlyClassic() {
		g.downgrade(now)
	} else {
		g.beginEpoch(now)
	}
	g.saveConsumers(cs, done)
}

// expireConsumers removes members whose session has ended, or that have not revoked in time.
func (g *group) expireConsumers(now time.Time) {
	if g.consumers == nil {
		return
	}
	removed := false
	for _, m := range g.consumers.inOrder() {
		if due := m.expires(); !due.After(now) {
			g.consumers.remove(m)
			removed = true
		}
	}
	if removed {
		g.continueWithout(now, func(error) {})
	}
}

// expires returns when a member is removed.
func (m *consumer) expires() time.Time {
	if !m.revokeBy.IsZero() {
		return earliest(m.deadline, m.revokeBy)
	}
	return m.deadline
}

// checkEpoch returns an error unless the member of a request is in its epoch: ErrStaleEpoch, or what the
// classic protocol has for it.
func (cs *consumers) checkEpoch(r MemberIdentity) error {
	m := cs.members[r.Member]
	switch {
	case m == nil:
		return fmt.Errorf("%w: %q", ErrUnknownMember, r.Member)
	case r.Generation != m.epoch && m.classic != nil:
		return fmt.Errorf("%w: %d; the member is in %d", ErrIllegalGeneration, r.Generation, m.epoch)
	case r.Generation != m.epoch:
		return fmt.Errorf("%w: %d; the member is in %d", ErrStaleEpoch, r.Generation, m.epoch)
	}
	return nil
}

// isReconciled reports whether all members have reached their targets.
func (cs *consumers) isReconciled(epoch int32) bool {
	for _, m := range cs.members {
		if m.state != reconciled || m.epoch != epoch {
			return false
		}
	}
	return true
}

// bytes returns what the members have brought.
func (cs *consumers) bytes() (total int) {
	if cs != nil {
		for _, m := range cs.members {
			total += memberBytes + m.size
		}
	}
	return total
}
