package group_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// rolled is a group whose members are replaced one by one.
type rolled struct {
	t       *testing.T
	meta    *badMeta
	groups  *group.Groups
	topics  *someTopics
	members []reader
	made    int
}

func newRolled(t *testing.T) *rolled {
	r := &rolled{t: t, meta: newBadMeta(), topics: newTopics(map[string]int32{"orders": 12})}
	r.groups = startConsumers(t, r.meta, r.topics, topic.GroupsConfig{})
	return r
}

func (r *rolled) veteran(eager bool) *veteran {
	r.made++
	v := newVeteran(r.t, r.groups, r.topics, fmt.Sprint("classic", r.made), eager, "orders")
	r.members = append(r.members, v)
	return v
}

func (r *rolled) modern() *modern {
	r.made++
	m := newModern(r.t, r.groups, fmt.Sprint("modern", r.made), "orders")
	r.members = append(r.members, m)
	return m
}

// turns lets all members have a turn, and checks that no partition has two readers.
func (r *rolled) turns() {
	r.t.Helper()
	for _, m := range r.members {
		m.turn(false, false)
		synctest.Wait()
		if err := sharedPartition(r.members); err != nil {
			r.t.Fatal(err)
		}
	}
}

// settle gives turns until all partitions are read evenly and the group is stable, and checks that each member reads
// all the time what it keeps, unless it is eager.
func (r *rolled) settle(kind string) {
	r.t.Helper()
	before, low := map[reader]assign.Partitions{}, map[reader]assign.Partitions{}
	for _, m := range r.members {
		_, before[m] = m.owns()
		low[m] = before[m]
	}
	settled := false
	for range 100 {
		r.turns()
		for _, m := range r.members {
			_, reads := m.owns()
			low[m] = low[m].Both(reads)
		}
		if settled = r.even(kind); settled {
			break
		}
		time.Sleep(time.Second)
	}
	if !settled {
		d, err := r.groups.Describe("g")
		r.t.Fatalf("the group is %s, %v, %v, and does not settle as %s", d.Type, d.State, err, kind)
	}
	for m, had := range before {
		name, reads := m.owns()
		if v, is := m.(*veteran); is && v.eager {
			continue
		}
		if kept := had.Both(reads); !low[m].Equal(kept) {
			r.t.Errorf("%s keeps %v, and has read only %v of it all the time", name, kept, low[m])
		}
	}
}

func (r *rolled) even(kind string) bool {
	d, err := r.groups.Describe("g")
	if err != nil || d.State != group.Stable || d.Type != kind || len(d.Members) != len(r.members) {
		return false
	}
	for _, m := range r.members {
		if _, reads := m.owns(); reads.Count() != 12/len(r.members) {
			return false
		}
	}
	return true
}

// take removes the oldest member.
func (r *rolled) take() reader {
	oldest := r.members[0]
	r.members = r.members[1:]
	return oldest
}

// Three members are replaced by members of the consumer protocol, one by one, and those by classic ones again. Committed
// offsets stay, and a member commits all the time what it reads.
func TestGroupIsRolledToTheConsumerProtocolAndBack(t *testing.T) {
	for _, eager := range []bool{false, true} {
		t.Run(fmt.Sprint("eager ", eager), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRolled(t)
				for range 3 {
					r.veteran(eager)
				}
				r.settle(group.TypeClassic)
				old := r.members[0].(*veteran)
				commit := group.CommitRequest{MemberIdentity: old.MemberIdentity, Offsets: []group.OffsetCommit{{Topic: "orders", Partition: 3, Offset: 7}}}
				if errs, err := r.groups.Commit(commit).Wait(t.Context()); err != nil || errs[0] != nil {
					t.Fatal(errs, err)
				}
				for i := range 3 { // the new one comes before the old one leaves
					r.modern()
					r.settle(group.TypeConsumer)
					wantKinds(t, r.groups, 3-i)
					r.take().quit()
					r.settle(group.TypeConsumer)
				}
				for range 3 { // the old one leaves before the new one comes
					r.take().quit()
					r.veteran(eager)
					r.turns()
				}
				r.settle(group.TypeClassic)
				for _, m := range r.members {
					if v := m.(*veteran); v.lost > 0 {
						t.Errorf("%s was dropped %d times", v.name, v.lost)
					}
				}
				wantOffsets(t, r.groups, map[int32]int64{3: 7})
			})
		})
	}
}

