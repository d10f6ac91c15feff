package group_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
	"github.com/sluice-project/sluice/topic/share"
)

// beatShare sends a heartbeat of a member of a share group.
func beatShare(t *testing.T, groups *group.Groups, member string, epoch int32, topics ...string) (group.ConsumerResult, error) {
	t.Helper()
	return groups.ConsumerHeartbeat(group.ConsumerHeartbeat{Group: "g", Member: member, Epoch: epoch, Share: true, Topics: topics}).Wait(t.Context())
}

// Members of a share group have partitions together, over a restart; no other protocol has the group in that
// time; and the group goes with what it knows of records.
func TestShareGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta, topics := newBadMeta(), newTopics(map[string]int32{"orders": 1})
		groups := startConsumers(t, meta, topics, topic.GroupsConfig{})
		for i, member := range []string{"a", "b"} {
			joined, err := beatShare(t, groups, member, group.JoinEpoch, "orders")
			if err != nil || joined.Epoch != int32(i+1) || joined.Assigned.Count() != 1 {
				t.Fatalf("%s joined: %+v, %v", member, joined, err)
			}
		}
		beaten, err := beatShare(t, groups, "a", 1)
		if err != nil || beaten.Epoch != 2 || beaten.Assigned != nil {
			t.Fatalf("a, in the epoch of b: %+v, %v", beaten, err)
		}
		_, err = beatShare(t, groups, "a", 1) // as if the answer were lost
		wantErr(t, "the epoch before", err, nil)
		_, err = beatShare(t, groups, "a", 3)
		wantErr(t, "an epoch from the future", err, group.ErrFencedEpoch)
		wantErr(t, "a consumer", newModern(t, groups, "c", "orders").beat(), group.ErrOtherProtocol)
		_, err = groups.Commit(group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: "g", Member: "a", Generation: 2}}).Wait(t.Context())
		wantErr(t, "a commit", err, group.ErrOtherProtocol)

		stopGroups(t, groups)
		groups = startConsumers(t, meta, topics, topic.GroupsConfig{})
		d, err := groups.Describe("g")
		if err != nil || d.Type != group.TypeShare || d.Protocol != "simple" || d.State != group.Stable || len(d.Members) != 2 {
			t.Fatalf("after a restart: %+v, %v", d, err)
		}
		id := d.Members[0].Consumer.Assigned.Topics()[0]
		if _, err := meta.Put(t.Context(), share.Key(id, 0, "g"), []byte("{}"), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // their sessions end
		time.Sleep(6 * 24 * time.Hour)
		if d, err := groups.Describe("g"); err != nil || d.State != group.Empty {
			t.Fatalf("without members: %+v, %v", d, err)
		}
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait()
		_, err = groups.Describe("g")
		wantErr(t, "after the retention of offsets", err, group.ErrNoGroup)
		if left, err := meta.List(t.Context(), share.Prefix); err != nil || len(left) > 0 {
			t.Errorf("the group has left %v, %v", left, err)
		}
	})
}

// A share group that is made without members is durable when the call returns, is kept as long as others without members, and takes
// the name of no other group. A write that fails makes none.
func TestMadeShareGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta, topics := newBadMeta(), newTopics(map[string]int32{"orders": 1})
		groups := startConsumers(t, meta, topics, topic.GroupsConfig{})
		wantErr(t, "before", groups.MayReset("g"), group.ErrNoGroup)
		meta.failNext(1, topic.ErrClosed, false)
		wantErr(t, "a write that fails", groups.MakeShare(t.Context(), "g"), group.ErrCoordinatorUnavailable)
		for range 2 {
			wantErr(t, "make", groups.MakeShare(t.Context(), "g"), nil)
		}
		stopGroups(t, groups)
		groups = startConsumers(t, meta, topics, topic.GroupsConfig{})
		wantErr(t, "after a restart", groups.MayReset("g"), nil)
		time.Sleep(time.Hour) // groups that nothing is known of are removed in that time
		wantErr(t, "within the retention of offsets", groups.MayReset("g"), nil)
		joined, err := beatShare(t, groups, "a", group.JoinEpoch, "orders")
		if err != nil || joined.Epoch != 1 || joined.Assigned.Count() != 1 {
			t.Errorf("a joined: %+v, %v", joined, err)
		}
		wantErr(t, "make, with members", groups.MakeShare(t.Context(), "g"), nil)
		wantErr(t, "with members", groups.MayReset("g"), group.ErrGroupNotEmpty)

		consumer := newModern(t, groups, "c", "orders")
		consumer.Group = "consumers"
		wantErr(t, "a consumer", consumer.beat(), nil)
		wantErr(t, "make, by the name of another group", groups.MakeShare(t.Context(), "consumers"), nil)
		wantErr(t, "another group", groups.MayReset("consumers"), group.ErrOtherProtocol)
		wantErr(t, "make, without a name", groups.MakeShare(t.Context(), ""), group.ErrInvalidGroup)
	})
}

