package pebblestore_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/testkit/disktest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/storetest"
)

// When an fsync fails, no newcomer is told of a place, and the store is broken from then on. After a restart on what was
// synced, all who were told of a place have it.
func TestSyncThatFails(t *testing.T) {
	t.Parallel()
	memory := vfs.NewCrashableMem()
	d := disktest.NewSyncing(memory)
	s := open(t, d)
	terms := shop(t, s)
	for range 10 {
		if _, err := s.Enter(ctx, terms, room.Arrival{}); err != nil {
			t.Fatal(err)
		}
	}
	d.Before(func(string) error { return syscall.EIO })
	if _, err := s.Enter(ctx, terms, room.Arrival{}); !errors.Is(err, room.ErrBroken) {
		t.Errorf("a newcomer when syncs fail: %v, want ErrBroken", err)
	}
	d.Before(nil) // the next sync would succeed, and says nothing about the data before
	if _, err := s.Enter(ctx, terms, room.Arrival{}); !errors.Is(err, room.ErrBroken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("a newcomer after a sync has failed: %v, want ErrBroken and why", err)
	}
	left := memory.CrashClone(vfs.CrashCloneCfg{})
	_ = s.Close() // it cannot write the rest

	s = open(t, left)
	defer closed(t, s)
	if status, err := s.Status(ctx, "shop"); err != nil || status.Entered != 10 || status.Waiting != 10 {
		t.Errorf("after opening again: %+v, %v; want the 10 who were told of a place", status, err)
	}
}

// On a disk whose fsyncs take half a second nobody who keeps asking loses a place, and a power cut takes none that was told.
func TestSlowSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := vfs.NewCrashableMem()
		d := disktest.NewSyncing(memory)
		s := open(t, d)
		terms := shop(t, s)
		terms.Capacity, terms.TTL, terms.Claim, terms.Abandon, terms.Grace = 2, 4*time.Second, 3*time.Second, 4*time.Second, 4*time.Second
		d.Before(func(string) error {
			time.Sleep(500 * time.Millisecond)
			return nil
		})
		for range 5 {
			if _, err := s.Enter(ctx, terms, room.Arrival{}); err != nil {
				t.Fatal(err)
			}
		}
		states := func(s room.Store) (inside, waiting int) {
			t.Helper()
			places, err := s.Ask(ctx, terms, storetest.Bearers(1, 2, 3, 4, 5), true)
			if err != nil {
				t.Fatal(err)
			}
			for _, place := range places {
				switch place.State {
				case room.Inside:
					inside++
				case room.Gone:
					t.Errorf("a visitor who kept asking is gone: %+v", place)
				default:
					waiting++
				}
			}
			return inside, waiting
		}
		for range 20 {
			if _, err := s.Expire(ctx, terms); err != nil {
				t.Fatal(err)
			}
			states(s)
			time.Sleep(time.Second)
		}
		left := memory.CrashClone(vfs.CrashCloneCfg{})
		d.Before(nil)
		closed(t, s)
		s = open(t, left)
		defer closed(t, s)
		if inside, waiting := states(s); inside != 2 || waiting != 3 {
			t.Errorf("after a power cut %d are inside and %d wait, want 2 and 3", inside, waiting)
		}
	})
}
