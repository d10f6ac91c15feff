package group_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// Every group has one coordinator, which all nodes know, and only that one answers for
// it.
func TestGroupsAreSharedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		coordinates := map[int32]int{}
		for i := range 300 {
			name := fmt.Sprint("group-", i)
			node, err := n.groups[1].Coordinator(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			coordinates[node]++
			for id, groups := range n.groups {
				if other, err := groups.Coordinator(t.Context(), name); err != nil || other != node {
					t.Fatalf("node %d says that %s is coordinated by %d, %v; node 1 says %d", id, name, other, err, node)
				}
				_, err := groups.Describe(name)
				want := group.ErrNotCoordinator
				if id == node {
					want = group.ErrNoGroup
				}
				wantErr(t, fmt.Sprintf("describe %s at node %d", name, id), err, want)
			}
		}
		for id := range n.groups {
			if coordinates[id] < 50 {
				t.Errorf("node %d coordinates %d of 300 groups", id, coordinates[id])
			}
		}
	})
}

// Each node lists its own groups: together they list all groups, each once.
func TestGroupsAreListedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		for i := range 20 {
			name := fmt.Sprint("group-", i)
			node, err := n.groups[1].Coordinator(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			request := group.CommitRequest{
				MemberIdentity: group.MemberIdentity{Group: name, Generation: -1},
				Offsets:        []group.OffsetCommit{{Topic: "orders", Offset: 1}},
			}
			_, err = n.groups[node%3+1].Commit(request).Wait(t.Context())
			wantErr(t, "commit at another node", err, group.ErrNotCoordinator)
			if errs, err := n.groups[node].Commit(request).Wait(t.Context()); errors.Join(append(errs, err)...) != nil {
				t.Fatal(errs, err)
			}
		}
		listed := map[string]int{}
		for _, groups := range n.groups {
			list, err := groups.List()
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range list {
				listed[g.Name]++
			}
		}
		for name, times := range listed {
			if times != 1 {
				t.Errorf("%s is listed %d times", name, times)
			}
		}
		if len(listed) != 20 {
			t.Errorf("%d groups are listed, want 20", len(listed))
		}
		listWithout(t, n)
	})
}

// The coordinator of a stable group is killed: members continue at the next one, with
// their assignments and offsets.
func TestCoordinatorDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		groups := n.move()
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "static-b")
		gather(t, a)
		gather(t, b, a)
		if err := b.commit(3, 33); err != nil {
			t.Fatal(err)
		}
		first := n.coordinator()
		n.kill(first)
		groups = n.move(a, b)
		wantState(t, groups, group.Stable, 2)
		if err := errors.Join(a.heartbeat(), b.heartbeat(), a.commit(4, 44)); err != nil {
			t.Fatal(err)
		}
		wantOffsets(t, groups, map[int32]int64{3: 33, 4: 44})

		// It comes back, and takes over its slots again.
		n.restart(first)
		time.Sleep(5 * time.Second)
		if now := n.coordinator(); now != first {
			t.Fatalf("node %d coordinates the group, want %d", now, first)
		}
		groups = n.move(a, b)
		if err := errors.Join(a.heartbeat(), b.heartbeat(), a.commit(4, 45)); err != nil {
			t.Fatal(err)
		}
		wantOffsets(t, groups, map[int32]int64{3: 33, 4: 45})
		gather(t, a, b)
		if want := int32(2 + 100*2 + 1); a.Generation != want {
			t.Errorf("generation %d, want %d: 2 was stored, and the slot was claimed twice since", a.Generation, want)
		}
	})
}

// Two nodes do not hear each other, while the third hears both: they do not take groups
// from each other all the time. Afterwards the groups are at their preferred owners.
func TestNodesThatDoNotHearEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		n.Store(2).Unheard(3)
		n.Store(3).Unheard(2)
		time.Sleep(20 * time.Minute)
		claims := 0
		for _, meta := range n.metas {
			for slot := range 32 {
				claims += meta.putsOf(fmt.Sprint("coordinators/", slot))
			}
		}
		// Each of 32 slots was claimed once, and some are in dispute once a minute.
		if claims > 32*30 {
			t.Errorf("groups were claimed %d times in 20 minutes", claims)
		}
		n.Store(2).Unheard()
		n.Store(3).Unheard()
		n.settle()
		first := n.coordinator()
		n.kill(first)
		n.settle()
		if n.coordinator() == first {
			t.Errorf("node %d is dead, and coordinates the group", first)
		}
	})
}

// The coordinator is killed in a rebalance. The next one does not know the generation that
// had begun there, and does not use its number again.
func TestCoordinatorDiesInARebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		groups := n.move()
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		joinB, joinA := b.startJoin(), a.startJoin()
		if err := errors.Join(b.finishJoin(joinB), a.finishJoin(joinA)); err != nil {
			t.Fatal(err)
		}
		told := a.Generation
		first := n.coordinator()
		n.kill(first)
		n.move(a, b)
		wantErr(t, "heartbeat of a", a.heartbeat(), group.ErrIllegalGeneration)
		wantErr(t, "commit of a", a.commit(0, 1), group.ErrIllegalGeneration)
		wantErr(t, "heartbeat of b", b.heartbeat(), group.ErrUnknownMember)
		second := n.coordinator()
		n.kill(second)
		if serving := n.coordinators(); len(serving) > 0 {
			t.Fatalf("nodes %v coordinate without a majority", serving)
		}
		n.restart(first)
		n.restart(second)
		time.Sleep(7 * time.Second)
		n.move(a, b)
		b.Member, b.Generation = "", -1
		gather(t, b, a)
		if a.Generation <= told {
			t.Errorf("generation %d after %d", a.Generation, told)
		}
	})
}

