package topic_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Whatever becomes of a write's answer, what was acknowledged is there, also after
// a restart.
func TestCommitWhoseAnswerIsLost(t *testing.T) {
	disk := errors.New("disk on fire")
	tests := []struct {
		name    string
		times   int
		err     error
		applied bool
		want    error
		offset  int64 // that is shown then
	}{
		{"written, without an answer", 1, topic.ErrUncertain, true, nil, 2},
		{"not written, without an answer", 1, topic.ErrUncertain, false, nil, 2},
		{"not written, often", 4, topic.ErrUncertain, false, nil, 2},
		{"not written, too often", 5, topic.ErrUncertain, false, topic.ErrCoordinatorUnavailable, 1},
		{"failed", 1, disk, false, topic.ErrCoordinatorUnavailable, 1},
		{"no room", 1, topic.ErrFull, false, topic.ErrCoordinatorUnavailable, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := newBadMeta()
				groups := startGroups(t, meta, topic.GroupsConfig{})
				tool := admin(t, groups)
				if err := tool.commit(0, 1); err != nil {
					t.Fatal(err)
				}
				meta.failNext(test.times, test.err, test.applied)
				wantErr(t, "commit", tool.commit(0, 2), test.want)
				wantOffsets(t, groups, map[int32]int64{0: test.offset})
				wantOffsets(t, startGroups(t, meta, topic.GroupsConfig{}), map[int32]int64{0: test.offset})
				meta.failNext(0, nil, false)
				if err := tool.commit(1, 3); err != nil {
					t.Fatal(err)
				}
				wantOffsets(t, groups, map[int32]int64{0: test.offset, 1: 3})
			})
		})
	}
}

// A store that never answers holds nobody up for ever.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		release := meta.hold()
		began := time.Now()
		wantErr(t, "commit", admin(t, groups).commit(0, 1), topic.ErrCoordinatorUnavailable)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the answer took %v, want 10s", took)
		}
		release()
		if err := admin(t, groups).commit(0, 1); err != nil {
			t.Fatal(err)
		}
	})
}

// What another broker wrote stays, where the commit does not touch it.
func TestCommitMeetsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		first, second := startGroups(t, meta, topic.GroupsConfig{}), startGroups(t, meta, topic.GroupsConfig{})
		for i, step := range []struct {
			groups *topic.Groups
			offset int64
		}{{first, 1}, {second, 2}, {first, 3}, {second, 4}} {
			if err := admin(t, step.groups).commit(int32(i), step.offset); err != nil {
				t.Fatal(err)
			}
		}
		wantOffsets(t, startGroups(t, meta, topic.GroupsConfig{}), map[int32]int64{0: 1, 1: 2, 2: 3, 3: 4})
	})
}

// A group that another broker has led on is not led back.
func TestGroupThatAnotherBrokerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a := newConsumer(t, groups, "a", "")
		gather(t, a)
		other := newConsumer(t, startGroups(t, meta, topic.GroupsConfig{}), "a", "")
		other.Member = a.Member
		for range 3 {
			gather(t, other)
		}
		join(t, a)
		_, err := a.startSync().Wait(t.Context())
		wantErr(t, "sync", err, topic.ErrNotCoordinator)
	})
}

// A generation is not stable before it is durable.
func TestSyncWhoseWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		gather(t, a)
		joinB, joinA := b.startJoin(), a.startJoin()
		if err := errors.Join(b.finishJoin(joinB), a.finishJoin(joinA)); err != nil {
			t.Fatal(err)
		}
		release := meta.hold()
		syncA, syncB := a.startSync(), b.startSync()
		if settled(syncA) || settled(syncB) {
			t.Fatal("an assignment is told that is not durable")
		}
		wantState(t, groups, topic.GroupCompletingRebalance, 2)
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
		meta.failNext(1, errors.New("disk on fire"), false)
		release()
		// The write under way was let through; the next generation's fails.
		for _, syncing := range []*topic.Awaited[topic.SyncResult]{syncA, syncB} {
			if _, err := syncing.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		joinA = a.startJoin()
		join(t, b)
		if err := a.finishJoin(joinA); err != nil {
			t.Fatal(err)
		}
		syncB, syncA = b.startSync(), a.startSync()
		for _, syncing := range []*topic.Awaited[topic.SyncResult]{syncA, syncB} {
			_, err := syncing.Wait(t.Context())
			wantErr(t, "sync", err, topic.ErrCoordinatorUnavailable)
		}
		wantState(t, groups, topic.GroupPreparingRebalance, 2)
		gather(t, a, b)
		wantState(t, groups, topic.GroupStable, 2)
	})
}