// wantKinds checks how many members are described as classic ones.
func wantKinds(t *testing.T, groups *group.Groups, classic int) {
	t.Helper()
	d, err := groups.Describe("g")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range d.Members {
		if m.Consumer.Classic {
			classic--
		}
	}
	if classic != 0 {
		t.Errorf("%d classic members are missing in %+v", classic, d.Members)
	}
}

// A member that has not asked for its assignment yet still reads what it had, and is not assigned. A member of the consumer
// protocol that joins then does not get that.
func TestUpgradeDuringARebalance(t *testing.T) {
	tests := map[string]struct{ joined, synced int }{
		"while a member waits": {1, 0}, "before the leader has assigned": {2, 0}, "after that": {2, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRolled(t)
				a, b := r.veteran(false), r.veteran(false)
				r.settle(group.TypeClassic)
				c := r.veteran(false)
				c.turn(false, false) // it gets an id
				c.turn(false, false)
				for _, m := range []*veteran{a, b}[:test.joined] { // they join again
					m.turn(false, false)
				}
				synctest.Wait()
				for _, m := range []*veteran{a, b}[:test.synced] {
					m.turn(false, false)
				}
				synctest.Wait()
				m := r.modern()
				m.turn(false, false)
				if err := sharedPartition(r.members); err != nil {
					t.Fatal(err)
				}
				if a.reads.Count()+b.reads.Count() == 0 {
					t.Fatal("the classic members read nothing: the test tests nothing")
				}
				r.settle(group.TypeConsumer)
				if a.lost+b.lost+c.lost > 0 {
					t.Errorf("members were dropped: %d, %d, %d times", a.lost, b.lost, c.lost)
				}
			})
		})
	}
}

// Members that have not joined again for the last epoch keep what they read, and may commit, until they join the next
// generation of the classic group.
func TestDowngradeDuringARebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRolled(t)
		v := r.veteran(false)
		r.veteran(false)
		first := r.modern()
		r.settle(group.TypeConsumer)
		second := r.modern()
		second.mustBeat()
		r.members = r.members[:2]
		first.quit()
		second.quit()
		for _, m := range r.members {
			v := m.(*veteran)
			_, err := r.groups.Commit(group.CommitRequest{
				MemberIdentity: v.MemberIdentity, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 1}},
			}).Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
		}
		before := v.MemberIdentity
		r.settle(group.TypeClassic)
		wantErr(t, "a heartbeat in the old epoch", r.groups.Heartbeat(before), group.ErrIllegalGeneration)
		for _, m := range r.members {
			if v := m.(*veteran); v.lost > 0 {
				t.Errorf("%s was dropped", v.name)
			}
		}
	})
}

// Without faults no member is ever dropped or fenced, whoever comes and goes, and however far the others have come.
func TestNobodyIsDroppedByAMigration(t *testing.T) {
	steps := rapid.SliceOfN(rapid.IntRange(0, 9), 10, 60)
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		all, dropped := steps.Draw(t, "steps"), ""
		synctest.Test(outer, func(t *testing.T) {
			r := newRolled(t)
			for _, step := range all {
				switch {
				case step == 0 && len(r.members) < 4:
					r.veteran(false)
				case step == 1 && len(r.members) < 4:
					r.modern()
				case step == 2 && len(r.members) > 0:
					r.take().quit()
				case step > 2 && step-3 < len(r.members):
					r.members[step-3].turn(false, false)
				}
				synctest.Wait()
				if err := sharedPartition(r.members); err != nil {
					dropped = err.Error()
				}
			}
			for range 20 {
				r.turns()
				time.Sleep(time.Second)
			}
			read := 0
			for _, m := range r.members {
				name, reads := m.owns()
				read += reads.Count()
				if v, is := m.(*veteran); is && v.lost > 0 {
					dropped = name + " was dropped"
				}
				if m, is := m.(*modern); is && m.fenced > 0 {
					dropped = name + " was fenced"
				}
			}
			if len(r.members) > 0 && read != 12 {
				dropped = fmt.Sprintf("%d of 12 partitions are read", read)
			}
		})
		if dropped != "" {
			t.Fatal(dropped)
		}
	})
}

