package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// laneVisit is of a visitor with a token that names a lane.
func laneVisit(t *testing.T, secret, who, lane string) room.Visit {
	t.Helper()
	claims := jwt.MapClaims{"sub": who, "lane": lane, "exp": time.Now().Add(time.Hour).Unix()}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return room.Visit{Token: token}
}

// Visitors wait in the lane that their tokens name, and are let in by the lanes' shares.
func TestVisitorsWaitInLanes(t *testing.T) {
	secret := strings.Repeat("s", 32)
	keys, err := engine.ParseTokenKeys([]string{"HS256:" + secret})
	if err != nil {
		t.Fatal(err)
	}
	inVirtualTime(t, func(t *testing.T, r *rig) {
		shop := teller(1)
		shop.Lanes, shop.AbandonAfter = "vip=1,public=2", time.Hour
		r.put("shop", shop)
		in := map[string][]engine.Answer{}
		enter := func(visit room.Visit) engine.Answer {
			t.Helper()
			a, err := r.Enter(ctx, "shop", visit)
			if err != nil {
				t.Fatal(err)
			}
			in[a.Lane] = append(in[a.Lane], a)
			if a.State == room.Waiting && a.Position != int64(len(in[a.Lane])) {
				t.Errorf("the place is %+v, want number %d in the lane", a, len(in[a.Lane]))
			}
			return a
		}
		inside := enter(room.Visit{})
		for range 6 {
			enter(room.Visit{})
		}
		for _, who := range []string{"ann", "bob", "eve"} {
			if a := enter(laneVisit(t, secret, who, "vip")); a.Lane != "vip" {
				t.Errorf("%s waits in %q", who, a.Lane)
			}
		}
		if a := enter(laneVisit(t, secret, "zoe", "gold")); a.Lane != "public" {
			t.Errorf("a lane that the room lacks is %q, want the last", a.Lane)
		}
		// Each visit ends, and the next visitor enters.
		var order strings.Builder
		for range 10 {
			if err := r.Leave(ctx, "shop", inside.Ticket, nowhere); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for lane, waiting := range in {
				if len(waiting) == 0 || lane == "" {
					continue
				}
				if a := r.ask("shop", waiting[0].Ticket); a.State == room.Inside {
					order.WriteByte(lane[0])
					inside, in[lane] = a, waiting[1:]
				} else if a.Position != 1 || a.Lane != lane {
					t.Errorf("the first of %s is %+v", lane, a)
				}
			}
		}
		if got := order.String(); got != "vppvppvppp" {
			t.Errorf("visitors entered in the order %s, want one of vip for two of public", got)
		}
	}, engine.WithTokenKeys(keys))
}
