package group_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// Acknowledged commits survive, also after a restart, even if a write's answer is lost.
func TestCommitWhoseAnswerIsLost(t *testing.T) {
	disk := errors.New("disk on fire")
	tests := []struct {
		name    string
		times   int
		err     error
		applied bool
		want    error
		offset  int64 // visible afterwards
	}{
		{"written, without an answer", 1, topic.ErrUncertain, true, nil, 2},
		{"not written, without an answer", 1, topic.ErrUncertain, false, nil, 2},
		{"not written, often", 4, topic.ErrUncertain, false, nil, 2},
		{"not written, too often", 5, topic.ErrUncertain, false, group.ErrCoordinatorUnavailable, 1},
		{"failed", 1, disk, false, group.ErrCoordinatorUnavailable, 1},
		{"no room", 1, topic.ErrFull, false, group.ErrCoordinatorUnavailable, 1},
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
				meta.failNext(0, nil, false)
				if err := tool.commit(1, 3); err != nil {
					t.Fatal(err)
				}
				wantOffsets(t, groups, map[int32]int64{0: test.offset, 1: 3})
				stopGroups(t, groups)
				wantOffsets(t, startGroups(t, meta, topic.GroupsConfig{}), map[int32]int64{0: test.offset, 1: 3})
			})
		})
	}
}

// A store that never answers blocks no call forever.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		release := meta.hold()
		began := time.Now()
		wantErr(t, "commit", admin(t, groups).commit(0, 1), group.ErrCoordinatorUnavailable)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the answer took %v, want 10s", took)
		}
		release()
		if err := admin(t, groups).commit(0, 1); err != nil {
			t.Fatal(err)
		}
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
		wantState(t, groups, group.CompletingRebalance, 2)
		if err := a.heartbeat(); err != nil {
			t.Fatal(err)
		}
		meta.failNext(1, errors.New("disk on fire"), false)
		release()
		// The write in progress was let through; the next generation's fails.
		for _, syncing := range []*group.Awaited[group.SyncResult]{syncA, syncB} {
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
		for _, syncing := range []*group.Awaited[group.SyncResult]{syncA, syncB} {
			_, err := syncing.Wait(t.Context())
			wantErr(t, "sync", err, group.ErrCoordinatorUnavailable)
		}
		wantState(t, groups, group.PreparingRebalance, 2)
		gather(t, a, b)
		wantState(t, groups, group.Stable, 2)
	})
}

// A group whose failed writes may be stored continues from its present generation when
// its members are gone: the stored record does not block the next ones. After its
// removal nothing is stored.
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
					wantErr(t, "sync", err, group.ErrCoordinatorUnavailable)
				}
				time.Sleep(time.Minute) // a's session, and a rebalance without it
				synctest.Wait()
				wantState(t, groups, group.Empty, 0)
				meta.failNext(0, nil, false)
				b := newConsumer(t, groups, "b", "")
				gather(t, b)
				if b.Generation <= a.Generation {
					t.Errorf("generation %d after %d", b.Generation, a.Generation)
				}

				meta.failNext(-1, errors.New("disk on fire"), applied)
				time.Sleep(time.Minute)
				synctest.Wait()
				wantState(t, groups, group.Empty, 0)
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

// The write of a generation that has ended by then changes nothing.
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
		wantErr(t, "sync", err, group.ErrRebalanceInProgress)
		join(t, a)
		if err := b.finishJoin(joining); err != nil || b.Generation != 2 {
			t.Fatal(err, b.Generation)
		}
		waiting := b.startSync()
		release()
		if settled(waiting) {
			t.Fatal("the assignment of generation 1 was told in generation 2")
		}
		wantState(t, groups, group.CompletingRebalance, 2)
		if _, err := a.startSync().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if result, err := waiting.Wait(t.Context()); err != nil || string(result.Assignment) != string(assignment(2, b.Member)) {
			t.Fatalf("b is assigned %q, %v", result.Assignment, err)
		}
	})
}