// The coordinator is killed while it stores a generation: the next one may know it or not,
// and no member has got an assignment that is not stored.
func TestCoordinatorDiesBetweenSyncAndWrite(t *testing.T) {
	for name, applied := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newGroupNodes(t, 3)
				groups := n.move()
				first := n.coordinator()
				a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "static-b")
				gather(t, a)
				joinB, joinA := b.startJoin(), a.startJoin()
				if err := errors.Join(b.finishJoin(joinB), a.finishJoin(joinA)); err != nil {
					t.Fatal(err)
				}
				told := a.Generation
				n.Store(first).FailPuts("groups/", topic.ErrUncertain, applied)
				release := func() {}
				if !applied {
					release = n.metas[first].hold()
				}
				syncA, syncB := a.startSync(), b.startSync()
				synctest.Wait()
				n.Kill(first)
				release()
				n.end(first)
				for _, syncing := range []*group.Awaited[group.SyncResult]{syncA, syncB} {
					if _, err := syncing.Wait(t.Context()); err == nil && !applied {
						t.Fatal("an assignment was told that is not stored")
					}
				}
				groups = n.move(a, b)
				if applied {
					wantState(t, groups, group.Stable, 2)
					if err := errors.Join(a.heartbeat(), b.heartbeat()); err != nil {
						t.Fatal(err)
					}
					result, err := b.startSync().Wait(t.Context())
					if err != nil || string(result.Assignment) != string(assignment(told, b.Member)) {
						t.Fatalf("b is assigned %q, %v", result.Assignment, err)
					}
					return
				}
				wantState(t, groups, group.Stable, 1)
				wantErr(t, "heartbeat", a.heartbeat(), group.ErrIllegalGeneration)
				b.Member = ""
				gather(t, b, a)
				if a.Generation <= told {
					t.Errorf("generation %d after %d", a.Generation, told)
				}
			})
		})
	}
}

// A node that stops answers its commits, and others take over its groups at once.
func TestCoordinatorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		first := n.coordinator()
		groups := n.groups[first]
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		joining := b.startJoin()
		began := time.Now()
		n.end(first)
		_, err := joining.Wait(t.Context())
		wantErr(t, "join that waits", err, topic.ErrClosed)
		n.move(a)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the group is without a coordinator for %v", took)
		}
		node, err := groups.Coordinator(t.Context(), "g")
		if err != nil || node != n.coordinator() {
			t.Errorf("the node that stops says that node %d coordinates, %v", node, err)
		}
		if err := errors.Join(a.heartbeat(), a.commit(0, 1)); err != nil && !errors.Is(err, group.ErrRebalanceInProgress) {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // others do not count it as a candidate
		if now := n.coordinator(); now == first {
			t.Fatal("the node that has stopped coordinates")
		}
	})
}

// The only node of a cluster starts again and owns its groups at once.
func TestClusterOfOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 1)
		a := newConsumer(t, n.move(), "a", "")
		gather(t, a)
		n.end(1)
		n.start(1)
		n.move(a)
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
		n.Kill(1)
		n.end(1)
		n.restart(1)
		n.move(a)
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
	})
}

// Any number of generations is begun and not stored, on any node: no number is given
// twice.
func TestGenerationsAreNotUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		a := newConsumer(t, n.move(), "a", "static-a")
		a.join.Session = 10 * time.Minute
		gather(t, a)
		told := map[int32]bool{a.Generation: true}
		last := a.Generation
		begun := 0
		for round := range 350 {
			n.move(a)
			if round%120 == 119 {
				id := n.coordinator()
				n.kill(id)
				n.restart(id)
				continue
			}
			for id := range n.groups {
				n.Store(id).FailPuts("groups/", errors.New("disk on fire"), false)
			}
			if err := a.finishJoin(a.startJoin()); err != nil {
				wantErr(t, "join", err, group.ErrNotCoordinator)
				time.Sleep(2 * time.Second)
				continue
			}
			begun++
			if told[a.Generation] || a.Generation < last {
				t.Fatalf("generation %d was told before, or is below %d", a.Generation, last)
			}
			told[a.Generation], last = true, a.Generation
			_, err := a.startSync().Wait(t.Context())
			wantErr(t, "sync", err, group.ErrCoordinatorUnavailable)
		}
		if begun < 300 {
			t.Errorf("only %d generations were begun", begun)
		}
	})
}

// listWithout kills node 3: the others do not omit its groups silently, and list them
// when they have taken them over.
func listWithout(t *testing.T, n *groupNodes) {
	t.Helper()
	for id := range int32(2) {
		n.Store(id+1).FailPuts("coordinators/", errors.New("no"), false)
	}
	n.kill(3)
	synctest.Wait()
	for id := range int32(2) {
		_, err := n.groups[id+1].List()
		wantErr(t, "list while some have no coordinator", err, group.ErrCoordinatorUnavailable)
		n.Store(id+1).FailPuts("coordinators/", nil, false)
	}
	n.settle()
	count := 0
	for id := range int32(2) {
		list, err := n.groups[id+1].List()
		if err != nil {
			t.Fatal(err)
		}
		count += len(list)
	}
	if count != 20 {
		t.Errorf("%d groups are listed without node 3, want 20", count)
	}
}
