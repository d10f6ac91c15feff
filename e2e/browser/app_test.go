package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluice-project/sluice/room"
)

// newApp opens the app's page, which can be seen from outside, with some visitors before.
func newApp(t *testing.T, people int, settings room.Settings) (*town, *visitor) {
	t.Helper()
	settings.Bypass = []room.Rule{{Path: "/app"}}
	town := newTown(t, settings, people, false)
	v := newVisitor(t, look{lang: "en", width: 1280})
	v.run(chromedp.Navigate(town.url + "/app"))
	return town, v
}

// An app of one page enters, waits and leaves, without a page of the gate's.
func TestAppEnters(t *testing.T) {
	town, v := newApp(t, 2, settings())
	evaluate[chromedp.Void](v, `enter()`)
	v.see("#place", "2")
	town.counts(1, 2)
	town.leave(1)
	v.see("#place", "1")
	town.leave(0)
	v.see("#place", "inside")
	town.counts(1, 0)
	if got := evaluate[string](v, `shop.status().then((p) => p.status)`); got != "inside" {
		t.Errorf("status: %s", got)
	}
	if got := evaluate[string](v, `shop.renew().catch((e) => e.code)`); got != "not_renewable" {
		t.Errorf("renew: %s", got)
	}
	if evaluate[string](v, `document.cookie`) != "" {
		t.Error("a script sees a cookie of the gate")
	}
	evaluate[chromedp.Void](v, `shop.leave()`)
	town.counts(0, 0)
	if got := evaluate[string](v, `shop.status().catch((e) => e.status + " " + e.code)`); got != "401 bad_ticket" {
		t.Errorf("status after leaving: %s", got)
	}
}

// A call of an app waits until the visitor is inside, and reaches the site once, with its body.
func TestAppCalls(t *testing.T) {
	town, v := newApp(t, 1, settings())
	evaluate[chromedp.Void](v, `void order("two shoes")`)
	v.see("#place", "1")
	town.counts(1, 1)
	if town.orders.Load() != 0 {
		t.Error("the site was called from outside")
	}
	town.leave(0)
	v.see("#answer", "201 two shoes")
	if got := evaluate[string](v, `order("more").then(() => document.querySelector("#answer").textContent)`); got != "201 more" || town.orders.Load() != 2 {
		t.Errorf("%s, and %d orders", got, town.orders.Load())
	}
}

// A wait that is stopped keeps the place.
func TestAppStops(t *testing.T) {
	town, v := newApp(t, 1, settings())
	for range 2 {
		const stopped = `(() => { const stop = new AbortController(); return shop.enter({signal: stop.signal, onWait: () => stop.abort()}).catch((e) => e.name) })()`
		if got := evaluate[string](v, stopped); got != "AbortError" {
			t.Errorf("a wait that is stopped: %s", got)
		}
		town.counts(1, 1)
	}
}

// A visit that has ended by time is followed by another one; a revoked visitor is told so, and may
// join again after leaving.
func TestAppComesBack(t *testing.T) {
	brief := settings()
	brief.PassTTL = 2 * time.Second
	town, v := newApp(t, 0, brief)
	for range 2 {
		evaluate[chromedp.Void](v, `enter()`)
		v.see("#place", "inside")
		town.counts(1, 0)
		town.counts(0, 0)
		evaluate[chromedp.Void](v, `tell("place", "")`)
	}
	evaluate[chromedp.Void](v, `enter()`)
	v.see("#place", "inside")
	if err := town.engine.RevokeAll(t.Context(), roomName); err != nil {
		t.Fatal(err)
	}
	evaluate[chromedp.Void](v, `enter()`)
	v.see("#place", "gone revoked")
	evaluate[chromedp.Void](v, `shop.leave().then(enter)`)
	v.see("#place", "inside")
}