// A leader that syncs again, because its first answer is lost, gets the stored
// assignment.
func TestLeaderSyncsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startGroups(t, meta, topic.GroupsConfig{})
		a := newConsumer(t, groups, "a", "")
		join(t, a)
		release := meta.hold()
		a.startSync()
		synctest.Wait()
		again := groups.Sync(group.SyncRequest{MemberIdentity: a.MemberIdentity, Assignments: map[string][]byte{a.Member: []byte("other")}})
		release()
		result, err := again.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stopGroups(t, groups)
		d, err := startGroups(t, meta, topic.GroupsConfig{}).Describe("g")
		if err != nil || string(d.Members[0].Assignment) != string(result.Assignment) {
			t.Fatalf("the leader is told %q, and %q is stored, %v", result.Assignment, d.Members[0].Assignment, err)
		}
	})
}

// The broker restarts without an effect on members: there is no rebalance, and no session
// ends that would have ended in the meantime.
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
		wantErr(t, "heartbeat after b's session", a.heartbeat(), group.ErrRebalanceInProgress)
		gather(t, a)
		if a.Generation != 103 || !a.leader {
			t.Fatalf("generation %d, leading: %v; want it to go on from the stored 2, with 100 left out", a.Generation, a.leader)
		}
	})
}

// Groups that cannot be read do not count as missing.
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
		var log bytes.Buffer
		groups := group.New(meta, topic.Single{}, topic.GroupsConfig{}, nil, slog.New(slog.NewTextHandler(&log, nil)))
		if err := groups.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		name := strings.Split(key, "/")[1]
		if _, err := groups.Offsets(name); !errors.Is(err, group.ErrCoordinatorLoading) {
			t.Errorf("%s: offsets: %v, want %v", key, err, group.ErrCoordinatorLoading)
		}
		if _, err := groups.List(); !errors.Is(err, group.ErrCoordinatorLoading) {
			t.Errorf("%s: list: %v, want %v", key, err, group.ErrCoordinatorLoading)
		}
		stopGroups(t, groups)
		if !strings.Contains(log.String(), key) || strings.Contains(value, `"format":2`) && !strings.Contains(log.String(), "upgrade this node") {
			t.Errorf("the log names %s, or what to do, not: %q", key, log.String())
		}
	}
}

// FuzzStoredGroup loads arbitrary records: each is refused, or it is a group that a
// consumer can join.
func FuzzStoredGroup(f *testing.F) {
	member := `{"id":"a-1","instance":"a","client":"a","host":"/h","session_ms":10000,"rebalance_ms":-1,` +
		`"protocols":[{"name":"range","metadata":"AAEAAAA="}],"assignment":"AAEAAAA="}`
	f.Add([]byte(`{"format":1,"generation":7,"protocol_type":"consumer","protocol":"range","leader":"a-1","members":[`+member+`]}`),
		[]byte(`{"format":1,"partitions":{"0":{"offset":42,"epoch":3,"at_ms":1767225600000,"expires_ms":5}}}`))
	f.Add([]byte(`{"format":1,"generation":2147483647,"empty_since_ms":-9223372036854775808}`), []byte(`{"format":1}`))
	f.Add([]byte(`{"format":1,"leader":"x","members":[{"protocols":null},{"session_ms":9223372036854775807}]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, g, offsets []byte) {
		synctest.Test(t, func(t *testing.T) {
			meta := newBadMeta()
			for key, value := range map[string][]byte{"groups/g": g, "offsets/g/orders": offsets} {
				if _, err := meta.Put(t.Context(), key, value, 0); err != nil {
					t.Fatal(err)
				}
			}
			groups := group.New(meta, topic.Single{}, topic.GroupsConfig{OffsetRetention: 7 * 24 * time.Hour}, nil, nil)
			defer stopGroups(t, groups)
			if err := groups.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := groups.Offsets("g"); errors.Is(err, group.ErrCoordinatorLoading) {
				return // it cannot be read
			}
			time.Sleep(49 * time.Hour) // sessions and rebalances of missing members
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
			wantState(t, groups, group.Stable, 1)
		})
	})
}
