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

// largeMember returns a future member of a group of its own, which brings so many bytes.
func largeMember(t *testing.T, groups *group.Groups, name, instance string, bytes int) *consumer {
	c := newConsumer(t, groups, name, instance)
	c.Group, c.join.Group = "group of "+name, "group of "+name
	c.brings(bytes)
	return c
}

// brings sets how many bytes of metadata a consumer joins with.
func (c *consumer) brings(bytes int) {
	c.join.Protocols = []group.Protocol{{Name: "range", Metadata: make([]byte, bytes)}}
}

// wantCounted checks that groups count exactly what their members have.
func wantCounted(groups *group.Groups) error {
	counted, have := group.Counted(groups)
	if counted != have {
		return fmt.Errorf("the groups count %d bytes; their members have %d", counted, have)
	}
	return nil
}

// The members of all groups together may bring so many bytes, whichever group they are in. Members that
// are there may come back, and bring less.
func TestBytesOfAllGroupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{BytesTotal: 1 << 20})
		a, b, c := largeMember(t, groups, "a", "", 400<<10), largeMember(t, groups, "b", "static", 400<<10), largeMember(t, groups, "c", "", 400<<10)
		join(t, a)
		join(t, b)
		wantErr(t, "a third member", c.finishJoin(c.startJoin()), group.ErrGroupTooLarge)
		b.Member = ""
		join(t, b) // an instance that comes back brings nothing new
		join(t, a)
		b.brings(700 << 10)
		wantErr(t, "a member that brings more", b.finishJoin(b.startJoin()), group.ErrGroupTooLarge)
		b.brings(100 << 10)
		join(t, b)
		join(t, c)
		if err := wantCounted(groups); err != nil {
			t.Error(err)
		}
	})
}

// Assignments count, while they are stored and as long as members have them.
func TestAssignmentsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{BytesTotal: 1 << 20})
		a, b := largeMember(t, groups, "a", "", 100), largeMember(t, groups, "b", "", 100)
		join(t, a)
		join(t, b)
		assign := func(c *consumer, bytes int) *group.Awaited[group.SyncResult] {
			return groups.Sync(group.SyncRequest{MemberIdentity: c.MemberIdentity, Assignments: map[string][]byte{c.Member: make([]byte, bytes)}})
		}
		refused := func(when string) {
			t.Helper()
			_, err := assign(b, 600<<10).Wait(t.Context())
			wantErr(t, "an assignment "+when, err, group.ErrGroupTooLarge)
		}
		release := meta.hold()
		syncing := assign(a, 600<<10)
		refused("while another is stored")
		release()
		if _, err := syncing.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused("beside another")
		join(t, a) // in the next generation it has none yet
		if _, err := assign(b, 600<<10).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := wantCounted(groups); err != nil {
			t.Error(err)
		}
	})
}

// Ids that are given out, and members that bring nothing, count too.
func TestMembersThatBringNothingCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := startGroups(t, newBadMeta(), topic.GroupsConfig{BytesTotal: 100 << 10})
		for _, ids := range []bool{true, false} {
			var err error
			given := 0
			for ; (err == nil || errors.Is(err, group.ErrMemberIDRequired)) && given <= 100; given++ {
				c := largeMember(t, groups, fmt.Sprint(given), "", 0)
				c.join.RequireMember = ids
				err = c.finishJoin(c.startJoin())
			}
			wantErr(t, "a member too many", err, group.ErrGroupTooLarge)
			time.Sleep(time.Minute) // sessions end
		}
	})
}

// Whatever ends a member gives back what it brought, so that the next one may bring as much.
func TestBytesAreGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		stored error // of its assignment
		end    func(t *testing.T, groups *group.Groups, c *consumer) error
	}{
		"it leaves": {nil, func(_ *testing.T, groups *group.Groups, c *consumer) error {
			errs, err := groups.Leave(c.Group, []group.MemberIdentity{c.MemberIdentity})
			return errors.Join(append(errs, err)...)
		}},
		"its session ends": {nil, func(*testing.T, *group.Groups, *consumer) error {
			time.Sleep(time.Minute)
			return nil
		}},
		"its group is deleted": {nil, func(t *testing.T, groups *group.Groups, c *consumer) error {
			time.Sleep(time.Minute)
			_, err := groups.Delete(c.Group).Wait(t.Context())
			return err
		}},
		"its assignment is not stored": {errors.New("disk on fire"), func(*testing.T, *group.Groups, *consumer) error {
			time.Sleep(time.Minute)
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := newBadMeta()
				groups := startGroups(t, meta, topic.GroupsConfig{BytesTotal: 1 << 20})
				for round := range 3 {
					c := largeMember(t, groups, fmt.Sprint(round), "", 1000<<10)
					join(t, c)
					if test.stored != nil {
						meta.failNext(1, test.stored, false)
					}
					if _, err := c.startSync().Wait(t.Context()); (err == nil) != (test.stored == nil) {
						t.Fatalf("sync: %v", err)
					}
					if err := test.end(t, groups, c); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if counted, have := group.Counted(groups); counted != 0 || have != 0 {
						t.Fatalf("%d bytes are counted, and members have %d", counted, have)
					}
				}
			})
		})
	}
}

// A group that another node takes over counts there, and no longer at the first. It is taken over even
// above the bound.
func TestBytesMoveWithTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNodes(t, 3)
		a := newConsumer(t, n.groups[n.coordinator()], "a", "")
		a.join.Session = 5 * time.Minute
		a.brings(500 << 10)
		gather(t, a)
		deposed, next := depose(t, n)
		wantErr(t, "commit", a.commit(0, 99), group.ErrNotCoordinator) // it notices
		synctest.Wait()
		if counted, _ := group.Counted(deposed); counted != 0 {
			t.Errorf("%d bytes are counted at the node that the group has left", counted)
		}
		if counted, have := group.Counted(next); counted != have || have < 500<<10 {
			t.Errorf("%d bytes are counted where the group is, which has %d", counted, have)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		first := startGroups(t, meta, topic.GroupsConfig{})
		a, b := largeMember(t, first, "a", "", 500<<10), largeMember(t, first, "b", "", 0)
		gather(t, a)
		stopGroups(t, first)
		second := startGroups(t, meta, topic.GroupsConfig{BytesTotal: 1 << 10})
		a.groups, b.groups = second, second
		if err := a.heartbeat(); err != nil {
			t.Error(err)
		}
		wantErr(t, "another member", b.finishJoin(b.startJoin()), group.ErrGroupTooLarge)
		if err := wantCounted(second); err != nil {
			t.Error(err)
		}
	})
}
