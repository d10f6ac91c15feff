package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

func openOn(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open("data", Options{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keepOn(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s := openOn(t, fs)
	if err := s.KeepEvents(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s *Store, id string) {
	t.Helper()
	if _, _, err := s.Create(context.Background(), bulk.Spec{ID: id, Tenant: "tenant", Type: "echo"}); err != nil {
		t.Fatal(err)
	}
}

// TestEventsAreReturnedOnceDurable checks that events that are not on disk are not returned:
// they might not happen.
func TestEventsAreReturnedOnceDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		holding := false
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if holding && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
				<-hold
			}
			return nil
		}))
		s := keepOn(t, fs)
		create(t, s, "first")
		synctest.Wait()
		holding = true
		go func() {
			_, _, _ = s.Create(context.Background(), bulk.Spec{ID: "second", Tenant: "tenant", Type: "echo"})
		}()
		synctest.Wait()
		events, _, err := s.Events(t.Context())
		if b, _ := storetest.Backlog(t.Context(), s); err != nil || len(events) != 1 || b.Outbox != 2 {
			t.Errorf("%d events of %d are returned before the fsync, error %v; want the first", len(events), b.Outbox, err)
		}
		close(hold)
		synctest.Wait()
		if events, _, err = s.Events(t.Context()); err != nil || len(events) != 2 || events[1].Action != "second" {
			t.Errorf("events %+v after the fsync, error %v; want both", events, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOpenConvertsFormat1 checks that opening a store of format 1 converts it.
func TestOpenConvertsFormat1(t *testing.T) {
	fs := vfs.NewMem()
	s := openOn(t, fs) // without events it writes the data of format 1
	create(t, s, "old")
	if err := errors.Join(s.db.Set(metaVersion, []byte{1}, pebble.Sync), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = keepOn(t, fs)
	create(t, s, "new")
	if a, err := s.Action(t.Context(), "old"); err != nil || a.Status != bulk.Created {
		t.Errorf("the action of format 1 is %+v, error %v", a, err)
	}
	version, err := pebblekv.Get(s.db, metaVersion)
	if found, _ := binary.Uvarint(version); err != nil || found != FormatVersion {
		t.Errorf("the version is %d, error %v; want %d", found, err, FormatVersion)
	}
	if events, _, err := s.Events(t.Context()); err != nil || len(events) != 1 || events[0].Action != "new" {
		t.Errorf("events %+v, error %v; want that of the new action", events, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestACopyMakesOtherIDs checks that a copy of a directory generates other ids, so that no
// consumer takes its events for repeated ones.
func TestACopyMakesOtherIDs(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := keepOn(t, fs)
	create(t, s, "both")
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	create(t, s, "here")
	other := keepOn(t, left)
	create(t, other, "there")
	var ids [2][]string
	for i, one := range []*Store{s, other} {
		events, _, err := one.Events(t.Context())
		if err != nil || len(events) != 2 {
			t.Fatalf("events %+v, error %v; want two", events, err)
		}
		ids[i] = []string{events[0].ID, events[1].ID}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
	if ids[0][0] != ids[1][0] || ids[0][1] == ids[1][1] {
		t.Errorf("ids %v: want the first the same, the second different", ids)
	}
}

func TestPublishedWhereEventsDidNotEnd(t *testing.T) {
	s := keepOn(t, vfs.NewMem())
	for i := range 3 {
		create(t, s, fmt.Sprint(i))
	}
	if err := s.Published(t.Context(), 4); err == nil {
		t.Error("more was confirmed than there is")
	}
	if b, _ := storetest.Backlog(t.Context(), s); b.Outbox != 3 {
		t.Errorf("%d events wait, want 3", b.Outbox)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	s := &Store{}
	s.outbox.run = newRun()
	c := &call{s: s, now: time.UnixMilli(1_700_000_000_000)}
	header := appendBytes(appendBytes(c.newEntry(entryJobsOf), []byte("a")), []byte("tenant"))
	f.Add(appendEnded(append(header, 1), &bulk.JobResult{Index: 3, Succeeded: true, Attempts: 1, Result: []byte(`{"n":1}`)}))
	action := appendBytes(appendBytes(appendBytes(c.newEntry(entryAction), []byte(bulk.ActionCreated)), []byte("a")), []byte("tenant"))
	f.Add(append(action, `{"id":"a"}`...))
	f.Add([]byte{entryJobsOf})
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := decodeEntry(eventKey(7), value)
		if err != nil {
			return
		}
		ids := map[string]bool{}
		for _, event := range e.events {
			if ids[event.ID] {
				t.Fatalf("two events have the id %q", event.ID)
			}
			ids[event.ID] = true
			if value[0] == entryJobsOf {
				if _, err := event.CloudEvent(); err != nil {
					t.Fatalf("an event of a job that cannot be written: %v", err)
				}
			}
		}
		if len(e.events) == 0 {
			t.Fatal("an entry without events")
		}
	})
}
