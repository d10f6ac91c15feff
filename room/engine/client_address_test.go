package engine

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestClientHash(t *testing.T) {
	hash := func(text string) [4]byte { return ClientHash(netip.MustParseAddr(text)) }
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
		{"0.0.0.0", "::", false},
	} {
		if same := hash(test.a) == hash(test.b); same != test.same {
			t.Errorf("%s is as %s: %v", test.a, test.b, same)
		}
		if hash(test.a) == ([4]byte{}) {
			t.Errorf("%s has none", test.a)
		}
	}
	if got := ClientHash(netip.Addr{}); got != ([4]byte{}) {
		t.Errorf("an invalid address has %x", got)
	}
}

// However visitors come, even exactly when they are told to retry, no minute sees more than the
// limit from one client, and refused visitors are let in at the time they were told.
func TestJoinLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limiter := newJoinLimiter(10)
		limit := rapid.Int64Range(1, 6).Draw(t, "limit")
		clients := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
		var joined [2][]time.Time
		now := keyTime
		join := func(client int) (time.Duration, bool) {
			retry, ok := limiter.allow("shop", clients[client], limit, now)
			within := int64(0)
			for _, at := range joined[client] {
				if now.Sub(at) < time.Minute {
					within++
				}
			}
			switch {
			case ok && within >= limit:
				t.Fatalf("%d entered within a minute, want %d at most", within+1, limit)
			case !ok && (retry <= 0 || retry > time.Minute+joinSlot):
				t.Fatalf("after %v", retry)
			case ok:
				joined[client] = append(joined[client], now)
				return 0, true
			}
			// An entry within the last minute and slot must be the reason.
			recent := int64(0)
			for _, at := range joined[client] {
				if now.Sub(at) < time.Minute+joinSlot {
					recent++
				}
			}
			if recent < limit {
				t.Fatalf("refused with %d of %d", recent, limit)
			}
			return retry, false
		}
		for range rapid.IntRange(1, 60).Draw(t, "visits") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			client := rapid.IntRange(0, 1).Draw(t, "client")
			if retry, ok := join(client); !ok && rapid.Bool().Draw(t, "waits") {
				now = now.Add(retry)
				if again, ok := join(client); !ok {
					t.Fatalf("came again after %v as told, and is told %v", retry, again)
				}
			}
		}
	})
}

func TestJoinLimiterAllowsAll(t *testing.T) {
	limiter := newJoinLimiter(10)
	for range 1000 {
		for _, test := range []struct {
			addr  netip.Addr
			limit int64
		}{{netip.MustParseAddr("192.0.2.1"), 0}, {netip.Addr{}, 1}} {
			if retry, ok := limiter.allow("shop", test.addr, test.limit, keyTime); !ok || retry != 0 {
				t.Fatalf("%v, %d a minute: after %v", test.addr, test.limit, retry)
			}
		}
	}
}

// The limiter holds at most its maximum of clients.
func TestJoinLimiterIsBounded(t *testing.T) {
	limiter := newJoinLimiter(100)
	for n := range 1000 {
		limiter.allow("shop", netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 1, keyTime)
	}
	if n := len(limiter.clients.byKey); n != 100 {
		t.Errorf("it holds %d clients, want 100", n)
	}
	for _, n := range []int{999, 900, 899} {
		want := n == 899 // it was forgotten
		addr := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		if _, ok := limiter.allow("shop", addr, 1, keyTime); ok != want {
			t.Errorf("client %d once more: %v, want %v", n, ok, want)
		}
	}
}

// A clock that jumps does not refuse clients for long.
func TestJoinLimiterClockJumps(t *testing.T) {
	limiter, addr, random := newJoinLimiter(10), netip.MustParseAddr("192.0.2.1"), rand.New(rand.NewPCG(1, 2))
	now := keyTime
	for range 10_000 {
		now = now.Add(time.Duration(random.Int64N(int64(10*time.Minute))) - 5*time.Minute)
		if retry, ok := limiter.allow("shop", addr, 2, now); !ok && (retry <= 0 || retry > time.Minute+joinSlot) {
			t.Fatalf("after %v", retry)
		}
	}
}
