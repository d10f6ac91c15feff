package broker_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/testkit/disktest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/group"
)

func openFiles(t *testing.T, fs vfs.FS) *filestore.Store {
	t.Helper()
	store, err := filestore.Open("data", filestore.Options{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// joined returns the identity of a group's only member, which has its assignment.
func joined(t *testing.T, groups *group.Groups, session time.Duration) group.MemberIdentity {
	t.Helper()
	joined, err := groups.Join(group.JoinRequest{Group: "readers", Client: "c", Session: session, Rebalance: session, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range"}}}).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := group.MemberIdentity{Group: "readers", Member: joined.Member, Generation: joined.Generation}
	if _, err := groups.Sync(group.SyncRequest{MemberIdentity: m, Assignments: map[string][]byte{m.Member: nil}}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// While fsyncs of the logs hang, or of the metadata, or all of them, what they are for is not acknowledged, durable records can
// be read, and members of groups stay: heartbeats do not wait for the disk. Then all goes on, and a power cut takes nothing that was
// acknowledged.
func TestFsyncsThatHang(t *testing.T) {
	for _, which := range []string{"data/logs", "data/meta", "data"} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fsyncsThatHang(t, which) })
		})
	}
}

func fsyncsThatHang(t *testing.T, which string) {
	const session, hangs = 10 * time.Second, 35 * time.Second
	memory := vfs.NewCrashableMem()
	disk := disktest.NewSyncing(memory)
	b := startBroker(t, openFiles(t, disk), topic.Config{})
	orders := create(t, b, "orders", nil)
	durable := []string{"0", "1", "2", "3", "4"}
	for _, value := range durable {
		send(t, orders, batchOf(sender{id: -1}, now(), value))
	}
	member := joined(t, b.Groups(), session)

	released := make(chan struct{})
	disk.Before(func(path string) error {
		if strings.HasPrefix(path, which) {
			<-released
		}
		return nil
	})
	appended, committed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := trySend(t, orders, batchOf(sender{id: -1}, now(), "5"))
		appended <- err
	}()
	go func() {
		errs, err := b.Groups().Commit(group.CommitRequest{MemberIdentity: member, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 5}}}).Wait(t.Context())
		committed <- errors.Join(append(errs, err)...)
	}()
	synctest.Wait()
	appends, commits := len(appended), len(committed)
	if appends+commits == 2 {
		t.Fatal("all is acknowledged although fsyncs hang")
	}
	for began := time.Now(); time.Since(began) < hangs; time.Sleep(session / 3) {
		if err := b.Groups().Heartbeat(member); err != nil {
			t.Fatalf("a heartbeat after %v: %v", time.Since(began), err)
		}
		if _, values := readAll(t, orders, 0, 1<<20); !slices.Equal(values[:5], durable) {
			t.Fatalf("after %v the records are %q, want %q", time.Since(began), values, durable)
		}
	}
	if len(appended) != appends || len(committed) != commits {
		t.Error("something was acknowledged before its fsync")
	}
	close(released)
	if err := errors.Join(<-appended, <-committed); err != nil {
		t.Error(err)
	}
	if err := b.Groups().Heartbeat(member); err != nil {
		t.Errorf("a heartbeat after it: %v", err)
	}
	wantKept(t, openFiles(t, memory.CrashClone(vfs.CrashCloneCfg{})), append(durable, "5"))
}

// wantKept checks the records that a power cut has left, and that the offset of the group is 5.
func wantKept(t *testing.T, left topic.Store, want []string) {
	t.Helper()
	after := startBroker(t, left, topic.Config{})
	restored, err := after.Topic("orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, values := readAll(t, restored, 0, 1<<20); !slices.Equal(values, want) {
		t.Errorf("after a power cut the records are %q, want %q", values, want)
	}
	offsets, err := after.Groups().Offsets("readers")
	if err != nil || offsets["orders"][0].Offset != 5 {
		t.Errorf("after a power cut the offsets are %v, %v", offsets, err)
	}
}
