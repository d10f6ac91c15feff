package engine_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// A pass names its visitor and room, and the time until which it is valid.
func TestPassesAreShortLivedAndRenewedWithEachAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.PassTTL = 90 * time.Second
		r.put("shop", s)
		a := r.enter("shop")
		if want := time.Now().Add(90 * time.Second); !a.PassExpiresAt.Equal(want) {
			t.Errorf("the visit ends at %v, want %v", a.PassExpiresAt, want)
		}
		claims := claimsOf(t, a.Pass)
		if got := claims["exp"].(float64) - claims["iat"].(float64); got != 60 {
			t.Errorf("the pass lives %v s, want 60", got)
		}
		if claims["sub"] != fmt.Sprint(a.ID) || claims["room"] != "shop" || claims["epoch"] != 1.0 || claims["iss"] != "sluice" {
			t.Errorf("claims %v", claims)
		}
		time.Sleep(59 * time.Second)
		b, err := r.AskPass(ctx, "shop", a.Pass, nowhere)
		if err != nil || b.State != room.Inside || b.ID != a.ID || b.Ticket != "" {
			t.Fatalf("AskPass() = %+v, %v", b, err)
		}
		time.Sleep(2 * time.Second)
		if _, err := r.AskPass(ctx, "shop", a.Pass, nowhere); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("an expired pass: %v, want ErrBadPass", err)
		}
		if c, err := r.AskPass(ctx, "shop", b.Pass, nowhere); err != nil || !c.PassExpiresAt.Equal(time.Now().Add(90*time.Second)) {
			t.Errorf("the renewed pass: %+v, %v; want that it slides", c, err)
		}
		// Leaving needs no valid pass.
		if err := r.LeavePass(ctx, "shop", a.Pass); err != nil {
			t.Errorf("LeavePass() = %v", err)
		}
		_, err = r.AskPass(ctx, "shop", b.Pass, nowhere)
		gone(t, err, room.Left)
	})
}

// Some services that check passes accept whole seconds only. Only a pass that would otherwise have
// ended is exact.
func TestPassesAreOfWholeSeconds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.PassTTL = 10*time.Second + 300*time.Millisecond
		r.put("shop", s)
		time.Sleep(12_345 * time.Millisecond)
		a := r.enter("shop")
		claims := claimsOf(t, a.Pass)
		issued, expires := claims["iat"].(float64), claims["exp"].(float64)
		if issued != math.Trunc(issued) || expires != math.Trunc(expires) {
			t.Errorf("the pass is of %v to %v, want whole seconds", issued, expires)
		}
		if now, end := float64(time.Now().UnixMilli())/1000, float64(a.PassExpiresAt.UnixMilli())/1000; issued > now || expires > end || expires < end-1 {
			t.Errorf("the pass is of %v to %v, want %v to %v", issued, expires, now, end)
		}
	})
}

func claimsOf(t *testing.T, pass string) (claims map[string]any) {
	t.Helper()
	parts := strings.Split(pass, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWT", pass)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// A pass is never valid beyond the end of the visit.
func TestPassesEndWithTheVisit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.Pass, s.PassTTL = room.Fixed, 90*time.Second
		r.put("shop", s)
		a := r.enter("shop")
		time.Sleep(80 * time.Second)
		a = r.ask("shop", a.Ticket)
		claims := claimsOf(t, a.Pass)
		if got := claims["exp"].(float64) - claims["iat"].(float64); got != 10 {
			t.Errorf("the pass lives %v s, want 10", got)
		}
		time.Sleep(10 * time.Second)
		_, err := r.Ask(ctx, "shop", a.Ticket, nowhere)
		gone(t, err, room.Expired)
	})
}

