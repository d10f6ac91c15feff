package storetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
)

// newShop returns a Memory with a room, and the terms of its operations.
func newShop(t *testing.T) (*Memory, room.Terms) {
	t.Helper()
	m := NewMemory()
	revision, err := m.PutRoom(ctx, "shop", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m, room.Terms{Room: "shop", Revision: revision, Capacity: 1, MaxWaiting: 10, TTL: time.Hour, Claim: time.Minute, Abandon: time.Hour}
}

func TestMemoryFails(t *testing.T) {
	wrong := errors.New("wrong")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct {
		fail    func(m *Memory, err error)
		ctx     context.Context
		want    error
		entered int64
	}{
		"before the move": {func(m *Memory, err error) { m.Fail(err) }, ctx, wrong, 0},
		"after the move":  {func(m *Memory, err error) { m.FailAfter(err) }, ctx, wrong, 1},
		"after the end":   {func(*Memory, error) {}, canceled, context.Canceled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, terms := newShop(t)
			c.fail(m, wrong)
			p, err := m.Enter(c.ctx, terms, room.Arrival{})
			if !errors.Is(err, c.want) || p != (room.Place{}) {
				t.Fatalf("Enter: %+v and %v, want %v", p, err, c.want)
			}
			c.fail(m, nil)
			s, err := m.Status(ctx, "shop")
			if err != nil || s.Entered != c.entered {
				t.Fatalf("status is %+v, %v; want %d entered", s, err, c.entered)
			}
		})
	}
}

func TestMemoryShiftsItsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newShop(t)
		m.Shift(time.Hour)
		m.Shift(-time.Minute)
		if now, err := m.Reopen().Now(ctx); err != nil || !now.Equal(time.Now().Add(59*time.Minute)) {
			t.Fatalf("the time is %v, %v, want 59 minutes after %v", now, err, time.Now())
		}
		if _, err := m.Now(ctx); !errors.Is(err, room.ErrClosed) {
			t.Fatalf("the one before: %v, want it closed", err)
		}
	})
}
