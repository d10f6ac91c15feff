//go:build proxies

package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluice-project/sluice/internal/testkit/proxytest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
)

// behind puts nginx in front of the shop and of the gate, which it asks about each request.
func (town *town) behind(name string) {
	town.url = proxytest.Start(town.t, name, strings.TrimPrefix(town.shopURL, "http://"), strings.TrimPrefix(town.url, "http://"))
}

// With a proxy that asks the gate, a visitor joins, waits on the live page, enters, expires, joins
// again and is revoked.
func TestBehindAProxy(t *testing.T) {
	for _, proxy := range []string{"nginx", "haproxy", "caddy"} {
		t.Run(proxy, func(t *testing.T) {
			brief := settings()
			brief.PassTTL = 5 * time.Second
			town := newTown(t, brief, 2, true)
			town.behind(proxy)
			v := newVisitor(t, look{lang: "en", width: 390})
			v.run(chromedp.Navigate(town.url + "/"))
			v.see(number, "2")
			evaluate[bool](v, `window.kept = true`)
			town.leave(1)
			v.see(number, "1")
			if !evaluate[bool](v, `window.kept === true`) || town.visits.Load() != 0 {
				t.Errorf("the page was loaded again, or the shop was seen %d times from outside", town.visits.Load())
			}
			town.leave(0)
			v.see("h1", "Welcome to the shop")
			town.counts(1, 0)
			town.counts(0, 0) // it has expired
			if _, _, err := town.engine.PutRoom(t.Context(), roomName, settings()); err != nil {
				t.Fatal(err)
			}
			v.run(chromedp.Reload())
			v.see("h1", "Welcome to the shop") // as another visitor of an empty shop
			if err := town.engine.RevokeAll(t.Context(), roomName); err != nil {
				t.Fatal(err)
			}
			until.True(t, "the visitor is told that the place was withdrawn", func() bool {
				v.run(chromedp.Reload())
				return evaluate[string](v, `document.querySelector("h1").textContent`) == "You are not in line any more"
			})
		})
	}
}

// An app of one page waits behind a proxy too.
func TestAppBehindAProxy(t *testing.T) {
	s := settings()
	s.Bypass = []room.Rule{{Path: "/app"}}
	town := newTown(t, s, 1, false)
	town.behind("nginx")
	v := newVisitor(t, look{lang: "en", width: 390})
	v.run(chromedp.Navigate(town.url + "/app"))
	evaluate[chromedp.Void](v, `void order("two shoes")`)
	v.see("#place", "1")
	if town.orders.Load() != 0 {
		t.Error("the site was called from outside")
	}
	town.leave(0)
	v.see("#answer", "201 two shoes")
}
