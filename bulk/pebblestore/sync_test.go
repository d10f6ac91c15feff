package pebblestore_test

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/internal/testkit/disktest"
)

func openOn(t *testing.T, fs vfs.FS) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open("data", pebblestore.Options{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// When an fsync fails, what it was for is not acknowledged, and the store is broken from then on: what the disk has is not
// known. After a restart on what was synced, all that was acknowledged is there.
func TestSyncThatFails(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	memory := vfs.NewCrashableMem()
	d := disktest.NewSyncing(memory)
	s := openOn(t, d)
	if _, _, err := s.Create(ctx, bulk.Spec{ID: "a", Tenant: "tenant", Type: "call"}); err != nil {
		t.Fatal(err)
	}
	acknowledged, err := s.Append(ctx, "a", 0, some(100))
	if err != nil {
		t.Fatal(err)
	}
	d.Before(func(string) error { return syscall.EIO })
	if _, err := s.Append(ctx, "a", acknowledged, some(100)); !errors.Is(err, bulk.ErrBroken) {
		t.Errorf("append when syncs fail: %v, want ErrBroken", err)
	}
	d.Before(nil) // the next sync would succeed, and says nothing about the data before
	if _, err := s.Append(ctx, "a", acknowledged, some(100)); !errors.Is(err, bulk.ErrBroken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("append after a sync has failed: %v, want ErrBroken and why", err)
	}
	left := memory.CrashClone(vfs.CrashCloneCfg{})
	_ = s.Close() // it cannot write the rest

	s = openOn(t, left)
	a, err := s.Action(ctx, "a")
	if err != nil || a.Received != acknowledged {
		t.Errorf("%d jobs after opening again, %v; want the %d that were acknowledged", a.Received, err, acknowledged)
	}
	runAll(t, s, "a", int(a.Received))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// On a disk whose fsyncs take half a second, work is slow and nothing is lost: leases that are extended in time stay, and
// a power cut takes nothing that was acknowledged.
func TestSlowSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		memory := vfs.NewCrashableMem()
		d := disktest.NewSyncing(memory)
		s := openOn(t, d)
		d.Before(func(string) error {
			time.Sleep(500 * time.Millisecond)
			return nil
		})
		if _, _, err := s.Create(ctx, bulk.Spec{ID: "a", Tenant: "tenant", Type: "call"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(ctx, "a", 0, some(10)); err != nil {
			t.Fatal(err)
		}
		for _, transition := range []bulk.Transition{{Kind: bulk.Seal, Total: 10}, {Kind: bulk.Start}} {
			if _, err := s.Transition(ctx, "a", transition); err != nil {
				t.Fatal(err)
			}
		}
		admitAll(t, s)
		leased, err := s.Lease(ctx, bulk.LeaseRequest{Types: []string{"call"}, Max: 10, LeaseFor: 3 * time.Second})
		if err != nil || len(leased) != 10 {
			t.Fatalf("leased %d jobs, %v", len(leased), err)
		}
		settle := func(kind bulk.SettlementKind) {
			settlements := make([]bulk.Settlement, len(leased))
			for i := range leased {
				settlements[i] = bulk.Settlement{Lease: leased[i].Lease, Kind: kind, LeaseFor: 3 * time.Second}
			}
			if _, err := s.Settle(ctx, settlements); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			time.Sleep(time.Second)
			settle(bulk.Extended)
			if moved, _, err := s.Dispatch(ctx, 100); err != nil || moved > 0 {
				t.Fatalf("%d leases have expired although they were extended, %v", moved, err)
			}
		}
		settle(bulk.Succeeded)
		left := memory.CrashClone(vfs.CrashCloneCfg{})
		d.Before(nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = openOn(t, left)
		if a, err := s.Action(ctx, "a"); err != nil || a.Succeeded != 10 {
			t.Errorf("after a power cut %d jobs have succeeded, %v; want 10", a.Succeeded, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
