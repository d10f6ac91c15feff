package group_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic/group"
)

// depose lets another node claim the group from a coordinator that is not notified, and
// returns both.
func depose(t *testing.T, n *groupNodes) (deposed, next *group.Groups) {
	t.Helper()
	first := n.coordinator()
	n.Store(first).Lag(true)
	n.register(first, true)
	time.Sleep(5 * time.Second)
	serving := n.coordinators()
	if len(serving) != 2 || !slices.Contains(serving, first) {
		t.Fatalf("nodes %v believe that they coordinate the group, want %d and another", serving, first)
	}
	serving = slices.DeleteFunc(serving, func(id int32) bool { return id == first })
	return n.groups[first], n.groups[serving[0]]
}

// whatDeposedDo lists the ways in which a coordinator finds out that it was deposed.
var whatDeposedDo = map[string]func(t *testing.T, deposed *group.Groups, a *consumer){
	"commit": func(t *testing.T, _ *group.Groups, a *consumer) {
		if err := a.heartbeat(); err != nil {
			t.Fatal(err) // it does not know yet
		}
		wantErr(t, "commit", a.commit(0, 99), group.ErrNotCoordinator)
	},
	"join and sync": func(t *testing.T, _ *group.Groups, a *consumer) {
		join(t, a)
		_, err := a.startSync().Wait(t.Context())
		wantErr(t, "sync", err, group.ErrNotCoordinator)
	},
	"delete offsets": func(t *testing.T, deposed *group.Groups, _ *consumer) {
		errs, err := deposed.DeleteOffsets("g", []group.OffsetDelete{{Topic: "payments", Partition: 0}}).Wait(t.Context())
		wantErr(t, "delete offsets", errors.Join(append(errs, err)...), group.ErrNotCoordinator)
	},
	"the last member leaves": func(t *testing.T, deposed *group.Groups, a *consumer) {
		errs, err := deposed.Leave("g", []group.MemberIdentity{{Member: a.Member}})
		if errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err) // it does not know yet
		}
	},
	"confirm": func(t *testing.T, deposed *group.Groups, _ *consumer) {
		if err := deposed.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
	},
}

// consumerWithOffsets returns the only member of a group that has offsets in two
// topics.
func consumerWithOffsets(t *testing.T, n *groupNodes) *consumer {
	t.Helper()
	n.makeTopic("payments", `"id":"00000000000000000000000000000002"`)
	groups := n.move()
	errs, err := groups.Commit(group.CommitRequest{
		MemberIdentity: group.MemberIdentity{Group: "g", Generation: -1},
		Offsets:        []group.OffsetCommit{{Topic: "orders", Offset: 1}, {Topic: "payments", Offset: 7}},
	}).Wait(t.Context())
	if errors.Join(append(errs, err)...) != nil {
		t.Fatal(errs, err)
	}
	a := newConsumer(t, groups, "a", "")
	a.join.Session = 5 * time.Minute
	gather(t, a)
	return a
}

// A coordinator that does not know that it is deposed commits nothing, and gives no
// assignment to any member. Its attempts show it that it was deposed.
func TestDeposedCoordinator(t *testing.T) {
	for name, do := range whatDeposedDo {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newGroupNodes(t, 3)
				a := consumerWithOffsets(t, n)
				deposed, next := depose(t, n)
				do(t, deposed, a)
				synctest.Wait()
				wantErr(t, "heartbeat after that", a.heartbeat(), group.ErrNotCoordinator)
				_, err := deposed.Offsets("g")
				wantErr(t, "offsets after that", err, group.ErrNotCoordinator)

				wantOffsets(t, next, map[int32]int64{0: 1})
				a.groups = next
				if a.Generation > 1 { // begun by the deposed one
					wantErr(t, "heartbeat", a.heartbeat(), group.ErrIllegalGeneration)
					gather(t, a)
				}
				if err := errors.Join(a.heartbeat(), a.commit(0, 2)); err != nil {
					t.Fatal(err)
				}
				wantOffsets(t, next, map[int32]int64{0: 2})
				if offsets, err := next.Offsets("g"); err != nil || offsets["payments"][0].Offset != 7 {
					t.Fatalf("offsets %v, %v", offsets, err)
				}
			})
		})
	}
}

// A node that is cut off answers all requests, names no coordinator, and follows when it
// is back.
func TestCoordinatorIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		first := n.coordinator()
		old := n.groups[first]
		a, b := newConsumer(t, old, "a", ""), newConsumer(t, old, "b", "")
		gather(t, a)
		joining := b.startJoin()
		n.Cut(first)
		_, err := joining.Wait(t.Context())
		wantErr(t, "join that waits", err, group.ErrNotCoordinator)
		wantErr(t, "heartbeat", a.heartbeat(), group.ErrNotCoordinator)
		wantErr(t, "commit", a.commit(0, 1), group.ErrNotCoordinator)
		_, err = old.Coordinator(t.Context(), "g")
		wantErr(t, "coordinator", err, group.ErrCoordinatorUnavailable)
		wantErr(t, "confirm", old.Confirm(t.Context()), group.ErrCoordinatorUnavailable)

		n.move(a, b)
		if err := errors.Join(a.heartbeat(), a.commit(0, 1)); err != nil {
			t.Fatal(err)
		}
		n.Heal(first)
		if now := n.coordinator(); now == first {
			t.Fatal("a node that comes back takes the group at once")
		}
		n.settle()
		if now := n.coordinator(); now != first {
			t.Fatalf("node %d coordinates the group, want %d again", now, first)
		}
		wantOffsets(t, n.move(), map[int32]int64{0: 1})
	})
}