func TestForgedForeignAndReplayed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		r.put("other", teller(1))
		a := r.enter("shop")
		b := r.enter("shop")
		forged := a.Ticket[:len(a.Ticket)-1] + "A"
		if forged == a.Ticket {
			forged = a.Ticket[:len(a.Ticket)-1] + "Q"
		}
		for _, ticket := range []string{"", "x", forged, a.Pass, strings.Repeat("A", 10_000)} {
			if _, err := r.Ask(ctx, "shop", ticket, nowhere); !errors.Is(err, engine.ErrBadTicket) {
				t.Errorf("Ask(%.20q) = %v, want ErrBadTicket", ticket, err)
			}
		}
		if _, err := r.Ask(ctx, "other", a.Ticket, nowhere); !errors.Is(err, engine.ErrBadTicket) {
			t.Errorf("a ticket in another room: %v, want ErrBadTicket", err)
		}
		if _, err := r.AskPass(ctx, "other", a.Pass, nowhere); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("a pass in another room: %v, want ErrBadPass", err)
		}
		if _, err := r.AskPass(ctx, "shop", b.Ticket, nowhere); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("a ticket for a pass: %v, want ErrBadPass", err)
		}
		// Once the visit is over, neither is valid.
		if err := r.Leave(ctx, "shop", a.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		_, err := r.AskPass(ctx, "shop", a.Pass, nowhere)
		gone(t, err, room.Left)
		_, err = r.Ask(ctx, "shop", a.Ticket, nowhere)
		gone(t, err, room.Left)
		if err := r.Leave(ctx, "shop", a.Ticket, nowhere); err != nil {
			t.Errorf("leaving twice: %v, want nil", err)
		}
		// Nor are they in a room that was created again under the same name.
		if err := r.DeleteRoom(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Ask(ctx, "shop", b.Ticket, nowhere); !errors.Is(err, room.ErrNoRoom) {
			t.Errorf("after the room was removed: %v, want ErrNoRoom", err)
		}
		r.put("shop", teller(1))
		if _, err := r.Ask(ctx, "shop", b.Ticket, nowhere); !errors.Is(err, engine.ErrBadTicket) {
			t.Errorf("a ticket of the room that was removed: %v, want ErrBadTicket", err)
		}
	})
}

// A visitor who opens 1,000 tickets has 1,000 places; with a key there is one place, and each
// ticket is for it.
func TestAThousandTickets(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.JoinsPerMinute = 10
		r.put("shop", s)
		first := r.enterAs("shop", "user")
		for range 1000 {
			if a := r.enterAs("shop", "user"); a.ID != first.ID || a.New {
				t.Fatalf("entered as %d (new %v), want %d", a.ID, a.New, first.ID)
			}
		}
		here := netip.MustParseAddr("192.0.2.1")
		refused := 0
		for range 1000 {
			_, err := r.Enter(ctx, "shop", room.Visit{Client: here})
			var limit *engine.LimitError
			if errors.As(err, &limit) && limit.RetryAfter > 0 && limit.RetryAfter <= 65*time.Second {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 990 {
			t.Errorf("%d of 1,000 were refused, want 990", refused)
		}
		if v, err := r.Room(ctx, "shop"); err != nil || v.Status.Waiting+v.Status.Inside != 11 {
			t.Errorf("%+v, %v; want 11 visitors", v.Status, err)
		}
	})
}

// Without a setting, joins from one client are bounded, but not those from an address that many
// visitors share; a setting holds for all.
func TestJoinsFromOneClient(t *testing.T) {
	const byDefault = room.DefaultJoinsPerMinute
	for _, test := range []struct {
		name      string
		perMinute int64
		from      func(n int) netip.Addr
		shared    bool
		want      int
	}{
		{"an address", 0, func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, false, byDefault},
		{"a network of 64 bits", 0, func(n int) netip.Addr { return v6(0x20010db8_00010001, n) }, false, byDefault},
		{"one of 48 bits", 0, func(n int) netip.Addr { return v6(0x20010db8_00010000+uint64(n), n) }, false, 4 * byDefault},
		{"many of 48 bits", 0, func(n int) netip.Addr { return v6(0x20010db8_00000000+uint64(n)<<16, n) }, false, 3000},
		{"an unknown address", 0, func(int) netip.Addr { return netip.Addr{} }, false, 3000},
		{"one that many share", 0, func(int) netip.Addr { return netip.MustParseAddr("127.0.0.1") }, true, 3000},
		{"any number", -1, func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, false, 3000},
		{"a setting", 10, func(int) netip.Addr { return netip.MustParseAddr("127.0.0.1") }, true, 10},
	} {
		inVirtualTime(t, func(t *testing.T, r *rig) {
			s := teller(1)
			s.JoinsPerMinute = test.perMinute
			r.put("shop", s)
			joined := 0
			var limit *engine.LimitError
			for n := range 3000 {
				_, err := r.Enter(ctx, "shop", room.Visit{Client: test.from(n), Shared: test.shared})
				if err == nil {
					joined++
				} else if !errors.As(err, &limit) {
					t.Fatal(err)
				}
			}
			if joined != test.want {
				t.Errorf("%s: %d joined, want %d", test.name, joined, test.want)
			}
			if limit != nil {
				time.Sleep(limit.RetryAfter)
				if _, err := r.Enter(ctx, "shop", room.Visit{Client: test.from(2999), Shared: test.shared}); err != nil {
					t.Errorf("%s: after %v: %v", test.name, limit.RetryAfter, err)
				}
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(r.Collector())
			want := "# HELP room_joins_limited_total Visitors who were refused because too many came from their address.\n" +
				fmt.Sprintf("# TYPE room_joins_limited_total counter\nroom_joins_limited_total %d\n", 3000-joined)
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "room_joins_limited_total"); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		})
	}
}