// The coordinator stops when the last member of the consumer protocol has left and nobody has joined the next generation. The
// next one goes on with a rebalance, so that its partitions are read.
func TestDowngradeSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRolled(t)
		r.veteran(false)
		r.veteran(false)
		last := r.modern()
		r.settle(group.TypeConsumer)
		r.members = r.members[:2]
		last.quit()
		stopGroups(t, r.groups)
		r.groups = startConsumers(t, r.meta, r.topics, topic.GroupsConfig{})
		for _, m := range r.members {
			m.moveTo(r.groups)
		}
		r.settle(group.TypeClassic)
	})
}

// The numbers of generations that begin after a downgrade which was not stored are not used again as epochs.
func TestNoEpochIsUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRolled(t)
		v, m := r.veteran(false), r.modern()
		r.settle(group.TypeConsumer)
		r.meta.failNext(-1, errors.New("broken"), false)
		r.members = r.members[:1]
		m.quit()
		v.turn(false, false)
		synctest.Wait()
		v.turn(false, false) // it has joined a generation that cannot be stored
		unstored := v.Generation
		stopGroups(t, r.groups)
		r.meta.failNext(0, nil, false)
		r.groups = startConsumers(t, r.meta, r.topics, topic.GroupsConfig{})
		v.moveTo(r.groups)
		wantErr(t, "a heartbeat in the generation that was not stored", r.groups.Heartbeat(v.MemberIdentity), group.ErrIllegalGeneration)
		for range 100 {
			r.turns()
			time.Sleep(time.Second)
		}
		if v.reads.Count() != 12 {
			t.Errorf("in the end it reads %v", v.reads)
		}
		if v.Generation <= unstored {
			t.Errorf("generation %d follows %d", v.Generation, unstored)
		}
	})
}

// Members that cannot be taken over keep their group to themselves.
func TestUpgradeIsRefused(t *testing.T) {
	own := kmsg.NewConsumerMemberAssignment()
	empty := own.AppendTo(nil)
	own.UserData = []byte("mine")
	tests := map[string]struct {
		kind                 string
		metadata, assignment []byte
	}{
		"another type":                      {"connect", subscribes("orders"), empty},
		"metadata that cannot be read":      {"consumer", []byte("mine"), empty},
		"an assignment that cannot be read": {"consumer", subscribes("orders"), []byte("mine")},
		"an assignment with data":           {"consumer", subscribes("orders"), own.AppendTo(nil)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRolled(t)
				c := newConsumer(t, r.groups, "classic", "")
				c.join.ProtocolType, c.join.Protocols[0].Metadata = test.kind, test.metadata
				if err := c.finishJoin(c.startJoin()); err != nil {
					t.Fatal(err)
				}
				sync := group.SyncRequest{MemberIdentity: c.MemberIdentity, Assignments: map[string][]byte{c.Member: test.assignment}}
				if _, err := r.groups.Sync(sync).Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantErr(t, "a join of the consumer protocol", r.modern().beat(), group.ErrOtherProtocol)
				if err := c.heartbeat(); err != nil {
					t.Errorf("the classic member goes on: %v", err)
				}
			})
		})
	}
}

