package gate

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
)

// The first rule that matches holds, in every reading of a path; a path that two rooms claim is
// refused.
func TestDoors(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Sites = []Site{
			{Hosts: []string{"tickets.test"}, Room: "tickets", Rules: []SiteRule{
				{Path: "/static/*"}, {Path: "/vip/*", Cookie: "member=gold", Room: "vip"}, {Header: "X-Partner"}, {Method: "GET", Path: "/feed", Header: "X-Key: 7"},
				{Path: "/closed/*", Room: "tickets"},
			}},
			{Hosts: []string{"*.shop.test", "shop.test"}, Rules: []SiteRule{{Path: "/checkout/*", Room: "shop"}, {Cookie: "beta", Room: "shop"}}},
		}
	})
	for _, test := range []struct {
		method, url string
		askers      []asker
		want        string
	}{
		{"GET", "http://tickets.test/", nil, "tickets"},
		{"GET", "http://tickets.test:8000/", nil, "tickets"},
		{"GET", "http://TICKETS.test./", nil, "tickets"},
		{"GET", "http://tickets.test/static/a.css", nil, "none"},
		{"GET", "http://tickets.test/static/../a", nil, "tickets"},
		{"GET", "http://tickets.test/STATIC/a", nil, "tickets"},
		{"GET", "http://tickets.test/vip/1", nil, "tickets"},
		{"GET", "http://tickets.test/vip/1", []asker{holding("member", "gold")}, "vip"},
		{"GET", "http://tickets.test/vip/1", []asker{holding("member", "silver")}, "tickets"},
		{"GET", "http://tickets.test/vip/../closed/a", []asker{holding("member", "gold")}, "refused"},
		{"GET", "http://tickets.test/VIP/1", []asker{holding("member", "gold")}, "refused"},
		{"GET", "http://tickets.test/closed/../a", nil, "tickets"},
		{"POST", "http://tickets.test/", []asker{header("X-Partner", "")}, "none"},
		{"HEAD", "http://tickets.test/feed", []asker{header("X-Key", "7")}, "none"},
		{"GET", "http://tickets.test/feed", []asker{header("X-Key", "8")}, "tickets"},
		{"POST", "http://tickets.test/feed", []asker{header("X-Key", "7")}, "tickets"},
		{"GET", "http://shop.test/", nil, "none"},
		{"GET", "http://a.b.shop.test//CHECKOUT", nil, "shop"},
		{"GET", "http://www.shop.test/", []asker{holding("beta", "")}, "shop"},
		{"GET", "http://notshop.test/", nil, "misdirected"},
		{"GET", "http://[::1]:80/", nil, "misdirected"},
	} {
		r := httptest.NewRequest(test.method, test.url, http.NoBody)
		for _, change := range test.askers {
			change(r)
		}
		got := "misdirected"
		if at := s.gate.siteOf(r.Host); at != nil {
			d, needs, err := at.doorOf(r)
			switch {
			case err != nil:
				got = "refused"
			case needs:
				got = d.room
			default:
				got = "none"
			}
		}
		if got != test.want {
			t.Errorf("%s %s: %s; want %s", test.method, test.url, got, test.want)
		}
	}
}

func TestWrongSites(t *testing.T) {
	for want, sites := range map[string][]Site{
		"sites: want 1 to 200":               {},
		"sites[1].room: ":                    {{Room: "a"}, {Room: "Not a name"}},
		"sites[0].room: want a room":         {{Rules: []SiteRule{{Path: "/a"}}}},
		`sites[0].room: "check" is a path`:   {{Room: "check"}},
		"sites[0].hosts[1]: host: ":          {{Room: "a", Hosts: []string{"a.test", "http://a"}}},
		"sites[0].hosts[0]: want a host":     {{Room: "a", Hosts: []string{""}}},
		"sites[0].rules[0].path: want":       {{Room: "a", Rules: []SiteRule{{Room: "b"}}}},
		"sites[0].rules[1].path: ":           {{Room: "a", Rules: []SiteRule{{Path: "/a"}, {Path: "b"}}}},
		"sites[0].rules[0].method: ":         {{Room: "a", Rules: []SiteRule{{Method: "get"}}}},
		"sites[0].rules[0].header: ":         {{Room: "a", Rules: []SiteRule{{Header: "X-A=1"}}}},
		"sites[0].rules[0].cookie: ":         {{Room: "a", Rules: []SiteRule{{Cookie: "a: 1"}}}},
		"sites[0].rules[0].room: ":           {{Room: "a", Rules: []SiteRule{{Path: "/", Room: "B B"}}}},
		"sites[0].template: ":                {{Room: "a", Template: mustParse(t, "{{.No}}")}},
		"sites[0].waiting_status: 404: want": {{Room: "a", WaitingStatus: 404}},
		"sites[0].returns[1]: path: ":        {{Room: "a", Returns: []string{"/a", "b"}}},
		`sites[0].crawlers: "no": want`:      {{Room: "a", Crawlers: "no"}},
		"sites[0].hosts: want at most 100":   {{Room: "a", Hosts: make([]string, MaxHosts+1)}},
	} {
		s := newStand(t, nil)
		if err := s.gate.SetSites(sites); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %s…", err, want)
		}
		expect(t, s.get("http://any.test/", asPage), http.StatusOK, "You are in line") // the sites stay
	}
}