// v6 returns an address in a network of 64 bits.
func v6(network uint64, n int) netip.Addr {
	return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, network), uint64(n))))
}

func TestBoundTicketsAreForOneClient(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.BindTickets = true
		r.put("shop", s)
		here, there := netip.MustParseAddr("2001:db8:1:2::3"), netip.MustParseAddr("2001:db8:1:3::3")
		a, err := r.Enter(ctx, "shop", room.Visit{Client: here})
		if err != nil {
			t.Fatal(err)
		}
		ticket := a.Ticket
		if _, err := r.Ask(ctx, "shop", a.Ticket, here); err != nil {
			t.Errorf("from the same client: %v", err)
		}
		for _, client := range []netip.Addr{there, nowhere} {
			if _, err := r.Ask(ctx, "shop", a.Ticket, client); !errors.Is(err, engine.ErrBadTicket) {
				t.Errorf("from %v: %v, want ErrBadTicket", client, err)
			}
			if _, err := r.AskPass(ctx, "shop", a.Pass, client); !errors.Is(err, engine.ErrBadPass) {
				t.Errorf("the pass, from %v: %v, want ErrBadPass", client, err)
			}
		}
		time.Sleep(10 * time.Second) // until a pass is another one
		for range 2 {
			if a, err = r.AskPass(ctx, "shop", a.Pass, here); err != nil {
				t.Fatalf("the pass, from the same client: %v", err)
			}
		}
		if _, err := r.AskPass(ctx, "shop", a.Pass, there); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("the renewed pass, from another client: %v, want ErrBadPass", err)
		}
		if err := r.RevokeTicket(ctx, "shop", ticket); err != nil {
			t.Errorf("an operator revokes it: %v", err)
		}
	})
}

func TestKeysOfVisitors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		for _, key := range []string{strings.Repeat("k", 257), "\xff"} {
			var wrong *room.KeyError
			if _, err := r.Enter(ctx, "shop", room.Visit{Key: key}); !errors.As(err, &wrong) {
				t.Errorf("Enter(%.5q) = %v, want a KeyError", key, err)
			}
		}
		a := r.enterAs("shop", "ann")
		if err := r.RevokeVisitor(ctx, "shop", "bob"); !errors.Is(err, room.ErrNoVisitor) {
			t.Errorf("revoke somebody else: %v, want ErrNoVisitor", err)
		}
		if err := r.RevokeVisitor(ctx, "shop", "ann"); err != nil {
			t.Fatal(err)
		}
		_, err := r.Ask(ctx, "shop", a.Ticket, nowhere)
		gone(t, err, room.Revoked)
		if err := r.RevokeVisitor(ctx, "shop", "ann"); !errors.Is(err, room.ErrNoVisitor) {
			t.Errorf("revoke again: %v, want ErrNoVisitor", err)
		}
		if err := r.RevokeTicket(ctx, "shop", a.Ticket); !errors.Is(err, room.ErrNoVisitor) {
			t.Errorf("revoke the ticket: %v, want ErrNoVisitor", err)
		}
		if b := r.enterAs("shop", "ann"); b.ID == a.ID || b.State != room.Inside {
			t.Errorf("came again as %+v, want another place", b)
		}
	})
}

// Passes from before RevokeAll are void at every instance, even if it has not been notified; also
// if the instance that began it stopped halfway.
func TestRevokeAllHoldsAtEveryInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		here, there := newRig(t, store), newRig(t, store)
		here.put("shop", teller(2))
		a, b := there.enter("shop"), there.enter("shop")
		c := there.enter("shop")
		if err := here.RevokeAll(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		for _, pass := range []string{a.Pass, b.Pass} {
			_, err := there.AskPass(ctx, "shop", pass, nowhere)
			gone(t, err, room.Revoked)
		}
		if c = there.ask("shop", c.Ticket); c.State != room.Inside {
			t.Errorf("who waited is %v, want inside", c.State)
		}
		if claims := claimsOf(t, c.Pass); claims["epoch"] != 2.0 {
			t.Errorf("the new pass has epoch %v, want 2", claims["epoch"])
		}
		here.stop()
		there.stop()
	})
}

// A RevokeAll that failed halfway has made all passes void, and can be repeated.
func TestRevokeAllThatFailedInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: storetest.NewMemory()}
		store.clear = room.ErrUnavailable
		engine, err := engine.New(store, room.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := engine.PutRoom(ctx, "shop", teller(1)); err != nil {
			t.Fatal(err)
		}
		a, err := engine.Enter(ctx, "shop", room.Visit{})
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.RevokeAll(ctx, "shop"); !errors.Is(err, room.ErrUnavailable) {
			t.Fatalf("RevokeAll() = %v, want that the store is away", err)
		}
		_, err = engine.AskPass(ctx, "shop", a.Pass, nowhere)
		gone(t, err, room.Revoked)
		store.clear = nil
		if err := engine.RevokeAll(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		_, err = engine.Ask(ctx, "shop", a.Ticket, nowhere)
		gone(t, err, room.Revoked)
	})
}