// lateFetch is a Meta in which leaders of partitions make windows while a group is being removed: one has found the group
// before, one finds it then.
type lateFetch struct {
	topic.Meta
	found  topic.Guard
	broken error // of Delete
}

func (m *lateFetch) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	items, err := m.Meta.List(ctx, prefix)
	if prefix != share.Prefix {
		return items, err
	}
	_, _ = m.Put(ctx, share.Key(topic.ID{1}, 1, "g"), []byte("{}"), 0, m.found)
	if found, err := group.ShareGuard(ctx, m, "g"); err == nil {
		_, _ = m.Put(ctx, share.Key(topic.ID{1}, 2, "g"), []byte("{}"), 0, found)
	}
	return items, err
}

func (m *lateFetch) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	if m.broken != nil {
		return m.broken
	}
	return m.Meta.Delete(ctx, key, revision, guards...)
}

// A share group that is deleted leaves no window, though members fetch at that time, and also if its coordinator ends in
// the middle.
func TestDeletedShareGroupLeavesNothing(t *testing.T) {
	for _, broken := range []error{nil, topic.ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			meta, topics := &lateFetch{Meta: newBadMeta()}, newTopics(map[string]int32{"orders": 1})
			groups := startConsumers(t, meta, topics, topic.GroupsConfig{})
			_, err := beatShare(t, groups, "a", group.JoinEpoch, "orders")
			wantErr(t, "join", err, nil)
			meta.found, err = group.ShareGuard(t.Context(), meta, "g")
			wantErr(t, "the group of a window", err, nil)
			if _, err := meta.Put(t.Context(), share.Key(topic.ID{1}, 0, "g"), []byte("{}"), 0, meta.found); err != nil {
				t.Fatal(err)
			}
			_, err = beatShare(t, groups, "a", group.LeaveEpoch)
			wantErr(t, "leave", err, nil)
			if meta.found, err = group.ShareGuard(t.Context(), meta, "g"); err != nil {
				t.Fatal(err)
			}
			meta.broken = broken
			_, err = groups.Delete("g").Wait(t.Context())
			wantErr(t, "delete", err, broken)
			if broken != nil {
				stopGroups(t, groups)
				meta.broken = nil
				startConsumers(t, meta, topics, topic.GroupsConfig{})
				time.Sleep(time.Hour)
			}
			for _, prefix := range []string{share.Prefix, group.GroupPrefix} {
				if left, err := meta.Meta.List(t.Context(), prefix); err != nil || len(left) > 0 {
					t.Errorf("with %v the group has left %v, %v", broken, left, err)
				}
			}
		})
	}
}

// Each partition has a member that reads it, each member that reads something has a partition, and members
// that read the same have as many partitions as each other, or one more.
func TestSimpleAssignsEachPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.Int32Range(1, 12).Draw(t, "partitions")
		of := assign.Topic{ID: topic.ID{1}, Partitions: partitions}
		members := make([]assign.Member, rapid.IntRange(1, 20).Draw(t, "members"))
		readers := 0
		for i := range members {
			if rapid.IntRange(0, 4).Draw(t, "reads") > 0 {
				members[i].Topics = []assign.Topic{of}
				readers++
			}
		}
		count, load := make([]int, partitions), []int{}
		for i, has := range assign.Simple(members) {
			if len(members[i].Topics) > 0 {
				load = append(load, has.Count())
			}
			for _, number := range has[of.ID] {
				count[number]++
			}
		}
		if readers == 0 {
			return
		}
		if slices.Min(count) < 1 || slices.Max(count) > slices.Min(count)+1 || slices.Min(load) < 1 || slices.Max(load) > slices.Min(load)+1 {
			t.Fatal(fmt.Sprint("members of each partition: ", count, ", partitions of each member: ", load))
		}
	})
}