// A group whose writes fail, and may be there all the same, goes on from the
// generation that it had when its members are gone: the next are not held up by
// what is stored. Removed, it leaves nothing.
func TestGroupWhoseWritesMayBeThere(t *testing.T) {
	for name, applied := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := newBadMeta()
				groups := startGroups(t, meta, topic.GroupsConfig{})
				meta.failNext(-1, errors.New("disk on fire"), applied)
				a := newConsumer(t, groups, "a", "")
				for range 2 {
					join(t, a)
					_, err := a.startSync().Wait(t.Context())
					wantErr(t, "sync", err, topic.ErrCoordinatorUnavailable)
				}
				time.Sleep(time.Minute) // a's session, and a rebalance without it
				synctest.Wait()
				wantState(t, groups, topic.GroupEmpty, 0)
				meta.failNext(0, nil, false)
				b := newConsumer(t, groups, "b", "")
				gather(t, b)
				if b.Generation <= a.Generation {
					t.Errorf("generation %d after %d", b.Generation, a.Generation)
				}

				meta.failNext(-1, errors.New("disk on fire"), applied)
				time.Sleep(time.Minute)
				synctest.Wait()
				wantState(t, groups, topic.GroupEmpty, 0)
				meta.failNext(0, nil, false)
				if _, err := groups.Delete("g").Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if keys := meta.keys(t); len(keys) > 0 {
					t.Errorf("%q are left", keys)
				}
			})
		})
	}
}

// A write of a generation that is over by then changes nothing.
func TestMemberJoinsWhileTheGenerationIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "")
		join(t, a)
		release := meta.hold()
		syncing := a.startSync()
		joining := b.startJoin()
		_, err := syncing.Wait(t.Context())
		wantErr(t, "sync", err, topic.ErrRebalanceInProgress)
		join(t, a)
		if err := b.finishJoin(joining); err != nil || b.Generation != 2 {
			t.Fatal(err, b.Generation)
		}
		waiting := b.startSync()
		release()
		if settled(waiting) {
			t.Fatal("the assignment of generation 1 was told in generation 2")
		}
		wantState(t, groups, topic.GroupCompletingRebalance, 2)
		if _, err := a.startSync().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if result, err := waiting.Wait(t.Context()); err != nil || string(result.Assignment) != string(assignment(2, b.Member)) {
			t.Fatalf("b is assigned %q, %v", result.Assignment, err)
		}
	})
}

// A leader that asks anew, because its first answer is lost, is told what is stored.
func TestLeaderSyncsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a := newConsumer(t, groups, "a", "")
		join(t, a)
		release := meta.hold()
		a.startSync()
		synctest.Wait()
		again := groups.Sync(topic.SyncRequest{MemberIdentity: a.MemberIdentity, Assignments: map[string][]byte{a.Member: []byte("other")}})
		release()
		result, err := again.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d, err := startGroups(t, meta, topic.GroupsConfig{}).Describe("g")
		if err != nil || string(d.Members[0].Assignment) != string(result.Assignment) {
			t.Fatalf("the leader is told %q, and %q is stored, %v", result.Assignment, d.Members[0].Assignment, err)
		}
	})
}