// Two instances: one accepts at once what the other signs with a new key; and all keys keep
// verifying what they signed.
func TestRotatedKeysHoldAtOnceEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		here, there := newRig(t, store), newRig(t, store)
		here.put("shop", teller(1))
		old := here.enter("shop")
		for i := range 5 {
			if err := here.RotateKeys(ctx); err != nil {
				t.Fatal(err)
			}
			a := here.enter("shop")
			if _, err := there.Ask(ctx, "shop", a.Ticket, nowhere); err != nil {
				t.Errorf("rotation %d: the other instance says %v", i, err)
			}
		}
		if err := here.RotateKeys(ctx); err != nil {
			t.Fatal(err)
		}
		fresh := here.ask("shop", old.Ticket)
		if _, err := there.AskPass(ctx, "shop", fresh.Pass, nowhere); err != nil {
			t.Errorf("a pass by a new key: the other instance says %v", err)
		}
		if _, err := there.AskPass(ctx, "shop", old.Pass, nowhere); err != nil {
			t.Errorf("a pass by an old key: %v", err)
		}
		keys, err := there.JWKS(ctx)
		if err != nil || strings.Count(string(keys), `"kid"`) != 7 {
			t.Errorf("JWKS() = %s, %v; want 7 keys", keys, err)
		}
		here.stop()
		there.stop()
	})
}

// After a theft of keys, nothing that they signed is valid: at once here, and at other
// instances when they have read the keys. A visitor with a key of its own keeps the place.
func TestRevokedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		here, there := newRig(t, store), newRig(t, store)
		here.put("shop", teller(1))
		inside, alice := here.enter("shop"), here.enterAs("shop", "alice")
		if err := here.RevokeKeys(ctx); err != nil {
			t.Fatal(err)
		}
		refused := func(r *rig) {
			t.Helper()
			if _, err := r.Ask(ctx, "shop", alice.Ticket, nowhere); !errors.Is(err, engine.ErrBadTicket) {
				t.Errorf("a ticket of an old key: %v, want ErrBadTicket", err)
			}
			if _, err := r.AskPass(ctx, "shop", inside.Pass, nowhere); !errors.Is(err, engine.ErrBadPass) {
				t.Errorf("a pass of an old key: %v, want ErrBadPass", err)
			}
			if keys, err := r.JWKS(ctx); err != nil || strings.Count(string(keys), `"kid"`) != 1 {
				t.Errorf("JWKS() = %s, %v; want 1 key", keys, err)
			}
		}
		refused(here)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		refused(there)
		if again := here.enterAs("shop", "alice"); again.ID != alice.ID || again.Ticket == alice.Ticket {
			t.Errorf("alice enters again as %d, want %d with a new ticket", again.ID, alice.ID)
		}
		here.stop()
		there.stop()
	})
}

// Tickets with unknown keys do not load the store.
func TestUnknownKeysAreLookedUpSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stranger := newRig(t, storetest.NewMemory())
		stranger.put("shop", teller(1))
		forged := stranger.enter("shop").Ticket
		stranger.stop()

		store := &countingStore{Store: storetest.NewMemory()}
		e, err := engine.New(store, room.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.PutRoom(ctx, "shop", teller(1)); err != nil {
			t.Fatal(err)
		}
		before, begin := store.keys.Load(), time.Now()
		for range 1000 {
			if time.Since(begin) >= 2*time.Second {
				break
			}
			if _, err := e.Ask(ctx, "shop", forged, nowhere); !errors.Is(err, engine.ErrBadTicket) {
				t.Fatalf("a forged ticket: %v", err)
			}
		}
		if reads := store.keys.Load() - before; reads > 25 {
			t.Errorf("the keys were read %d times in 2 s, want about 20", reads)
		}
		// The same holds for rooms that do not exist.
		before, begin = store.rooms.Load(), time.Now()
		for range 20 {
			if _, err := e.Room(ctx, "none"); !errors.Is(err, room.ErrNoRoom) {
				t.Fatalf("a room that does not exist: %v", err)
			}
		}
		if took := time.Since(begin); took < 1700*time.Millisecond { // two of the reads may be the regular ones
			t.Errorf("the rooms were read %d times in %v, want ten a second", store.rooms.Load()-before, took)
		}
		if err := e.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
