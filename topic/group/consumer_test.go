package group_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

func TestConsumersShareATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := newTopics(map[string]int32{"orders": 4})
		groups := startConsumers(t, newBadMeta(), topics, topic.GroupsConfig{})
		a, b := newModern(t, groups, "a", "orders"), newModern(t, groups, "b", "orders")
		a.mustBeat()
		if a.Epoch != 1 || a.reads.Count() != 4 {
			t.Fatalf("the only member reads %v in epoch %d", a.reads, a.Epoch)
		}
		b.mustBeat()
		if b.Epoch != 2 || b.reads.Count() != 0 {
			t.Fatalf("b reads %v in epoch %d before a has revoked", b.reads, b.Epoch)
		}
		a.mustBeat() // it learns that it loses two
		if a.Epoch != 1 || a.told.Count() != 2 {
			t.Fatalf("a is told %v in epoch %d", a.told, a.Epoch)
		}
		b.mustBeat()
		if b.reads.Count() != 0 {
			t.Fatalf("b reads %v that a may still read", b.reads)
		}
		a.mustBeat() // it has revoked them
		b.mustBeat()
		if a.Epoch != 2 || a.reads.Count() != 2 || b.reads.Count() != 2 || len(a.reads.Both(b.reads)) != 0 {
			t.Fatalf("a reads %v in epoch %d, b reads %v", a.reads, a.Epoch, b.reads)
		}
		d, err := groups.Describe("g")
		if err != nil || d.State != group.Stable || d.Type != group.TypeConsumer || d.Generation != 2 || d.Protocol != "uniform" {
			t.Errorf("the group is %+v, %v", d, err)
		}
		if err := b.leave(group.LeaveEpoch); err != nil {
			t.Fatal(err)
		}
		a.mustBeat()
		if a.Epoch != 3 || a.reads.Count() != 4 {
			t.Errorf("after b has left, a reads %v in epoch %d", a.reads, a.Epoch)
		}
	})
}

func TestConsumerHeartbeatIsRefused(t *testing.T) {
	none := assign.Partitions{}
	join := group.ConsumerHeartbeat{Group: "g", Member: "a", Rebalance: time.Minute, Topics: []string{"orders"}, Owned: none}
	bad, long := "a(b", make([]byte, 250)
	tests := []struct {
		name   string
		change func(r *group.ConsumerHeartbeat)
		want   error
	}{
		{"no group", func(r *group.ConsumerHeartbeat) { r.Group = "" }, group.ErrInvalidGroup},
		{"no rebalance timeout", func(r *group.ConsumerHeartbeat) { r.Rebalance = 0 }, group.ErrInvalidGroupRequest},
		{"no subscription", func(r *group.ConsumerHeartbeat) { r.Topics = nil }, group.ErrInvalidGroupRequest},
		{"partitions of its own", func(r *group.ConsumerHeartbeat) { r.Owned = assign.Partitions{topic.NewID(): {1}} }, group.ErrInvalidGroupRequest},
		{"an epoch that does not exist", func(r *group.ConsumerHeartbeat) { r.Epoch = -3 }, group.ErrInvalidGroupRequest},
		{"no member", func(r *group.ConsumerHeartbeat) { r.Epoch, r.Member = 1, "" }, group.ErrInvalidGroupRequest},
		{"a long name", func(r *group.ConsumerHeartbeat) { r.Topics = []string{string(long)} }, group.ErrInvalidGroupRequest},
		{"a name that is no text", func(r *group.ConsumerHeartbeat) { r.Member = "\xff" }, group.ErrInvalidGroupRequest},
		{"an unknown policy", func(r *group.ConsumerHeartbeat) { r.Assignor = "sticky" }, group.ErrUnknownAssignor},
		{"a pattern that is none", func(r *group.ConsumerHeartbeat) { r.Pattern = &bad }, group.ErrInvalidPattern},
		{"a member that is unknown", func(r *group.ConsumerHeartbeat) { r.Epoch = 1 }, group.ErrUnknownMember},
		{"a leave of one that is unknown", func(r *group.ConsumerHeartbeat) { r.Epoch = group.LeaveEpoch }, group.ErrUnknownMember},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				groups := startConsumers(t, newBadMeta(), newTopics(nil), topic.GroupsConfig{})
				r := join
				test.change(&r)
				_, err := groups.ConsumerHeartbeat(r).Wait(t.Context())
				wantErr(t, "a heartbeat with "+test.name, err, test.want)
				if list, err := groups.List(); err != nil || len(list) != 0 {
					t.Errorf("it left %v, %v", list, err)
				}
			})
		})
	}
}

func TestEpochsFenceMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := newTopics(map[string]int32{"orders": 4})
		groups := startConsumers(t, newBadMeta(), topics, topic.GroupsConfig{MembersMax: 2})
		a, b := newModern(t, groups, "a", "orders"), newModern(t, groups, "b", "orders")
		a.mustBeat()
		b.mustBeat()
		settle(t, groups, a, b)
		wantErr(t, "a third member", newModern(t, groups, "c", "orders").beat(), group.ErrGroupFull)

		a.Epoch++
		wantErr(t, "an epoch from the future", a.beat(), group.ErrFencedEpoch)
		a.Epoch -= 2 // that with four partitions
		a.tell = true
		if err := a.beat(); err != nil { // as if the last answer were lost
			t.Fatalf("a member that has not got the last answer: %v", err)
		}
		a.Epoch, a.reads = 1, a.reads.And(b.reads)
		wantErr(t, "the epoch before, with partitions of another", a.beat(), group.ErrFencedEpoch)
		a.Epoch, a.reads, a.told = group.JoinEpoch, nil, nil
		a.mustBeat()
		if a.Epoch != 2 || a.reads.Count() != 2 {
			t.Errorf("a fenced member joins again, and reads %v in epoch %d", a.reads, a.Epoch)
		}

		commit := func(member string, epoch int32) error {
			_, err := groups.Commit(group.CommitRequest{
				MemberIdentity: group.MemberIdentity{Group: "g", Member: member, Generation: epoch},
				Offsets:        []group.OffsetCommit{{Topic: "orders", Offset: 7}},
			}).Wait(t.Context())
			return err
		}
		if err := commit("a", 2); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a commit of an old epoch", commit("a", 1), group.ErrStaleEpoch)
		wantErr(t, "a commit of nobody", commit("", -1), group.ErrUnknownMember)
		wantErr(t, "a commit of a stranger", commit("c", 2), group.ErrUnknownMember)
		check := func(epoch int32) error {
			return groups.CheckEpoch(group.MemberIdentity{Group: "g", Member: "a", Generation: epoch})
		}
		if err := check(2); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a fetch of an old epoch", check(1), group.ErrStaleEpoch)
		_, err := groups.MayCommit(group.MemberIdentity{Group: "g", Member: "a", Generation: 1})
		wantErr(t, "a transaction of an old epoch", err, group.ErrIllegalGeneration)
	})
}

// A member that is silent is removed, as is one that does not revoke in time.
func TestConsumersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := newTopics(map[string]int32{"orders": 4})
		groups := startConsumers(t, newBadMeta(), topics, topic.GroupsConfig{ConsumerSession: 45 * time.Second})
		a, b := newModern(t, groups, "a", "orders"), newModern(t, groups, "b", "orders")
		a.mustBeat()
		b.mustBeat()
		a.mustBeat() // it has to revoke now
		for range 2 {
			time.Sleep(10 * time.Second)
			_, err := groups.ConsumerHeartbeat(group.ConsumerHeartbeat{Group: "g", Member: "a", Epoch: 1}).Wait(t.Context())
			if err != nil {
				t.Fatalf("a member that revokes, within its time: %v", err)
			}
			b.mustBeat()
		}
		time.Sleep(11 * time.Second)
		wantErr(t, "a member that has not revoked in time", a.beat(), group.ErrUnknownMember)
		b.mustBeat()
		if b.reads.Count() != 4 {
			t.Fatalf("b reads %v", b.reads)
		}
		time.Sleep(45*time.Second - 1)
		b.mustBeat()
		time.Sleep(45 * time.Second)
		synctest.Wait()
		wantState(t, groups, group.Empty, 0)
		wantErr(t, "a member whose session ended", b.beat(), group.ErrUnknownMember)
	})
}

func TestConsumersFollowTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := newTopics(map[string]int32{"orders": 2})
		groups := startConsumers(t, newBadMeta(), topics, topic.GroupsConfig{})
		a, b := newModern(t, groups, "a", "orders", "refunds"), newModern(t, groups, "b")
		pattern := "ref.*|or"
		b.Topics, b.Pattern = nil, &pattern
		b.MayRead = func(name string) bool { return name != "refused" }
		a.mustBeat()
		b.mustBeat()
		settle(t, groups, a, b)
		if a.reads.Count() != 2 || b.reads.Count() != 0 {
			t.Fatalf("a reads %v, b reads %v", a.reads, b.reads)
		}
		topics.set("orders", 3)
		refunds := topics.set("refunds", 3)
		topics.set("refused", 1)
		settle(t, groups, b, a, b)
		if a.reads.Count() != 3 || len(b.reads[refunds]) != 3 || len(b.reads) != 1 {
			t.Fatalf("with more partitions and a new topic, a reads %v, b reads %v", a.reads, b.reads)
		}
		epoch := a.Epoch
		topics.remove("refunds")
		settle(t, groups, a, b)
		if a.Epoch == epoch || a.reads.Count() != 3 || b.reads.Count() != 0 {
			t.Fatalf("without the topic, a reads %v, b reads %v", a.reads, b.reads)
		}
	})
}

func TestStaticConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := newTopics(map[string]int32{"orders": 4})
		groups := startConsumers(t, newBadMeta(), topics, topic.GroupsConfig{})
		a, b := newModern(t, groups, "a", "orders"), newModern(t, groups, "b", "orders")
		a.Instance = "one"
		a.mustBeat()
		b.mustBeat()
		settle(t, groups, a, b)
		before, epoch := a.reads, a.Epoch

		again := newModern(t, groups, "again", "orders")
		again.Instance = "one"
		wantErr(t, "another member of the name", again.beat(), group.ErrUnreleasedInstance)
		wantErr(t, "a pause of a member without a name", b.leave(group.PauseEpoch), group.ErrInvalidGroupRequest)
		if err := a.leave(group.PauseEpoch); err != nil {
			t.Fatal(err)
		}
		b.mustBeat()
		if b.reads.Count() != 2 {
			t.Fatalf("b reads %v while a is away", b.reads)
		}
		again.mustBeat()
		if again.Epoch != epoch || !again.reads.Equal(before) {
			t.Fatalf("the member that comes back reads %v in epoch %d, want %v in %d", again.reads, again.Epoch, before, epoch)
		}
		a.tell = true
		wantErr(t, "the member that was replaced", a.beat(), group.ErrFencedInstance)
		if err := again.leave(group.PauseEpoch); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		b.mustBeat()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		b.mustBeat()
		if b.reads.Count() != 4 {
			t.Errorf("b reads %v after a has not come back in its session", b.reads)
		}
	})
}

// An empty group may be used by either protocol. One whose assignments cannot be read is used by the classic one only, as
// long as it has members.
func TestUnreadableMembersDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startConsumers(t, newBadMeta(), newTopics(map[string]int32{"orders": 4}), topic.GroupsConfig{})
		classic, a := newConsumer(t, groups, "classic", ""), newModern(t, groups, "a", "orders")
		gather(t, classic)
		wantErr(t, "a heartbeat in a classic group", a.beat(), group.ErrOtherProtocol)
		if _, err := groups.Leave("g", []group.MemberIdentity{classic.MemberIdentity}); err != nil {
			t.Fatal(err)
		}
		generation := classic.Generation
		a.mustBeat()
		if a.Epoch <= generation {
			t.Errorf("epoch %d begins below generation %d", a.Epoch, generation)
		}
		classic.Member = ""
		classic.join.Protocols[0].Metadata = []byte("mine")
		wantErr(t, "a join with metadata that cannot be read", classic.finishJoin(classic.startJoin()), group.ErrInconsistentProtocol)
		classic.join.Protocols[0].Metadata, classic.join.ProtocolType = subscribes("orders"), "connect"
		wantErr(t, "a join of another type", classic.finishJoin(classic.startJoin()), group.ErrInconsistentProtocol)
		classic.join.ProtocolType = "consumer"
		if _, err := groups.Delete("g").Wait(t.Context()); err == nil {
			t.Error("a group with members was deleted")
		}
		if err := a.leave(group.LeaveEpoch); err != nil {
			t.Fatal(err)
		}
		wantState(t, groups, group.Empty, 0)
		if d, _ := groups.Describe("g"); d.Type != group.TypeConsumer {
			t.Errorf("the empty group is %q", d.Type)
		}
		gather(t, classic)
		if d, _ := groups.Describe("g"); d.Type != group.TypeClassic || classic.Generation <= a.Epoch {
			t.Errorf("the group is %q in generation %d, after epoch %d", d.Type, classic.Generation, a.Epoch)
		}
	})
}
