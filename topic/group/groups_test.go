package group_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

func TestJoinIsRefused(t *testing.T) {
	many := make([]group.Protocol, 101)
	for i := range many {
		many[i].Name = fmt.Sprint(i)
	}
	tests := []struct {
		name   string
		change func(r *group.JoinRequest)
		want   error
	}{
		{"no group", func(r *group.JoinRequest) { r.Group = "" }, group.ErrInvalidGroup},
		{"a group whose name is too long", func(r *group.JoinRequest) { r.Group = strings.Repeat("g", 256) }, group.ErrInvalidGroup},
		{"a session that is too short", func(r *group.JoinRequest) { r.Session = 6*time.Second - 1 }, group.ErrInvalidSession},
		{"a session that is too long", func(r *group.JoinRequest) { r.Session = 30*time.Minute + 1 }, group.ErrInvalidSession},
		{"no protocol type", func(r *group.JoinRequest) { r.ProtocolType = "" }, group.ErrInconsistentProtocol},
		{"no protocol", func(r *group.JoinRequest) { r.Protocols = nil }, group.ErrInconsistentProtocol},
		{"too many protocols", func(r *group.JoinRequest) { r.Protocols = many }, group.ErrInvalidGroupRequest},
		{"a long instance id", func(r *group.JoinRequest) { r.Instance = strings.Repeat("i", 250) }, group.ErrInvalidGroupRequest},
		{"an instance id that is no text", func(r *group.JoinRequest) { r.Instance = "\xff" }, group.ErrInvalidGroupRequest},
		{"metadata that are too large", func(r *group.JoinRequest) { r.Protocols[0].Metadata = make([]byte, 1<<20) }, group.ErrGroupTooLarge},
		{"a member id that nobody gave", func(r *group.JoinRequest) { r.Member = "me" }, group.ErrUnknownMember},
		{"an instance id with a member id that nobody gave", func(r *group.JoinRequest) { r.Member, r.Instance = "me", "static" }, group.ErrUnknownMember},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
				r := newConsumer(t, groups, "a", "").join
				test.change(&r)
				_, err := groups.Join(r).Wait(t.Context())
				wantErr(t, "join with "+test.name, err, test.want)
				if list, err := groups.List(); err != nil || len(list) != 0 {
					t.Errorf("a join that was refused left %v, %v", list, err)
				}
			})
		})
	}
}

func TestBoundsOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{MembersMax: 2, GroupsMax: 2})
		a, b, c := newConsumer(t, groups, "a", "static"), newConsumer(t, groups, "b", ""), newConsumer(t, groups, "c", "")
		gather(t, a)
		gather(t, b, a)
		wantErr(t, "the third of two members", c.finishJoin(c.startJoin()), group.ErrGroupFull)
		a.Member = ""
		join(t, a) // a static member that comes back is not a new one
		b.join.Protocols = []group.Protocol{{Name: "range", Metadata: subscribes("refunds")}}
		gather(t, b, a)

		commit := func(groupName string) error {
			_, err := groups.Commit(group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: groupName, Generation: -1},
				Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 1}}}).Wait(t.Context())
			return err
		}
		if err := commit("second"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "commit of a third group", commit("third"), group.ErrTooManyGroups)
	})
}

// The metadata of all members must fit into the stored record.
func TestGroupThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		large := []group.Protocol{{Name: "range", Metadata: make([]byte, 1<<20-100)}}
		for i := range 3 {
			c := newConsumer(t, groups, fmt.Sprint(i), "")
			c.join.Protocols = large
			c.startJoin()
		}
		c := newConsumer(t, groups, "c", "")
		c.join.Protocols = large
		wantErr(t, "a member more than fits", c.finishJoin(c.startJoin()), group.ErrGroupTooLarge)

		other := newConsumer(t, groups, "other", "")
		other.join.Group, other.Group = "other", "other"
		join(t, other)
		assign := func(assignments map[string][]byte) error {
			_, err := groups.Sync(group.SyncRequest{MemberIdentity: other.MemberIdentity, Assignments: assignments}).Wait(t.Context())
			return err
		}
		wantErr(t, "an assignment that is too large", assign(map[string][]byte{other.Member: make([]byte, 1<<20+1)}), group.ErrGroupTooLarge)
		if err := assign(map[string][]byte{other.Member: make([]byte, 1<<20)}); err != nil {
			t.Fatal(err)
		}
	})
}

