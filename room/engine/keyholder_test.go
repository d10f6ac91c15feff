package engine_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// hangingKeys is a store that takes its time and then fails when asked for its keys.
type hangingKeys struct {
	room.Store
	hangs atomic.Bool
}

func (s *hangingKeys) Keys(ctx context.Context) ([]room.SigningKey, error) {
	if !s.hangs.Load() {
		return s.Store.Keys(ctx)
	}
	select {
	case <-time.After(2 * time.Second):
		return nil, room.ErrUnavailable
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// While the store hangs, requests with unknown keys wait for it together, and not one after
// another.
func TestUnknownKeysWaitForAHangingStoreTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stranger := newRig(t, storetest.NewMemory())
		stranger.put("shop", teller(1))
		forged := stranger.enter("shop").Ticket
		stranger.stop()

		store := &hangingKeys{Store: storetest.NewMemory()}
		engine, err := engine.New(store, room.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := engine.PutRoom(ctx, "shop", teller(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.JWKS(ctx); err != nil {
			t.Fatal(err)
		}
		store.hangs.Store(true)
		begin := time.Now()
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() {
				if _, err := engine.Ask(ctx, "shop", forged, nowhere); !errors.Is(err, room.ErrUnavailable) {
					t.Errorf("a ticket by an unknown key: %v", err)
				}
			})
		}
		crowd.Wait()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("50 who came together waited for %v", took)
		}
	})
}

// An answer has the ticket that was shown, unless a newer key signs it, or it is bound from now on.
func TestTicketsOfAnswers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		settings := teller(1)
		r.put("shop", settings)
		r.enter("shop")
		shown := r.enter("shop").Ticket
		client := netip.MustParseAddr("192.0.2.1")
		for _, step := range []struct {
			name   string
			change func() error
			same   bool
		}{
			{"nothing changed", func() error { return nil }, true},
			{"a newer key", func() error { return r.RotateKeys(ctx) }, false},
			{"since then", func() error { return nil }, true},
			{"bound to clients", func() error {
				settings.BindTickets = true
				r.put("shop", settings)
				return nil
			}, false},
			{"since then", func() error { return nil }, true},
		} {
			if err := step.change(); err != nil {
				t.Fatal(err)
			}
			a, err := r.Ask(ctx, "shop", shown, client)
			if err != nil || (a.Ticket == shown) != step.same {
				t.Errorf("%s: the ticket %s is followed by %s, %v; the same: want %v", step.name, shown, a.Ticket, err, step.same)
			}
			shown = a.Ticket
		}
	})
}
