package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// admin returns a client that commits without being a member: a tool.
func admin(t *testing.T, groups *group.Groups) *consumer {
	c := newConsumer(t, groups, "", "")
	c.MemberIdentity = group.MemberIdentity{Group: "g", Generation: -1}
	return c
}

func TestWhoMayCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		tool := admin(t, groups)
		if err := tool.commit(0, 1); err != nil {
			t.Fatalf("commit into an empty group: %v", err)
		}
		a := newConsumer(t, groups, "a", "")
		wantErr(t, "commit of who never joined", (&consumer{t: t, groups: groups, MemberIdentity: group.MemberIdentity{
			Group: "g", Member: "nobody", Generation: 3}}).commit(0, 9), group.ErrUnknownMember)
		wantErr(t, "commit of a member of a group that is not there", (&consumer{t: t, groups: groups, MemberIdentity: group.MemberIdentity{
			Group: "other", Member: "nobody", Generation: 3}}).commit(0, 9), group.ErrIllegalGeneration)
		join(t, a)
		wantErr(t, "commit before the assignment is known", a.commit(0, 9), group.ErrRebalanceInProgress)
		gather(t, a)
		wantErr(t, "commit of a tool", tool.commit(0, 9), group.ErrUnknownMember)
		if err := a.commit(0, 2); err != nil {
			t.Fatal(err)
		}
		b := newConsumer(t, groups, "b", "")
		joining := b.startJoin()
		if err := a.commit(0, 3); err != nil {
			t.Fatalf("commit before joining again: %v", err)
		}
		old := *a
		again := a.startJoin()
		if err := errors.Join(b.finishJoin(joining), a.finishJoin(again)); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "commit of the old generation", old.commit(0, 9), group.ErrIllegalGeneration)
		wantOffsets(t, groups, map[int32]int64{0: 3})
	})
}

// A commit is answered when it is durable, and not visible before.
func TestCommitWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		tool := admin(t, groups)
		release := meta.hold()
		answers := make([]*group.Awaited[[]error], 50)
		for i := range answers {
			answers[i] = groups.Commit(group.CommitRequest{MemberIdentity: tool.MemberIdentity, Offsets: []group.OffsetCommit{
				{Topic: "orders", Partition: int32(i % 5), Offset: int64(i)}, {Topic: "refunds", Partition: 0, Offset: int64(i)},
			}})
			if settled(answers[i]) {
				t.Fatal("a commit is answered that is not durable")
			}
		}
		wantOffsets(t, groups, map[int32]int64{})
		release()
		for _, answer := range answers {
			if errs, err := answer.Wait(t.Context()); errors.Join(append(errs, err)...) != nil {
				t.Fatal(errs, err)
			}
		}
		wantOffsets(t, groups, map[int32]int64{0: 45, 1: 46, 2: 47, 3: 48, 4: 49})
		if puts := meta.putsOf("offsets/g/orders"); puts != 2 {
			t.Errorf("%d writes, want 2: the first, and one for all that came during it", puts)
		}
		stopGroups(t, groups)
		wantOffsets(t, startGroups(t, meta, topic.GroupsConfig{}), map[int32]int64{0: 45, 1: 46, 2: 47, 3: 48, 4: 49})
	})
}

func TestCommitThatCannotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		errs, err := groups.Commit(group.CommitRequest{MemberIdentity: admin(t, groups).MemberIdentity, Offsets: []group.OffsetCommit{
			{Topic: "orders", Partition: 0, Offset: 1, Metadata: strings.Repeat("x", 4096)},
			{Topic: "orders", Partition: 1, Offset: 1, Metadata: strings.Repeat("x", 4097)},
			{Topic: "orders", Partition: 2, Offset: 1, Metadata: "\xff"},
			{Topic: "orders", Partition: -1, Offset: 1},
		}}).Wait(t.Context())
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		wantErr(t, "commit with a text that is too long", errs[1], group.ErrOffsetMetadataTooLarge)
		wantErr(t, "commit with a text that is none", errs[2], group.ErrInvalidGroupRequest)
		wantErr(t, "commit of partition -1", errs[3], group.ErrInvalidGroupRequest)
		wantOffsets(t, groups, map[int32]int64{0: 1})

		// A thousand of the longest texts do not fit into one value.
		offsets := make([]group.OffsetCommit, 1100)
		for i := range offsets {
			offsets[i] = group.OffsetCommit{Topic: "orders", Partition: int32(i), Offset: 2, Metadata: strings.Repeat("x", 4096)}
		}
		errs, err = groups.Commit(group.CommitRequest{MemberIdentity: admin(t, groups).MemberIdentity, Offsets: offsets}).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "commit of more than fits", errs[0], group.ErrOffsetMetadataTooLarge)
		wantOffsets(t, groups, map[int32]int64{0: 1})
	})
}

func TestOffsetsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{OffsetRetention: time.Hour})
		a := newConsumer(t, groups, "a", "")
		gather(t, a)
		for range 6 * 100 { // ten hours with heartbeats only
			time.Sleep(9 * time.Second)
			if err := a.heartbeat(); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.commit(0, 1); err != nil {
			t.Fatal(err)
		}
		for range 6 * 100 {
			time.Sleep(9 * time.Second)
			if err := a.heartbeat(); err != nil {
				t.Fatal(err)
			}
		}
		wantOffsets(t, groups, map[int32]int64{0: 1})
		leave(t, a)
		time.Sleep(time.Hour - time.Minute)
		wantOffsets(t, groups, map[int32]int64{0: 1})
		stopGroups(t, groups) // when it became empty is durable
		groups = startGroups(t, meta, topic.GroupsConfig{OffsetRetention: time.Hour})
		wantOffsets(t, groups, map[int32]int64{0: 1})
		time.Sleep(11 * time.Minute)
		wantOffsets(t, groups, map[int32]int64{})
		time.Sleep(10 * time.Minute)
		if keys := meta.keys(t); len(keys) != 0 {
			t.Errorf("%q are left of a group that is forgotten", keys)
		}
		_, err := groups.Describe("g")
		wantErr(t, "describe a group that is forgotten", err, group.ErrNoGroup)
	})
}

func leave(t *testing.T, c *consumer) {
	t.Helper()
	errs, err := c.groups.Leave("g", []group.MemberIdentity{{Group: "g", Member: c.Member}})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// A group with members drops the offsets of topics that it no longer reads.
func TestOffsetsOfTopicsThatNobodyReadsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{OffsetRetention: time.Hour})
		if _, err := groups.Commit(group.CommitRequest{
			MemberIdentity: admin(t, groups).MemberIdentity,
			Offsets:        []group.OffsetCommit{{Topic: "orders", Offset: 1}, {Topic: "refunds", Offset: 1}},
		}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := newConsumer(t, groups, "a", "")
		gather(t, a)
		for range 500 {
			time.Sleep(9 * time.Second)
			if err := a.heartbeat(); err != nil {
				t.Fatal(err)
			}
		}
		offsets, err := groups.Offsets("g")
		if err != nil || len(offsets["orders"]) != 1 || len(offsets["refunds"]) != 0 {
			t.Fatalf("committed %v, %v; want those of orders, which is read", offsets, err)
		}
	})
}

func TestRetentionOfACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		if _, err := groups.Commit(group.CommitRequest{
			MemberIdentity: admin(t, groups).MemberIdentity, Retention: time.Hour,
			Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 1}},
		}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		wantOffsets(t, groups, map[int32]int64{0: 1})
		time.Sleep(20 * time.Minute)
		wantOffsets(t, groups, map[int32]int64{})
	})
}

func TestDeleteOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		_, err := groups.DeleteOffsets("g", nil).Wait(t.Context())
		wantErr(t, "delete offsets of no group", err, group.ErrNoGroup)
		if _, err := groups.Commit(group.CommitRequest{
			MemberIdentity: admin(t, groups).MemberIdentity,
			Offsets:        []group.OffsetCommit{{Topic: "orders", Offset: 1}, {Topic: "refunds", Offset: 1}},
		}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := newConsumer(t, groups, "a", "")
		gather(t, a)
		errs, err := groups.DeleteOffsets("g", []group.OffsetDelete{{Topic: "orders"}, {Topic: "refunds"}}).Wait(t.Context())
		if err != nil || errs[1] != nil {
			t.Fatal(err, errs)
		}
		wantErr(t, "delete offsets of a topic that is read", errs[0], group.ErrSubscribed)
		leave(t, a)
		if errs, err := groups.DeleteOffsets("g", []group.OffsetDelete{{Topic: "orders"}}).Wait(t.Context()); err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		if keys := meta.keys(t); len(keys) != 1 || keys[0] != "groups/g" {
			t.Errorf("stored %q, want the group only", keys)
		}

		worker := newConsumer(t, groups, "w", "")
		worker.join.ProtocolType = "connect"
		gather(t, worker)
		_, err = groups.DeleteOffsets("g", []group.OffsetDelete{{Topic: "orders"}}).Wait(t.Context())
		wantErr(t, "delete offsets of a group that are no consumers", err, group.ErrGroupNotEmpty)
	})
}

func TestDeleteGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		_, err := groups.Delete("g").Wait(t.Context())
		wantErr(t, "delete no group", err, group.ErrNoGroup)
		a := newConsumer(t, groups, "a", "")
		gather(t, a)
		if err := a.commit(0, 1); err != nil {
			t.Fatal(err)
		}
		_, err = groups.Delete("g").Wait(t.Context())
		wantErr(t, "delete a group with members", err, group.ErrGroupNotEmpty)
		leave(t, a)
		synctest.Wait()

		meta.failNext(1, errors.New("disk on fire"), false)
		_, err = groups.Delete("g").Wait(t.Context())
		wantErr(t, "delete while the store fails", err, group.ErrCoordinatorUnavailable)
		wantOffsets(t, groups, map[int32]int64{0: 1})

		release := meta.hold()
		deleting := groups.Delete("g")
		wantErr(t, "join while it is deleted", a.finishJoin(a.startJoin()), group.ErrCoordinatorLoading)
		release()
		if _, err := deleting.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if keys := meta.keys(t); len(keys) != 0 {
			t.Errorf("%q are left of a deleted group", keys)
		}
		wantOffsets(t, groups, map[int32]int64{})
		a.Member = ""
		gather(t, a)
		if a.Generation != 1 {
			t.Errorf("generation %d, want the first of another group", a.Generation)
		}
	})
}

func TestForgetTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		commit := func(groupName string) *group.Awaited[[]error] {
			return groups.Commit(group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: groupName, Generation: -1}, Offsets: []group.OffsetCommit{
				{Topic: "orders", Partition: 1, Offset: 1}, {Topic: "refunds", Offset: 1},
			}})
		}
		if _, err := commit("a/b").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		release := meta.hold()
		commit("g") // being written
		synctest.Wait()
		commit("g") // waits
		forgotten := make(chan error)
		go func() { forgotten <- groups.ForgetTopic(t.Context(), "orders") }()
		synctest.Wait()
		release()
		if err := <-forgotten; err != nil {
			t.Fatal(err)
		}
		for _, group := range []string{"a/b", "g"} {
			offsets, err := groups.Offsets(group)
			if err != nil || len(offsets["orders"]) != 0 || len(offsets["refunds"]) != 1 {
				t.Errorf("group %q has %v, %v; want those of refunds only", group, offsets, err)
			}
		}
		if keys := fmt.Sprint(meta.keys(t)); keys != "[offsets/a/b/refunds offsets/g/refunds]" {
			t.Errorf("stored %v", keys)
		}
	})
}

func TestStopAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		joining := b.startJoin()
		release := meta.hold()
		committing := groups.Commit(group.CommitRequest{MemberIdentity: a.MemberIdentity, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 7}}})
		stopped := make(chan error)
		go func() { stopped <- groups.Stop(context.WithoutCancel(t.Context())) }()
		_, err := joining.Wait(t.Context())
		wantErr(t, "a join that waits", err, topic.ErrClosed)
		if settled(committing) {
			t.Fatal("a commit is answered that is not durable")
		}
		release()
		if errs, err := committing.Wait(t.Context()); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		wantErr(t, "heartbeat", a.heartbeat(), topic.ErrClosed)
		wantOffsets(t, startGroups(t, meta, topic.GroupsConfig{}), map[int32]int64{0: 7})
	})
}

// A topic that is created again does not start at the offsets of the old one.
func TestDeletedTopicIsForgotten(t *testing.T) {
	b, err := broker.New(storetest.NewMemory(), topic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if _, err := b.Create(t.Context(), topic.Spec{Name: "orders"}, false); err != nil {
		t.Fatal(err)
	}
	if err := admin(t, b.Groups()).commit(0, 7); err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, b.Groups(), map[int32]int64{0: 7})
	if err := b.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, b.Groups(), map[int32]int64{})
}