// Members agree on a protocol that all have: the one that most prefer.
func TestChoiceOfTheProtocol(t *testing.T) {
	tests := []struct {
		offers [][]string
		want   string
	}{
		{[][]string{{"range", "sticky"}}, "range"},
		{[][]string{{"range", "sticky"}, {"sticky", "range"}, {"sticky", "range"}}, "sticky"},
		{[][]string{{"range", "sticky"}, {"sticky", "range"}}, "range"},
		{[][]string{{"new", "range"}, {"new", "range"}, {"range"}}, "range"},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			groups := startGroups(t, newBadMeta(), topic.GroupsConfig{InitialDelay: time.Second})
			var all []*consumer
			for i, offered := range test.offers {
				c := newConsumer(t, groups, fmt.Sprint(i), fmt.Sprint(i))
				c.join.Protocols = nil
				for _, name := range offered {
					c.join.Protocols = append(c.join.Protocols, group.Protocol{Name: name, Metadata: []byte(name)})
				}
				all = append(all, c)
			}
			gatherLater(t, time.Second*2, all...)
			for _, c := range all {
				if c.joined.Protocol != test.want {
					t.Errorf("%v chose %q, want %q", test.offers, c.joined.Protocol, test.want)
				}
			}
			stranger := newConsumer(t, groups, "stranger", "")
			stranger.join.Protocols = []group.Protocol{{Name: "own"}}
			wantErr(t, "join with a protocol that nobody has", stranger.finishJoin(stranger.startJoin()), group.ErrInconsistentProtocol)
			stranger.join.Protocols, stranger.join.ProtocolType = all[0].join.Protocols, "connect"
			wantErr(t, "join with another protocol type", stranger.finishJoin(stranger.startJoin()), group.ErrInconsistentProtocol)
		})
	}
}

