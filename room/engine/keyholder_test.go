package engine_test

import (
	"context"
	"errors"
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
