package group_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// join joins a member that is the only one to join.
func join(t *testing.T, c *consumer) {
	t.Helper()
	if err := c.finishJoin(c.startJoin()); err != nil {
		t.Fatalf("%s joins: %v", c.join.Client, err)
	}
}

func TestSilentMemberIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		joining := a.startJoin()
		if err := a.finishJoin(joining); err != nil {
			t.Fatal(err)
		}
		gather(t, b, a) // a rebalance that a learns of at once
		for range 3 {
			time.Sleep(9 * time.Second)
			if err := a.heartbeat(); err != nil {
				break
			}
		}
		wantErr(t, "heartbeat of the one that is left", a.heartbeat(), group.ErrRebalanceInProgress)
		wantErr(t, "heartbeat of the silent one", b.heartbeat(), group.ErrUnknownMember)
		gather(t, a)
		wantState(t, groups, group.Stable, 1)
		time.Sleep(10*time.Second - 1)
		wantState(t, groups, group.Stable, 1)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantState(t, groups, group.Empty, 0)
		a.Member = ""
		gather(t, a)
		if a.Generation != 5 { // the empty one counts
			t.Fatalf("generation %d, want 5", a.Generation)
		}
	})
}

// Every request of a member extends its session.
func TestWhatKeepsASession(t *testing.T) {
	does := map[string]func(c *consumer) error{
		"heartbeat":  (*consumer).heartbeat,
		"commit":     func(c *consumer) error { return c.commit(0, 1) },
		"join again": func(c *consumer) error { return c.finishJoin(c.startJoin()) },
		"sync again": func(c *consumer) error {
			_, err := c.startSync().Wait(c.t.Context())
			return err
		},
	}
	for name, do := range does {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
				leader, a := newConsumer(t, groups, "leader", ""), newConsumer(t, groups, "a", "")
				leader.join.Session = time.Minute
				gather(t, leader)
				gather(t, a, leader)
				for range 4 {
					time.Sleep(9 * time.Second)
					if err := do(a); err != nil {
						t.Fatal(err)
					}
				}
				wantState(t, groups, group.Stable, 2)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				wantState(t, groups, group.PreparingRebalance, 1)
			})
		})
	}
}

// A session is suspended while the member waits for the leader, and starts again when it
// gets its assignment.
func TestSessionBeginsWithTheAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		leader, a := newConsumer(t, groups, "leader", ""), newConsumer(t, groups, "a", "")
		leader.join.Session = time.Minute
		gather(t, leader)
		joining, leading := a.startJoin(), leader.startJoin()
		if err := errors.Join(a.finishJoin(joining), leader.finishJoin(leading)); err != nil {
			t.Fatal(err)
		}
		syncing := a.startSync()
		time.Sleep(12 * time.Second)
		if _, err := leader.startSync().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := syncing.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second - 1)
		wantState(t, groups, group.Stable, 2)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantState(t, groups, group.PreparingRebalance, 1)
	})
}

// Members that do not join again within the rebalance timeout are dropped, though
// their sessions are alive.
func TestRebalanceTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		joining := b.startJoin()
		for range 5 {
			time.Sleep(5 * time.Second)
			wantErr(t, "heartbeat while others join", a.heartbeat(), group.ErrRebalanceInProgress)
		}
		if settled(joining) {
			t.Fatal("the join ended before the rebalance timeout")
		}
		time.Sleep(5 * time.Second)
		if !settled(joining) {
			t.Fatal("the join did not end with the rebalance timeout")
		}
		if err := b.finishJoin(joining); err != nil {
			t.Fatal(err)
		}
		if !b.leader || len(b.joined.Members) != 1 {
			t.Fatalf("the new generation is %+v, want b alone, and leading", b.joined)
		}
		wantErr(t, "heartbeat of the one that did not join", a.heartbeat(), group.ErrUnknownMember)
	})
}