// gatherLater is gather, after a time for the joins.
func gatherLater(t *testing.T, wait time.Duration, consumers ...*consumer) {
	t.Helper()
	var joins []*group.Awaited[group.JoinResult]
	for _, c := range consumers {
		joins = append(joins, c.startJoin())
	}
	time.Sleep(wait)
	for i, c := range consumers {
		if !settled(joins[i]) {
			t.Fatal("a join goes on")
		}
		if err := c.finishJoin(joins[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// A follower that joins again without changes gets the present generation; changes, or a
// join of the leader, cause a rebalance.
func TestJoinAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		gather(t, b, a)
		join(t, b)
		if b.Generation != 2 || b.leader || len(b.joined.Members) != 0 {
			t.Fatalf("the follower is told %+v", b.joined)
		}
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
		leading := a.startJoin()
		wantErr(t, "heartbeat when the leader joins again", b.heartbeat(), group.ErrRebalanceInProgress)
		join(t, b)
		if err := a.finishJoin(leading); err != nil || a.Generation != 3 {
			t.Fatal(err, a.Generation)
		}
		join(t, b) // its answer was lost; before the leader has synced
		if b.Generation != 3 {
			t.Fatalf("generation %d, want 3", b.Generation)
		}
		b.join.Protocols = []group.Protocol{{Name: "range", Metadata: subscribes("refunds")}}
		gather(t, b, a)
		if a.Generation != 4 {
			t.Fatalf("generation %d, want another when a member reads another topic", a.Generation)
		}
	})
}

func TestSyncIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		sync := func(r group.SyncRequest) error {
			_, err := groups.Sync(r).Wait(t.Context())
			return err
		}
		wantErr(t, "sync of no member", sync(group.SyncRequest{MemberIdentity: group.MemberIdentity{Group: "g", Member: "x", Generation: 1}}), group.ErrUnknownMember)
		wantErr(t, "sync of no group", sync(group.SyncRequest{MemberIdentity: group.MemberIdentity{Group: "x", Member: "x", Generation: 1}}), group.ErrUnknownMember)
		wantErr(t, "sync with another protocol", sync(group.SyncRequest{MemberIdentity: a.MemberIdentity, Protocol: "x"}), group.ErrInconsistentProtocol)
		wantErr(t, "sync with another type", sync(group.SyncRequest{MemberIdentity: a.MemberIdentity, ProtocolType: "x"}), group.ErrInconsistentProtocol)
		old := a.MemberIdentity
		joining := b.startJoin()
		wantErr(t, "sync while others join", sync(group.SyncRequest{MemberIdentity: a.MemberIdentity}), group.ErrRebalanceInProgress)
		again := a.startJoin()
		if err := errors.Join(a.finishJoin(again), b.finishJoin(joining)); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "sync of the old generation", sync(group.SyncRequest{MemberIdentity: old}), group.ErrIllegalGeneration)
		waiting := b.startSync()
		b.groups.Sync(group.SyncRequest{MemberIdentity: b.MemberIdentity}) // it asks again
		_, err := waiting.Wait(t.Context())
		wantErr(t, "sync that was asked again", err, group.ErrRebalanceInProgress)
	})
}

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b, c := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "static-b"), newConsumer(t, groups, "c", "static-c")
		gather(t, a)
		gather(t, b, a)
		gather(t, c, a, b)
		pending := newConsumer(t, groups, "pending", "")
		pending.join.RequireMember = true
		wantErr(t, "join", pending.finishJoin(pending.startJoin()), group.ErrMemberIDRequired)
		errs, err := groups.Leave("g", []group.MemberIdentity{
			{Instance: "static-b"}, {Member: c.Member}, {Instance: "static-b"}, {Member: "nobody"},
			{Instance: "static-c", Member: "other"}, {Member: pending.Member},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []error{nil, nil, group.ErrUnknownMember, group.ErrUnknownMember, group.ErrUnknownMember, nil} {
			if !errors.Is(errs[i], want) {
				t.Errorf("leave %d: %v, want %v", i, errs[i], want)
			}
		}
		wantErr(t, "heartbeat of the one that is left", a.heartbeat(), group.ErrRebalanceInProgress)
		gather(t, a)
		wantState(t, groups, group.Stable, 1)

		d := newConsumer(t, groups, "d", "static-d")
		joining := d.startJoin()
		errs, err = groups.Leave("g", []group.MemberIdentity{{Instance: "static-d", Member: "other"}, {Instance: "static-d"}})
		if err != nil || errs[1] != nil {
			t.Fatal(err, errs)
		}
		wantErr(t, "leave of another with that instance id", errs[0], group.ErrFencedInstance)
		_, err = joining.Wait(t.Context())
		wantErr(t, "join of one that was removed", err, group.ErrUnknownMember)

		errs, err = groups.Leave("nobody's", []group.MemberIdentity{{Member: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "leave a group that is not there", errs[0], group.ErrUnknownMember)
	})
}

func TestDescribeAndList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := group.New(meta, topic.Single{}, topic.GroupsConfig{}, nil, nil)
		_, err := groups.List()
		wantErr(t, "list before they are loaded", err, group.ErrCoordinatorLoading)
		wantErr(t, "heartbeat before they are loaded", groups.Heartbeat(group.MemberIdentity{Group: "g"}), group.ErrCoordinatorLoading)
		stopGroups(t, groups)

		groups = startGroups(t, meta, topic.GroupsConfig{})
		_, err = groups.Describe("g")
		wantErr(t, "describe no group", err, group.ErrNoGroup)
		a := newConsumer(t, groups, "a", "static-a")
		gather(t, a)
		d, err := groups.Describe("g")
		if err != nil {
			t.Fatal(err)
		}
		want := group.MemberDescription{
			Member: a.Member, Instance: "static-a", Client: "a", Host: "/here",
			Metadata: subscribes("orders"), Assignment: assignment(1, a.Member),
		}
		if d.ProtocolType != "consumer" || d.Protocol != "range" || len(d.Members) != 1 || fmt.Sprint(d.Members[0]) != fmt.Sprint(want) {
			t.Errorf("described %+v, want %+v", d, want)
		}
		list, err := groups.List()
		if err != nil || len(list) != 1 || list[0].Name != "g" || list[0].State != group.Stable {
			t.Errorf("listed %+v, %v", list, err)
		}
		newConsumer(t, groups, "b", "").startJoin()
		if d, err := groups.Describe("g"); err != nil || d.State.String() != "PreparingRebalance" || d.Members[0].Assignment != nil || d.Protocol != "" {
			t.Errorf("described %+v, %v in a rebalance", d, err)
		}
	})
}
