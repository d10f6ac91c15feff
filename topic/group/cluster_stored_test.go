package group_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic/group"
)

// The deletion of a topic removes the offsets of all groups on all nodes, including groups
// that had no coordinator then.
func TestForgetTopicEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		commitAll := func() {
			for i := range 20 {
				name := fmt.Sprint("group-", i)
				node, err := n.groups[1].Coordinator(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				errs, err := n.groups[node].Commit(group.CommitRequest{
					MemberIdentity: group.MemberIdentity{Group: name, Generation: -1},
					Offsets:        []group.OffsetCommit{{Topic: "orders", Offset: 1}},
				}).Wait(t.Context())
				if errors.Join(append(errs, err)...) != nil {
					t.Fatal(errs, err)
				}
			}
		}
		left := func() int {
			synctest.Wait()
			items, err := n.Store(1).Meta().List(t.Context(), "offsets/")
			if err != nil {
				t.Fatal(err)
			}
			return len(items)
		}
		commitAll()
		n.makeTopic("orders", `"id":"00000000000000000000000000000001","deleting":true`)
		if err := n.groups[1].ForgetTopic(t.Context(), "orders"); err != nil || left() != 0 {
			t.Fatalf("%v; %d groups still have offsets", err, left())
		}

		n.makeTopic("orders", `"id":"00000000000000000000000000000002"`)
		time.Sleep(2 * time.Second)
		commitAll()
		n.end(3)
		n.Kill(3)
		for _, id := range []int32{1, 2} { // no node sees it until the slots move
			n.Store(id).Lag(true)
		}
		time.Sleep(30 * time.Second)
		if left() != 20 {
			t.Fatalf("%d groups have offsets, want 20", left())
		}
		n.makeTopic("orders", `"id":"00000000000000000000000000000002","deleting":true`)
		for _, id := range []int32{1, 2} {
			n.Store(id).Lag(false)
		}
		n.settle()
		if left() != 0 {
			t.Fatalf("%d groups still have offsets", left())
		}
	})
}

// A group that cannot be read keeps its slot from being served, and no other.
func TestGroupThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		first := n.coordinator()
		n.put("groups/g", `{"format":2}`)
		n.kill(first)
		n.settle()
		if serving := n.coordinators(); len(serving) > 0 {
			t.Fatalf("nodes %v serve a group that cannot be read", serving)
		}
		served := 0
		for i := range 100 {
			node, err := n.groups[first%3+1].Coordinator(t.Context(), fmt.Sprint("group-", i))
			if err != nil {
				continue
			}
			if _, err := n.groups[node].Offsets(fmt.Sprint("group-", i)); err == nil {
				served++
			}
		}
		if served < 90 {
			t.Errorf("%d of 100 other groups are served", served)
		}
		n.put("groups/g", `{"format":1,"generation":7,"protocol_type":"consumer"}`)
		n.settle()
		wantState(t, n.move(), group.Empty, 0)
	})
}