// A static member comes back with the other protocol, under its name, and has its partitions at once.
func TestStaticMemberChangesItsProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRolled(t)
		for _, name := range []string{"one", "two"} {
			r.veteran(false).Instance = name
		}
		r.settle(group.TypeClassic)
		old := r.members[0].(*veteran)
		had := old.reads
		r.members = r.members[1:]
		m := r.modern()
		m.Instance = "one"
		m.mustBeat()
		if !m.reads.Equal(had) {
			t.Errorf("it reads %v, and had %v", m.reads, had)
		}
		wantErr(t, "the member that it has replaced", r.groups.Heartbeat(old.MemberIdentity), group.ErrFencedInstance)
		r.settle(group.TypeConsumer)

		r.members = r.members[:1] // without the modern one, which is the last
		again := r.veteran(false)
		again.Instance = "one"
		r.settle(group.TypeClassic)
		m.tell = true
		wantErr(t, "the member that was replaced again", m.beat(), group.ErrUnknownMember)
	})
}

// A classic member of a group of consumers lives by its own session, has its rebalance timeout to join again and to ask for
// its assignment, and may commit in its epoch only.
func TestClassicMembersOfConsumersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRolled(t)
		v, m := r.veteran(false), r.modern()
		r.settle(group.TypeConsumer)
		stale := v.MemberIdentity
		stale.Generation--
		commit := func(r *rolled, who group.MemberIdentity) error {
			_, err := r.groups.Commit(group.CommitRequest{MemberIdentity: who, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 1}}}).Wait(t.Context())
			return err
		}
		wantErr(t, "a commit of another epoch", commit(r, stale), group.ErrIllegalGeneration)
		for _, epoch := range []int32{v.Generation, group.LeaveEpoch, group.PauseEpoch} {
			_, err := r.groups.ConsumerHeartbeat(group.ConsumerHeartbeat{Group: "g", Member: v.Member, Epoch: epoch}).Wait(t.Context())
			wantErr(t, "a heartbeat of the other protocol", err, group.ErrUnknownMember)
		}
		wantErr(t, "a classic heartbeat of a member of the consumer protocol",
			r.groups.Heartbeat(group.MemberIdentity{Group: "g", Member: m.Member, Generation: m.Epoch}), group.ErrUnknownMember)
		_, err := r.groups.Sync(group.SyncRequest{MemberIdentity: v.MemberIdentity, ProtocolType: "consumer", Protocol: "range"}).Wait(t.Context())
		wantErr(t, "a sync of another protocol", err, group.ErrInconsistentProtocol)

		for range 3 { // commits keep its session
			time.Sleep(40 * time.Second)
			m.mustBeat()
			if err := commit(r, v.MemberIdentity); err != nil {
				t.Fatal(err)
			}
		}
		r.modern().mustBeat()
		_, err = r.groups.Sync(group.SyncRequest{MemberIdentity: v.MemberIdentity}).Wait(t.Context())
		wantErr(t, "a sync in an old epoch", err, group.ErrRebalanceInProgress)
		for range 3 { // it says that it is there, and does not join again
			wantErr(t, "a heartbeat in an old epoch", r.groups.Heartbeat(v.MemberIdentity), group.ErrRebalanceInProgress)
			time.Sleep(20 * time.Second)
			for _, m := range r.members[1:] {
				m.turn(false, false)
			}
		}
		synctest.Wait()
		wantErr(t, "a heartbeat after the rebalance timeout", r.groups.Heartbeat(v.MemberIdentity), group.ErrUnknownMember)
	})
}

// A member that has joined and does not ask for its assignment is removed after its rebalance timeout.
func TestClassicMemberOfConsumersHasToSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRolled(t)
		v, m := r.veteran(false), r.modern()
		r.settle(group.TypeConsumer)
		joined, err := r.groups.Join(group.JoinRequest{
			Group: "g", Member: v.Member, Client: v.name, Session: 45 * time.Second, Rebalance: time.Minute,
			ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "cooperative-sticky", Metadata: subscribes("orders")}},
		}).Wait(t.Context())
		if err != nil || joined.Leader != "" || len(joined.Members) != 0 {
			t.Fatalf("joined %+v, %v", joined, err)
		}
		v.Generation = joined.Generation
		for range 3 {
			if err := r.groups.Heartbeat(v.MemberIdentity); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			m.mustBeat()
		}
		synctest.Wait()
		wantErr(t, "a heartbeat of a member that has not asked in time", r.groups.Heartbeat(v.MemberIdentity), group.ErrUnknownMember)
	})
}
