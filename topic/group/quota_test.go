package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// commits makes a group by a commit of somebody who is no member.
func commits(t *testing.T, groups *group.Groups, name string) {
	t.Helper()
	errs, err := groups.Commit(group.CommitRequest{
		MemberIdentity: group.MemberIdentity{Group: name, Generation: -1}, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 1}},
	}).Wait(t.Context())
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// An owner has as many groups as the quota says. Those that are removed, and after ten minutes those that came to nothing, make room;
// groups that have members, or only offsets, stay counted, over a restart too.
func TestOwnersHaveQuotasOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		admit := func(name, owner string) error { return groups.Admit(t.Context(), name, owner, 3) }
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		refused := func(doing string, err error) {
			t.Helper()
			if !errors.Is(err, group.ErrTooManyGroups) || !strings.Contains(err.Error(), "ada has 3, and one more would exceed max_groups, 3") {
				t.Errorf("%s: %v, want ErrTooManyGroups that names the quota", doing, err)
			}
		}
		must(errors.Join(admit("offsets", "ada"), admit("members", "ada"), admit("nothing", "ada"), admit("bobs", "bob")))
		must(admit("nothing", "ada")) // again: it is counted once
		refused("a group too many", admit("more", "ada"))
		commits(t, groups, "offsets")
		member := newConsumer(t, groups, "a", "static")
		member.join.Group, member.Group = "members", "members"
		gather(t, member)
		refused("at once", admit("more", "ada"))
		time.Sleep(11 * time.Minute)
		must(errors.Join(admit("more", "ada"), admit("another", "ada"))) // the member of a group has left, and nothing of it remained
		refused("after groups that came to nothing were forgotten", admit("last", "ada"))
		commits(t, groups, "more")
		commits(t, groups, "another")
		time.Sleep(11 * time.Minute)

		stopGroups(t, groups)
		groups = startGroups(t, meta, topic.GroupsConfig{})
		refused("after a restart", admit("last", "ada"))
		_, err := groups.Delete("offsets").Wait(t.Context())
		must(err)
		must(admit("last", "ada"))
		refused("after a removed group was replaced", admit("offsets", "ada"))
		if groups.Lacks("more") || !groups.Lacks("offsets") {
			t.Error("the groups that are lacking are not those that do not exist")
		}
		meta.failNext(-1, errors.New("down"), false)
		if err := admit("another", "bob"); !errors.Is(err, group.ErrCoordinatorUnavailable) {
			t.Errorf("without the store: %v", err)
		}
	})
}

// slowMeta lets others write while it lists, in virtual time.
type slowMeta struct{ topic.Meta }

func (m slowMeta) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	items, err := m.Meta.List(ctx, prefix)
	time.Sleep(time.Millisecond)
	return items, err
}

// Nodes that make groups of an owner at the same time do not exceed the quota, and leave nothing of it unused.
func TestQuotasOfGroupsAreExactOverNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, each = 7, 20
		n := newGroupNodesOn(t, 3, func(meta topic.Meta) topic.Meta { return slowMeta{meta} })
		var mu sync.Mutex
		admitted := map[int32]int{}
		var all sync.WaitGroup
		for id, groups := range n.groups {
			for i := range each {
				name := fmt.Sprint("group-", i)
				if !groups.Lacks(name) { // another node coordinates it
					continue
				}
				all.Go(func() {
					switch err := groups.Admit(t.Context(), name, "ada", most); {
					case err == nil:
						mu.Lock()
						admitted[id]++
						mu.Unlock()
					case !errors.Is(err, group.ErrTooManyGroups):
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if total := admitted[1] + admitted[2] + admitted[3]; total != most {
			t.Errorf("%v groups were admitted by node, want %d", admitted, most)
		}
	})
}