// The broker restarts, and members notice nothing: neither a rebalance nor the end
// of a session that would have been over meanwhile.
func TestRestartOfTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a, b := newConsumer(t, groups, "a", ""), newConsumer(t, groups, "b", "static-b")
		gather(t, a)
		gather(t, b, a)
		if err := b.commit(3, 33); err != nil {
			t.Fatal(err)
		}
		before, err := groups.Describe("g")
		if err != nil {
			t.Fatal(err)
		}
		stopGroups(t, groups)
		time.Sleep(time.Hour)

		groups = startGroups(t, meta, topic.GroupsConfig{})
		a.groups, b.groups = groups, groups
		after, err := groups.Describe("g")
		if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("the group is %+v, %v after a restart; was %+v", after, err, before)
		}
		time.Sleep(9 * time.Second)
		if err := errors.Join(a.heartbeat(), b.heartbeat(), a.commit(4, 44)); err != nil {
			t.Fatal(err)
		}
		wantOffsets(t, groups, map[int32]int64{3: 33, 4: 44})
		time.Sleep(9 * time.Second)
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantErr(t, "heartbeat after b's session", a.heartbeat(), topic.ErrRebalanceInProgress)
		gather(t, a)
		if a.Generation != 103 || !a.leader {
			t.Fatalf("generation %d, leading: %v; want it to go on from the stored 2, with 100 left out", a.Generation, a.leader)
		}
	})
}

// What cannot be read stops the broker, and is not taken for nothing.
func TestStoredGroupsThatCannotBeRead(t *testing.T) {
	for key, value := range map[string]string{
		"groups/g":         "{",
		"groups/h":         `{"format":2}`,
		"offsets/g/orders": `{"format":1,"partitions":{"x":{}}}`,
		"offsets/h/orders": `{}`,
	} {
		meta := newBadMeta()
		if _, err := meta.Put(t.Context(), key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		groups := topic.NewGroups(meta, topic.GroupsConfig{}, nil)
		if err := groups.Load(t.Context()); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, want an error that names it", key, err)
		}
		stopGroups(t, groups)
	}
}

// FuzzStoredGroup loads what may be in the metadata: it is refused, or it is a
// group that a consumer can join, whatever it was.
func FuzzStoredGroup(f *testing.F) {
	member := `{"id":"a-1","instance":"a","client":"a","host":"/h","session_ms":10000,"rebalance_ms":-1,` +
		`"protocols":[{"name":"range","metadata":"AAEAAAA="}],"assignment":"AAEAAAA="}`
	f.Add([]byte(`{"format":1,"generation":7,"protocol_type":"consumer","protocol":"range","leader":"a-1","members":[`+member+`]}`),
		[]byte(`{"format":1,"partitions":{"0":{"offset":42,"epoch":3,"at_ms":1767225600000,"expires_ms":5}}}`))
	f.Add([]byte(`{"format":1,"generation":2147483647,"empty_since_ms":-9223372036854775808}`), []byte(`{"format":1}`))
	f.Add([]byte(`{"format":1,"leader":"x","members":[{"protocols":null},{"session_ms":9223372036854775807}]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, group, offsets []byte) {
		synctest.Test(t, func(t *testing.T) {
			meta := newBadMeta()
			for key, value := range map[string][]byte{"groups/g": group, "offsets/g/orders": offsets} {
				if _, err := meta.Put(t.Context(), key, value, 0); err != nil {
					t.Fatal(err)
				}
			}
			groups := topic.NewGroups(meta, topic.GroupsConfig{OffsetRetention: 7 * 24 * time.Hour}, nil)
			defer stopGroups(t, groups)
			if groups.Load(t.Context()) != nil {
				return
			}
			time.Sleep(49 * time.Hour) // sessions and rebalances of those that are gone
			c := newConsumer(t, groups, "c", "")
			joining := c.startJoin()
			if !settled(joining) {
				t.Fatal("a join into what was stored waits for ever")
			}
			if err := c.finishJoin(joining); err != nil {
				t.Fatal(err)
			}
			if _, err := c.startSync().Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantState(t, groups, topic.GroupStable, 1)
		})
	})
}
