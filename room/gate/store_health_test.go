package gate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// hanging is a room that does not answer while it hangs.
type hanging struct {
	*fake
	hangs atomic.Bool
	asked atomic.Int64
}

func (h *hanging) AskPass(ctx context.Context, name, pass string, client netip.Addr) (engine.Answer, error) {
	h.asked.Add(1)
	if h.hangs.Load() {
		<-ctx.Done()
		return engine.Answer{}, ctx.Err()
	}
	return h.fake.AskPass(ctx, name, pass, client)
}

// A store that hangs does not block all visitors: after the first AskTime one of them asks, and the
// others are answered at once.
func TestStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *Options) { o.Recheck = -1 })
		s.settings.OnStoreFailure = room.FailOpen
		s.set(1, room.Inside)
		rooms := &hanging{fake: s.fake}
		s.gate.rooms = rooms
		rooms.hangs.Store(true)
		s.handler = s.gate.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the shop") }))
		open := func() time.Duration {
			began := time.Now()
			if response := s.get("http://shop.test/", asPage, pass(1)); response.StatusCode != http.StatusOK || response.body != "the shop" {
				t.Errorf("%d %q", response.StatusCode, response.body)
			}
			return time.Since(began)
		}
		if took := open(); took != AskTime {
			t.Fatalf("the first took %v", took)
		}
		asked, began := rooms.asked.Load(), time.Now()
		var probe sync.WaitGroup
		var waited atomic.Int64
		for range 20 { // 20 visitors in each of 10 seconds
			probe.Go(func() {
				for range 10 {
					if open() > 0 {
						waited.Add(1)
					}
					time.Sleep(time.Second)
				}
			})
		}
		probe.Wait()
		most := int64(time.Since(began)/probeEvery) + 1
		if probes := rooms.asked.Load() - asked; probes < 5 || probes > most || waited.Load() != probes {
			t.Errorf("asked %d times in %v, and %d waited", probes, time.Since(began), waited.Load())
		}
		// After one answer the store counts as healthy again.
		rooms.hangs.Store(false)
		time.Sleep(probeEvery)
		asked = rooms.asked.Load()
		for range 10 {
			if took := open(); took != 0 {
				t.Errorf("took %v", took)
			}
		}
		if got := rooms.asked.Load() - asked; got != 10 {
			t.Errorf("asked %d of 10 times", got)
		}
	})
}

// One request that fails, while others succeed, does not stop asking.
func TestOneSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h storeHealth
		began := time.Now()
		time.Sleep(AskTime)
		h.note(time.Now(), nil)
		h.note(began, context.DeadlineExceeded)
		for range 2 {
			if !h.mayAsk(time.Now()) || !h.failedLately() {
				t.Error("the store is not asked")
			}
		}
		// Nor does a request that fails at once: asking is cheap then.
		time.Sleep(time.Second)
		h.note(time.Now(), errors.New("refused"))
		for range 2 {
			if !h.mayAsk(time.Now()) {
				t.Error("a store that refuses at once is not asked")
			}
		}
	})
}