// A member that never asks for its assignment does not delay the others forever.
func TestSyncTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		a.join.Session, b.join.Session = 5*time.Minute, 5*time.Minute
		gather(t, a)
		joinA, joinB := b.startJoin(), a.startJoin()
		if err := b.finishJoin(joinA); err != nil {
			t.Fatal(err)
		}
		if err := a.finishJoin(joinB); err != nil {
			t.Fatal(err)
		}
		syncing := b.startSync() // a leads, and does not sync
		time.Sleep(30*time.Second - 1)
		if settled(syncing) {
			t.Fatal("the sync ended before the leader synced")
		}
		time.Sleep(time.Nanosecond)
		_, err := syncing.Wait(t.Context())
		wantErr(t, "sync without a leader", err, group.ErrRebalanceInProgress)
		gather(t, b)
		wantState(t, groups, group.Stable, 1)
	})
}

// A member in a pending join is not dropped, however long that takes.
func TestJoiningMemberIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b, c := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", ""), newConsumer(t, groups, "c", "")
		a.join.Rebalance = 2 * time.Minute
		gather(t, a)
		gather(t, b, a)
		first, second := c.startJoin(), b.startJoin()
		for range 23 {
			time.Sleep(5 * time.Second)
			wantErr(t, "heartbeat while others join", a.heartbeat(), group.ErrRebalanceInProgress)
		}
		last := a.startJoin()
		if err := errors.Join(c.finishJoin(first), b.finishJoin(second), a.finishJoin(last)); err != nil {
			t.Fatal(err)
		}
		wantState(t, groups, group.CompletingRebalance, 3)
	})
}

// A new member whose connection was lost during a very long rebalance is dropped
// after five minutes.
func TestNewMemberTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		a.join.Rebalance, a.join.Session = time.Hour, 20*time.Minute
		gather(t, a)
		joining := b.startJoin()
		time.Sleep(5*time.Minute - 1)
		wantState(t, groups, group.PreparingRebalance, 2)
		time.Sleep(time.Nanosecond)
		_, err := joining.Wait(t.Context())
		wantErr(t, "the join of a member that waits too long", err, group.ErrUnknownMember)
		wantState(t, groups, group.PreparingRebalance, 1)
	})
}

// An id that was given out delays the rebalance until it is used or its session
// ends.
func TestPendingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		b.join.RequireMember = true
		wantErr(t, "join without an id", b.finishJoin(b.startJoin()), group.ErrMemberIDRequired)
		joining := a.startJoin()
		time.Sleep(10*time.Second - 1)
		if settled(joining) {
			t.Fatal("the group did not wait for the one that was given an id")
		}
		time.Sleep(time.Nanosecond)
		if err := a.finishJoin(joining); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "join with an id that is too old", b.finishJoin(b.startJoin()), group.ErrUnknownMember)

		b.Member = ""
		wantErr(t, "join without an id", b.finishJoin(b.startJoin()), group.ErrMemberIDRequired)
		gather(t, b, a)
		wantState(t, groups, group.Stable, 2)
	})
}

func TestInitialDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{InitialDelay: 3 * time.Second})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		first := a.startJoin()
		time.Sleep(2 * time.Second)
		second := b.startJoin() // within the delay, so that it starts again
		time.Sleep(4*time.Second - 1)
		if settled(first) || settled(second) {
			t.Fatal("the first rebalance did not wait for more members")
		}
		time.Sleep(time.Nanosecond)
		for c, joining := range map[*consumer]*group.Awaited[group.JoinResult]{a: first, b: second} {
			if !settled(joining) {
				t.Fatal("the first rebalance waits longer than the delay")
			}
			if err := c.finishJoin(joining); err != nil {
				t.Fatal(err)
			}
			if c.Generation != 1 {
				t.Errorf("generation %d, want all in the first", c.Generation)
			}
		}
	})
}

