//go:build proxies

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/proxytest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// post sends a form from a page of the shop.
func (p *person) post(path, form string) answer {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.front+path, strings.NewReader(form))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "text/html")
	return p.do(request)
}

// A proxy that asks the gate gives visitors what a gate in its place would: they join, wait, enter,
// expire, leave and are revoked.
func TestProxies(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{"nginx", "haproxy", "caddy"} {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			upstream := shop(t).URL
			s, gate := newGate(t, upstream, "--trusted-proxies", "127.0.0.1", "--capacity", "1", "--pass-ttl", "15s", "--bypass", "/about")
			s.start()
			front := proxytest.Start(t, proxy, strings.TrimPrefix(upstream, "http://"), strings.TrimPrefix(gate, "http://"))
			first, second, third := newPerson(t, front), newPerson(t, front), newPerson(t, front)
			if !first.inShop("/") || !first.inShop("/cart?a=1") {
				t.Fatalf("the first visitor sees %s", first.get("/", "text/html").body)
			}
			page := second.get("/cart?a=1", "text/html")
			if !strings.Contains(string(page.body), `data-kind="waiting"`) || page.header.Get("Retry-After") == "" ||
				page.header.Get("Cache-Control") != "no-store" || page.header.Get("Sluice-Wait") != "shop" || !strings.Contains(string(page.body), `value="/cart?a=1"`) {
				t.Fatalf("the second visitor sees %d %v %s", page.status, page.header, page.body)
			}
			if v := s.room("shop"); v.Inside != 1 || v.Waiting != 1 {
				t.Errorf("with one inside and one in line, the room is %+v", v)
			}
			if a := second.get("/.sluice/shop/status", "application/json"); a.status != http.StatusOK || !strings.Contains(string(a.body), `"position":1`) {
				t.Errorf("the place is %d %s", a.status, a.body)
			}
			forged, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front+"/about", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			forged.Header.Set("Sluice-Pass", "forged")
			if a := third.do(forged); string(a.body) != "the shop has /about, with a pass: false" {
				t.Errorf("what needs no pass: %d %s", a.status, a.body)
			}
			until.True(t, "the second visitor gets in when the first is silent", func() bool { return second.inShop("/") })
			third.get("/", "text/html")
			if a := second.post("/.sluice/shop/leave", "to=/"); a.status != http.StatusOK || !strings.Contains(string(a.body), `data-kind="left"`) {
				t.Errorf("leaving: %d %s", a.status, a.body)
			}
			until.True(t, "the third visitor gets in when the second has left", func() bool { return third.inShop("/") })
			if a := third.post("/order", "item=1"); string(a.body) != "the shop has /order, with a pass: true, and item=1" {
				t.Errorf("a form: %d %s", a.status, a.body)
			}
			if output, code := run(t, "room", "revoke", "shop", "--server", "http://"+s.addr); code != 0 {
				t.Fatal(output)
			}
			until.True(t, "the third visitor is out when revoked", func() bool {
				return strings.Contains(string(third.get("/", "text/html").body), `data-kind="gone"`)
			})
		})
	}
}
