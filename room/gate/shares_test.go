package gate

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
)

// A pass that is given to a thousand machines lets in two of them at a time, by pass or ticket; its
// visitor stays inside, and another machine gets in when one has stopped.
func TestPassClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, func(o *Options) { o.Sites[0].PassClients = 2 })
		s.set(1, room.Inside)
		s.set(2, room.Inside)
		s.settings.Bypass = []room.Rule{{Path: "/about"}}
		from := func(n int) asker {
			return func(r *http.Request) { r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", n/250, n%250) }
		}
		served := func(held asker, n int) bool {
			return s.get("/", asPage, held, from(n)).body == "the shop"
		}
		for round := range 5 {
			for n := range 1_000 {
				held := pass(1)
				if n%2 == 1 {
					held = ticket(1)
				}
				if got, want := served(held, n), n < 2; got != want {
					t.Fatalf("round %d: machine %d is inside: %v; want %v", round, n, got, want)
				}
			}
			time.Sleep(shareTime / 2)
		}
		if !served(pass(2), 500) || s.get("/about", pass(1), from(500)).body != "the shop" {
			t.Error("another visitor's pass, or a request that needs none, is refused")
		}
		response := s.get("/", asProgram, pass(1), from(3))
		expect(t, response, http.StatusTooManyRequests, `"code":"shared"`)
		if response.Header.Get("Retry-After") != "30" {
			t.Errorf("Retry-After is %q", response.Header.Get("Retry-After"))
		}
		expect(t, s.get("/", asPage, pass(1), from(3)), http.StatusTooManyRequests, english.Pages[KindShared].Heading)
		for range 4 { // machine 1 has stopped
			time.Sleep(shareTime / 2)
			served(pass(1), 0)
		}
		if !served(pass(1), 3) || served(pass(1), 1) || !served(pass(1), 0) {
			t.Error("the place of a machine that has stopped is not another's")
		}
	})
}

func TestSharesCountNetworksAndForget(t *testing.T) {
	var s shares
	now := time.Now()
	for _, test := range []struct {
		client string
		want   bool
	}{
		{"2001:db8::1", true}, {"2001:db8::ffff:2", true}, {"2001:db8:0:1::1", false}, {"192.0.2.1", false},
	} {
		if got := s.use(holder{"shop", 1}, netip.MustParseAddr(test.client), 1, now); got != test.want {
			t.Errorf("%s may use the pass: %v; want %v", test.client, got, test.want)
		}
	}
	for n := range int64(3 * maxShared) {
		if !s.use(holder{"shop", 2 + n}, netip.Addr{}, 1, now) {
			t.Fatal("a visitor without a known address is refused")
		}
		if got := len(s.young) + len(s.old); got > maxShared {
			t.Fatalf("%d visitors are remembered", got)
		}
	}
}