// While members keep arriving, the first rebalance waits no longer than the rebalance
// timeout.
func TestInitialDelayHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{InitialDelay: 3 * time.Second})
		first := newConsumer(t, groups, "first", "").startJoin()
		for range 14 {
			time.Sleep(2 * time.Second)
			newConsumer(t, groups, "more", "").startJoin()
		}
		if settled(first) {
			t.Fatal("the first rebalance ended though members come")
		}
		time.Sleep(2 * time.Second)
		if !settled(first) {
			t.Fatal("the first rebalance goes on beyond the rebalance timeout")
		}
	})
}

func TestStaticMemberSurvivesARestartOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", "static-a"), newConsumer(t, groups, "b", "static-b")
		gather(t, a)
		gather(t, b, a)
		old := *b
		time.Sleep(9 * time.Second)
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
		b.Member = ""
		join(t, b)
		if b.Generation != old.Generation || b.Member == old.Member || b.leader {
			t.Fatalf("came back in generation %d with the id %q, want %d and another", b.Generation, b.Member, old.Generation)
		}
		if err := a.heartbeat(); err != nil {
			t.Fatalf("the others notice: %v", err)
		}
		result, err := b.startSync().Wait(t.Context())
		if err != nil || string(result.Assignment) != string(assignment(old.Generation, old.Member)) {
			t.Fatalf("came back to the assignment %q, %v; want its old one", result.Assignment, err)
		}
		wantErr(t, "heartbeat with the old id", old.heartbeat(), group.ErrFencedInstance)
		wantErr(t, "commit with the old id", old.commit(0, 1), group.ErrFencedInstance)

		stopGroups(t, groups)
		again := startGroups(t, meta, topic.GroupsConfig{})
		b.groups = again
		if err := b.heartbeat(); err != nil {
			t.Fatalf("its new id is not durable: %v", err)
		}
	})
}

// A static leader that comes back is not asked to assign again; a client without support
// for that is told that another member leads.
func TestStaticLeaderComesBack(t *testing.T) {
	for _, skips := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
			a := newConsumer(t, groups, "a", "static-a")
			gather(t, a)
			old := a.Member
			a.Member, a.join.SkipsAssignment = "", skips
			join(t, a)
			if a.leader != skips || a.joined.SkipAssignment != skips || !skips && a.joined.Leader != old {
				t.Fatalf("the leader comes back to %+v, skips: %v", a.joined, skips)
			}
			wantState(t, groups, group.Stable, 1)
		})
	}
}

// A static member that reads other topics when it comes back needs another
// assignment.
func TestStaticMemberWithAnotherSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a := newConsumer(t, groups, "a", "static-a")
		gather(t, a)
		a.Member = ""
		a.join.Protocols = []group.Protocol{{Name: "range", Metadata: subscribes("orders", "refunds")}}
		gather(t, a)
		if a.Generation != 2 {
			t.Fatalf("generation %d, want a new one", a.Generation)
		}
	})
}

// A static member that is away keeps its place in rebalances until its session ends.
func TestAbsentStaticMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{})
		a, b, away := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", ""), newConsumer(t, groups, "away", "static")
		for _, c := range []*consumer{a, b, away} {
			c.join.Rebalance = 5 * time.Second
		}
		away.join.Session = time.Minute
		gather(t, a)
		gather(t, away, a)
		joinB, joinA := b.startJoin(), a.startJoin()
		time.Sleep(5 * time.Second)
		for c, joining := range map[*consumer]*group.Awaited[group.JoinResult]{a: joinA, b: joinB} {
			if err := c.finishJoin(joining); err != nil {
				t.Fatal(err)
			}
		}
		if len(a.joined.Members) != 3 {
			t.Fatalf("the leader sees %v, want the one that is away too", a.joined.Members)
		}
		for _, syncing := range []*group.Awaited[group.SyncResult]{b.startSync(), a.startSync()} {
			if _, err := syncing.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 6 {
			time.Sleep(9 * time.Second)
			if err := a.heartbeat(); err != nil {
				t.Fatalf("rebalance before the session of the one that is away ended: %v", err)
			}
			if err := b.heartbeat(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantErr(t, "heartbeat", a.heartbeat(), group.ErrRebalanceInProgress)
	})
}
