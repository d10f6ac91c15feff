package topic

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// GroupState is where a group stands between two rebalances.
type GroupState int

// The states of a group. Dead is one that is being removed.
const (
	GroupEmpty GroupState = iota
	GroupPreparingRebalance
	GroupCompletingRebalance
	GroupStable
	GroupDead
)

// String returns the state's name in Kafka.
func (s GroupState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// newMemberTimeout is how long a member waits for its first join, if
// a rebalance takes that long: whoever joins first has no session yet.
const newMemberTimeout = 5 * time.Minute

// group is the state machine of one consumer group, without clock, lock and
// storage:
//
//	Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶
//	CompletingRebalance ──the leader assigned, and it is stored──▶ Stable
//
// From the last two, whatever changes the members leads back to
// PreparingRebalance; a rebalance that nobody joins ends in Empty.
type group struct {
	name   string
	config GroupsConfig
	// save stores what record returns now, and calls done later, under the
	// same lock as all else.
	save func(record groupRecord, done func(now time.Time, err error))
	// spent is called instead of a generation, when too many in a row were not
	// stored; nil: there may be any number.
	spent func()
	// epoch is that of the group's slot, begunIn that in which the generation began.
	epoch, begunIn int64

	state            GroupState
	generation       int32
	skip             int32 // numbers that the next generation leaves out
	unstored         int32 // generations since one was stored
	protocolType     string
	protocol, leader string
	emptySince       time.Time
	members          map[string]*groupMember
	instances        map[string]string    // instance id to member id
	pending          map[string]time.Time // ids given out, until when
	lastNumber       uint64
	rebalanceAt      time.Time // when those that have not joined are dropped
	delaying, added  bool      // the first rebalance waits for more members
	delayUntil       time.Time // at the latest
	syncAt           time.Time // when those that have not synced are dropped
	savingGeneration int32     // whose assignment is being stored
}

// groupMember is a member of a group.
type groupMember struct {
	id, instance, client, host string
	number                     uint64 // the order in which members came
	session, rebalance         time.Duration
	protocols                  []GroupProtocol
	size                       int // of what it brings, in bytes
	assignment                 []byte

	// join and sync are requests that wait.
	join *Awaited[JoinResult]
	sync *Awaited[SyncResult]
	// fresh: it has not been in a generation. synced: it has its assignment of
	// the present one, or waits for it. absent: a static member that the present
	// generation counts in though it did not join.
	fresh, synced, absent bool
	// deadline is when its session ends; while it waits for its first join,
	// when that does.
	deadline time.Time
}

func newGroup(name string, config GroupsConfig, save func(groupRecord, func(time.Time, error))) *group {
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

// inOrder returns the members in the order in which they came.
func (g *group) inOrder() []*groupMember {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *groupMember) int { return cmp.Compare(a.number, b.number) })
}

// check finds the member that a request comes from.
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
	if err == nil && r.Generation != g.generation {
		return nil, fmt.Errorf("%w: %d; the group is in %d", ErrIllegalGeneration, r.Generation, g.generation)
	}
	return m, err
}

// touch starts a member's session anew.
func (m *groupMember) touch(now time.Time) { m.deadline = now.Add(m.session) }

// expires returns when a member is dropped if it stays silent; zero while it
// waits for us.
func (m *groupMember) expires() time.Time {
	if m.sync != nil || m.join != nil && !m.fresh {
		return time.Time{}
	}
	return m.deadline
}

// next returns when tick has something to do; zero: not by time.
func (g *group) next() time.Time {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if g.state == GroupPreparingRebalance {
		earlier(g.rebalanceAt)
	}
	earlier(g.syncAt)
	for _, until := range g.pending {
		earlier(until)
	}
	for _, m := range g.members {
		earlier(m.expires())
	}
	return next
}

// tick does what time has brought about.
func (g *group) tick(now time.Time) {
	reached := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	changed := false
	for id, until := range g.pending {
		if reached(until) {
			delete(g.pending, id)
			changed = changed || g.state == GroupPreparingRebalance
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
	if g.state == GroupPreparingRebalance && reached(g.rebalanceAt) {
		g.rebalanceTimeout(now)
	}
}
