package pebblestore_test

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/disktest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/storetest"
)

const reserve = 64 << 20

func openFull(t *testing.T, d *disktest.Full) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open("data", pebblestore.Options{FS: d, DiskReserve: reserve, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// When the disk is down to its reserve, newcomers and new settings are refused, and present
// visitors are served to the end.
func TestDiskDownToItsReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.NewFull(1 << 30)
		s := openFull(t, d)
		defer closed(t, s)
		terms := shop(t, s)
		arrival := room.Arrival{Key: room.Key{1}}
		if _, err := s.Enter(ctx, terms, arrival); err != nil {
			t.Fatal(err)
		}
		d.Free.Store(reserve - 1)
		time.Sleep(2 * time.Second) // the last check of the disk is out of date

		if _, err := s.Enter(ctx, terms, room.Arrival{}); !errors.Is(err, room.ErrFull) {
			t.Errorf("a newcomer on a full disk: %v, want ErrFull", err)
		}
		if _, err := s.PutRoom(ctx, "shop", nil, terms.Revision); !errors.Is(err, room.ErrFull) {
			t.Errorf("new settings on a full disk: %v, want ErrFull", err)
		}
		if place, err := s.Enter(ctx, terms, arrival); err != nil || place.Number != 1 || place.New {
			t.Errorf("who is there enters again: %+v, %v", place, err)
		}
		terms.Capacity = 1
		if _, err := s.Expire(ctx, terms); err != nil {
			t.Error(err)
		}
		if places, err := s.Ask(ctx, terms, storetest.Bearers(1), true); err != nil || places[0].State != room.Inside {
			t.Errorf("who is called claims: %+v, %v", places, err)
		}
		if _, err := s.Leave(ctx, terms, room.Bearer{Number: 1}, room.Left); err != nil {
			t.Error(err)
		}
		d.Free.Store(1 << 30)
		time.Sleep(2 * time.Second)
		if _, err := s.Enter(ctx, terms, room.Arrival{}); err != nil {
			t.Errorf("with space again: %v", err)
		}
	})
}

// When a write fails, the store reports that it is broken from then on; reopened with space, it has
// everything it had acknowledged.
func TestDiskThatFailsWrites(t *testing.T) {
	d := disktest.NewFull(1 << 30)
	s := openFull(t, d)
	terms := shop(t, s)
	for range 10 {
		if _, err := s.Enter(ctx, terms, room.Arrival{}); err != nil {
			t.Fatal(err)
		}
	}
	d.Free.Store(0)
	if _, err := s.Leave(ctx, terms, room.Bearer{Number: 3}, room.Left); !errors.Is(err, room.ErrBroken) {
		t.Fatalf("leave when writes fail: %v, want ErrBroken", err)
	}
	for what, err := range map[string]error{
		"ask":     second(s.Ask(ctx, terms, storetest.Bearers(1), false)),
		"status":  second(s.Status(ctx, "shop")),
		"expire":  second(s.Expire(ctx, terms)),
		"events":  second(s.Events(ctx, "shop", 0, 0, 10)),
		"rooms":   second(s.Rooms(ctx)),
		"putroom": second(s.PutRoom(ctx, "shop", nil, terms.Revision)),
		"remove":  s.RemoveRoom(ctx, "shop"),
		"putkeys": s.PutKeys(ctx, nil, ""),
	} {
		if !errors.Is(err, room.ErrBroken) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s of a broken store: %v, want ErrBroken and why", what, err)
		}
	}
	_ = s.Close() // it cannot write its pending data

	d.Free.Store(1 << 30)
	s = openFull(t, d)
	defer closed(t, s)
	status, err := s.Status(ctx, "shop")
	if err != nil || status.Entered != 10 || status.Waiting < 9 {
		t.Errorf("after opening again: %+v, %v; want 10 who entered, of whom 9 or 10 wait", status, err)
	}
}

func second[T any](_ T, err error) error { return err }