// Each site has its own upstream, rooms and page, from the next request on after a change.
func TestSites(t *testing.T) {
	tickets := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the box office") })
	s := newStand(t, func(o *Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		o.Sites = []Site{{Hosts: []string{"shop.test"}, Room: "shop"}, {Hosts: []string{"tickets.test"}, Room: "tickets", Brand: "Box office", Upstream: tickets, WaitingStatus: 503}}
	})
	s.set(1, room.Inside)
	expect(t, s.get("http://shop.test/", asPage, pass(1)), http.StatusOK, "the shop")
	expect(t, s.get("http://tickets.test/", asPage, holding("sluice_pass_tickets", "PASS-1")), http.StatusOK, "the box office")
	// A pass of one room opens no other, though the gate believes it there.
	response := s.get("http://tickets.test/", asPage, pass(1))
	expect(t, response, http.StatusServiceUnavailable, "Box office", "You are in line", `action="/.sluice/tickets/leave"`)
	if cookieOf(response, "sluice_ticket_tickets") == nil || response.Header.Get("Retry-After") == "" {
		t.Errorf("%v", response.Header)
	}
	expect(t, s.get("http://tickets.test/.sluice/tickets/status", holding("sluice_ticket_tickets", "ticket-2")), http.StatusOK, `"position":2`)
	if body := s.get("http://shop.test/.sluice/tickets/status", asPage).body; !strings.Contains(body, "You are in line") {
		t.Errorf("a room of another site has its paths here: %s", body)
	}
	expect(t, s.get("http://elsewhere.test/", asPage), http.StatusMisdirectedRequest, "elsewhere.test")
	expect(t, s.get(checkURL, asPage, header("X-Forwarded-Uri", "/"), header("X-Forwarded-Host", "tickets.test")), http.StatusServiceUnavailable, "Box office")
	expect(t, s.get(checkURL, asPage, header("X-Forwarded-Uri", "/"), header("X-Forwarded-Host", "elsewhere.test")), http.StatusMisdirectedRequest)
	if err := s.gate.SetSites([]Site{{Hosts: []string{"elsewhere.test"}, Room: "shop"}}); err != nil {
		t.Fatal(err)
	}
	expect(t, s.get("http://elsewhere.test/", asPage, pass(1)), http.StatusOK, "the shop")
	expect(t, s.get("http://shop.test/.sluice/shop/status", ticket(1)), http.StatusMisdirectedRequest)
}

// Crawlers take no place where a site says so, and a shop that is busy is not forgotten.
func TestCrawlers(t *testing.T) {
	google := header("User-Agent", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)")
	for crawlers, test := range map[Crawlers]struct {
		status  int
		entered int
		body    string
	}{QueueCrawlers: {200, 1, "You are in line"}, PassCrawlers: {200, 0, "the shop"}, RefuseCrawlers: {503, 0, "come again later"}} {
		s := newStand(t, func(o *Options) { o.Sites[0].Crawlers = crawlers })
		response := s.get("http://shop.test/", asPage, google)
		expect(t, response, test.status, test.body)
		if len(s.entered) != test.entered || test.status == 503 && response.Header.Get("Retry-After") != "600" {
			t.Errorf("%s: %d entered, %v", crawlers, len(s.entered), response.Header)
		}
		expect(t, s.get("http://shop.test/", asPage, header("User-Agent", "Mozilla/5.0 Firefox/140.0")), http.StatusOK, "You are in line")
		// A person who is inside is let through, whatever the browser is called.
		s.set(1, room.Inside)
		expect(t, s.get("http://shop.test/", asPage, google, pass(1)), http.StatusOK, "the shop")
	}
}
