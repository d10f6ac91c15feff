package gate

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// Requests of a visitor inside ask the store once in Recheck, images as well as pages.
func TestPassesAreBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		recheck time.Duration
		asks    int
	}{"by default": {0, 5}, "longer": {5 * time.Second, 2}, "never": {-1, 1000}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStand(t, func(o *Options) { o.Recheck = test.recheck })
			s.set(1, room.Inside)
			for i := range 1000 {
				as := asImage
				if i%10 == 0 {
					as = asPage
				}
				expect(t, s.get("http://shop.test/", as, pass(1)), 200, "the shop")
				time.Sleep(10 * time.Millisecond)
			}
			if s.asks != test.asks {
				t.Errorf("%s: asked %d times; want %d", name, s.asks, test.asks)
			}
		})
	}
}

// A visit that ended elsewhere ends at the gate by Recheck, and one that ended here at once.
func TestBelievedVisitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 2})
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		for range 2 { // by the ticket, then by the pass
			anna.want("shop", "GET", "/")
			ben.want("shop", "GET", "/")
		}
		ben.want("/.sluice/shop/left?to=%2F", "POST", "/.sluice/shop/leave")
		ben.want("shop", "GET", "/") // with another place
		if err := town.engine.RevokeAll(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultRecheck)
		anna.want("gone", "GET", "/")
	})
}

// A visitor who leaves is out at once, although the pass was believed.
func TestReleasedPassIsNotBelieved(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Inside)
	expect(t, s.get("http://shop.test/", asPage, pass(1)), 200, "the shop")
	expect(t, s.ask("POST", "http://shop.test/.sluice/shop/leave", "", asForm, pass(1)), 303)
	expect(t, s.get("http://shop.test/a.png", asImage, pass(1)), 410)
}

// Using a pass prolongs it, however short it is beside Recheck.
func TestBelievedPassesSlide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, PassTTL: time.Second})
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		for range 50 {
			anna.want("shop", "GET", "/")
			ben.want("waiting 1", "GET", "/")
			// Images renew no cookie: the pass of the page is believed for a while.
			anna.want("shop", "GET", "/a.png", asImage)
			time.Sleep(950 * time.Millisecond)
			anna.want("shop", "GET", "/a.png", asImage)
			time.Sleep(940 * time.Millisecond)
		}
		time.Sleep(time.Second)
		ben.want("shop", "GET", "/")
		anna.want("waiting 1", "GET", "/")
	})
}

// However many passes are shown, some are believed at a time.
func TestBelievedIsBounded(t *testing.T) {
	b := &believed{length: time.Minute}
	now := time.Now()
	for i := range 3 * maxBelieved {
		b.put(claim{"shop", strconv.Itoa(i), netip.Addr{}}, &engine.Answer{PassExpiresAt: now.Add(time.Hour)}, now)
	}
	if n := len(b.young) + len(b.old); n > maxBelieved {
		t.Errorf("%d passes are believed; want at most %d", n, maxBelieved)
	}
	last := strconv.Itoa(3*maxBelieved - 1)
	if b.get(claim{"shop", last, netip.Addr{}}, now) == nil || b.get(claim{"fair", last, netip.Addr{}}, now) != nil {
		t.Error("the last pass is not believed, or in another room")
	}
}
