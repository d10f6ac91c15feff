package group

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// State is the state of a group in its cycle of rebalances.
type State int

// The states of a group. A Dead group is being removed.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
	// Reconciling is a Stable group of the consumer protocol, as Describe has it, in which members have not
	// yet reached their targets.
	Reconciling
)

// String returns Kafka's name of the state.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Reconciling"}[s]
}

// newMemberTimeout bounds the wait of a member's first join during a long rebalance:
// such a member has no session yet.
const newMemberTimeout = 5 * time.Minute

// group is the state machine of one consumer group, without clock, lock and
// storage:
//
//	Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶
//	CompletingRebalance ──the leader assigned, and it is stored──▶ Stable
//
// From the last two, any change of the members leads back to PreparingRebalance; a
// rebalance that no member joins ends in Empty.
type group struct {
	name   string
	config topic.GroupsConfig
	// save stores a record, and calls done later, under the group's lock.
	save func(record groupRecord, done func(now time.Time, err error))
	// reserve counts bytes that the members are about to bring, or returns ErrGroupTooLarge.
	reserve func(more int) error
	// spent is called instead of beginning a generation, when too many in a row were
	// not stored.
	spent func()
	// topics are the topics that members of the consumer protocol subscribe to.
	topics Topics
	// epoch is the epoch of the group's slot, begunIn its value when the generation began.
	epoch, begunIn int64

	state            State
	generation       int32
	skip             int32 // numbers that the next generation skips
	unstored         int32 // generations since the last stored one
	protocolType     string
	protocol, leader string
	emptySince       time.Time
	members          map[string]*groupMember
	instances        map[string]string    // instance id to member id
	pending          map[string]time.Time // ids given out, with their expiry
	lastNumber       uint64
	rebalanceAt      time.Time // when members that have not joined are dropped
	delaying, added  bool      // the first rebalance waits for more members
	delayUntil       time.Time // latest end of that wait
	syncAt           time.Time // when members that have not synced are dropped
	savingGeneration int32     // generation whose assignment is being stored
	assigning        int       // bytes of assignments that are being stored

	// consumers are the members of a group that uses the consumer protocol, some of which may use the classic one: its
	// state is Stable, unless it is Empty. They are nil in a classic group, which all the fields above are for.
	consumers *consumers
}

// groupMember is a member of a group.
type groupMember struct {
	id, instance, client, host string
	number                     uint64 // order in which members joined
	session, rebalance         time.Duration
	protocols                  []Protocol
	size                       int // of the member's metadata, in bytes
	assignment                 []byte
	// epoch is that of a member which has not joined again since its group was one of the consumer protocol; 0: that
	// of the group.
	epoch int32

	// join and sync are waiting requests.
	join *Awaited[JoinResult]
	sync *Awaited[SyncResult]
	// fresh: it has not been in a generation. synced: it has its assignment of the
	// present generation, or waits for it. absent: a static member that belongs to the
	// present generation though it did not join.
	fresh, synced, absent bool
	// deadline is the end of its session, or of the wait for its first join.
	deadline time.Time
}

func newGroup(name string, config topic.GroupsConfig, save func(groupRecord, func(time.Time, error))) *group {
	return &group{
		name: name, config: config, save: save,
		members: map[string]*groupMember{}, instances: map[string]string{}, pending: map[string]time.Time{},
	}
}

// newMemberID returns an id that no other member has.
func newMemberID(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), maxInstanceName)], "")
	return name + "-" + rand.Text()
}

// inOrder returns the members in the order in which they joined.
func (g *group) inOrder() []*groupMember {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *groupMember) int { return cmp.Compare(a.number, b.number) })
}

// check returns the member that sent a request.
func (g *group) check(r MemberIdentity) (*groupMember, error) {
	if r.Instance != "" {
		id, known := g.instances[r.Instance]
		switch {
		case !known:
			return nil, fmt.Errorf("%w: no member has the instance id %q", ErrUnknownMember, r.Instance)
		case id != r.Member:
			return nil, fmt.Errorf("%w: %q is not %q", ErrFencedInstance, r.Instance, r.Member)
		}
	}
	m := g.members[r.Member]
	if m == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownMember, r.Member)
	}
	return m, nil
}

// checkGeneration is check, for requests that belong to a generation.
func (g *group) checkGeneration(r MemberIdentity) (*groupMember, error) {
	m, err := g.check(r)
	if err == nil && r.Generation != cmp.Or(m.epoch, g.generation) {
		return nil, fmt.Errorf("%w: %d; the group is in %d", ErrIllegalGeneration, r.Generation, g.generation)
	}
	return m, err
}

// touch restarts a member's session.
func (m *groupMember) touch(now time.Time) { m.deadline = now.Add(m.session) }

// expires returns when a silent member is dropped; zero while the member waits for an
// answer.
func (m *groupMember) expires() time.Time {
	if m.sync != nil || m.join != nil && !m.fresh {
		return time.Time{}
	}
	return m.deadline
}

// next returns the time of the next tick; zero if none is due.
func (g *group) next() time.Time {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if g.state == PreparingRebalance {
		earlier(g.rebalanceAt)
	}
	earlier(g.syncAt)
	for _, until := range g.pending {
		earlier(until)
	}
	for _, m := range g.members {
		earlier(m.expires())
	}
	if g.consumers != nil {
		for _, m := range g.consumers.members {
			earlier(m.expires())
		}
	}
	return next
}

// tick applies everything that is due at now.
func (g *group) tick(now time.Time) {
	reached := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	g.expireConsumers(now)
	changed := false
	for id, until := range g.pending {
		if reached(until) {
			delete(g.pending, id)
			changed = changed || g.state == PreparingRebalance
		}
	}
	for _, m := range g.inOrder() {
		if reached(m.expires()) {
			g.remove(m, fmt.Errorf("%w: its session ended", ErrUnknownMember))
			changed = true
		}
	}
	if reached(g.syncAt) {
		g.syncAt = time.Time{}
		for _, m := range g.inOrder() {
			if !m.synced && !m.absent {
				g.remove(m, fmt.Errorf("%w: it did not ask for its assignment", ErrUnknownMember))
				changed = true
			}
		}
	}
	if changed {
		g.rebalance(now)
	}
	if g.state == PreparingRebalance && reached(g.rebalanceAt) {
		g.rebalanceTimeout(now)
	}
}
