package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/disktest"
)

func openFull(t *testing.T, d *disktest.Full) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open("data", pebblestore.Options{
		FS: d, DiskReserve: 64 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func some(n int) [][]byte {
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, `{"n":%d}`, i)
	}
	return payloads
}

// TestDiskDownToItsReserve checks that uploads are refused with advice when the disk is down
// to its reserve, and that accepted jobs still finish. With space again, uploads continue
// where they stopped.
func TestDiskDownToItsReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := disktest.NewFull(1 << 30)
		s := openFull(t, d)
		for _, id := range []string{"first", "second"} {
			if _, _, err := s.Create(ctx, bulk.Spec{ID: id, Tenant: "tenant", Type: "call"}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Append(ctx, id, 0, some(10)); err != nil {
				t.Fatal(err)
			}
		}
		d.Free.Store(64<<20 - 1)
		time.Sleep(2 * time.Second) // the last check of the disk is too old

		if received, err := s.Append(ctx, "second", 10, some(10)); !errors.Is(err, bulk.ErrFull) || received != 10 {
			t.Errorf("append to a full disk: %d, %v; want 10 and ErrFull", received, err)
		}
		if _, _, err := s.Create(ctx, bulk.Spec{ID: "third", Tenant: "tenant", Type: "call"}); !errors.Is(err, bulk.ErrFull) {
			t.Errorf("create on a full disk: %v, want ErrFull", err)
		}
		runAll(t, s, "first", 10)

		d.Free.Store(1 << 30)
		time.Sleep(2 * time.Second)
		if received, err := s.Append(ctx, "second", 10, some(10)); err != nil || received != 20 {
			t.Errorf("append with space again: %d, %v; want 20", received, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDiskThatFailsWrites checks that the store is broken after a write fails on a full disk.
// Opened again with space, it has all acknowledged data, and nothing twice.
func TestDiskThatFailsWrites(t *testing.T) {
	ctx := context.Background()
	d := disktest.NewFull(1 << 30)
	s := openFull(t, d)
	if _, _, err := s.Create(ctx, bulk.Spec{ID: "a", Tenant: "tenant", Type: "call"}); err != nil {
		t.Fatal(err)
	}
	acknowledged, err := s.Append(ctx, "a", 0, some(100))
	if err != nil {
		t.Fatal(err)
	}
	d.Free.Store(0)
	for range 3 {
		if _, err := s.Append(ctx, "a", acknowledged, some(100)); !errors.Is(err, bulk.ErrBroken) {
			t.Fatalf("append when writes fail: %v, want ErrBroken", err)
		}
	}
	if _, err := s.Action(ctx, "a"); !errors.Is(err, bulk.ErrBroken) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a broken store answers %v, want ErrBroken and why", err)
	}
	_ = s.Close() // it cannot write the rest

	d.Free.Store(1 << 30)
	s = openFull(t, d)
	a, err := s.Action(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if a.Received < acknowledged || a.Received%100 != 0 || a.Received > 200 {
		t.Errorf("%d jobs after opening again, want the %d that were acknowledged, and at most the next chunk, whole", a.Received, acknowledged)
	}
	runAll(t, s, "a", int(a.Received))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// runAll seals an action and settles all its jobs.
func runAll(t *testing.T, s *pebblestore.Store, id string, jobs int) {
	t.Helper()
	ctx := context.Background()
	for _, transition := range []bulk.Transition{{Kind: bulk.Seal, Total: int64(jobs)}, {Kind: bulk.Start}} {
		if _, err := s.Transition(ctx, id, transition); err != nil {
			t.Fatal(err)
		}
	}
	admitAll(t, s)
	leased, err := s.Lease(ctx, bulk.LeaseRequest{Types: []string{"call"}, Max: 1000, LeaseFor: time.Minute, Local: true})
	if err != nil || len(leased) != jobs {
		t.Fatalf("leased %d jobs, %v; want %d", len(leased), err, jobs)
	}
	settlements := make([]bulk.Settlement, len(leased))
	for i := range leased {
		settlements[i] = bulk.Settlement{Lease: leased[i].Lease, Kind: bulk.Succeeded}
	}
	if _, err := s.Settle(ctx, settlements); err != nil {
		t.Fatal(err)
	}
	a, err := s.Action(ctx, id)
	if err != nil || a.Succeeded != int64(jobs) {
		t.Errorf("%d jobs succeeded, %v; want %d", a.Succeeded, err, jobs)
	}
}

// admitAll makes all jobs that wait ready.
func admitAll(t *testing.T, s *pebblestore.Store) {
	t.Helper()
	ctx := context.Background()
	b, err := storetest.Backlog(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range b.Lines {
		for _, w := range line.Waiting {
			if _, err := s.Admit(ctx, []bulk.Grant{{Number: w.Number, Jobs: w.Jobs}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
