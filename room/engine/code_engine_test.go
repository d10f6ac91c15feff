package engine_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// codes makes codes of the room shop.
func (r *rig) codes(lane string, count int) []string {
	r.t.Helper()
	codes, err := r.MakeCodes(ctx, "shop", lane, count, time.Now().Add(time.Hour))
	if err != nil {
		r.t.Fatal(err)
	}
	return codes
}

// A code is an invitation, in its lane, and has one place at a time, also after the keys of tickets were replaced.
// It is void once codes are revoked, and its place stays.
func TestEnteringWithCodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		shop := teller(1)
		shop.Lanes, shop.InvitationOnly, shop.Codes = "vip=1,public=2", true, true
		r.put("shop", shop)
		if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, engine.ErrUninvited) {
			t.Errorf("without a code: %v", err)
		}
		vip := r.codes("vip", 3)
		slices.Sort(vip)
		if len(slices.Compact(vip)) != 3 {
			t.Errorf("the codes %s are not three", vip)
		}
		for i, code := range append(vip, r.codes("", 2)...) {
			first, err := r.Enter(ctx, "shop", room.Visit{Code: code})
			if err != nil {
				t.Fatal(err)
			}
			lane := map[bool]string{true: "vip", false: "public"}[i < 3]
			if first.State == room.Waiting && first.Lane != lane {
				t.Errorf("code %d waits in %q, want %q", i, first.Lane, lane)
			}
			if err := r.RotateKeys(ctx); err != nil {
				t.Fatal(err)
			}
			again, err := r.Enter(ctx, "shop", room.Visit{Code: strings.ToLower(code)})
			if err != nil || again.ID != first.ID || again.New {
				t.Errorf("code %d has the place %+v and then %+v %v", i, first, again, err)
			}
			if place := r.ask("shop", first.Ticket); place.ID != first.ID {
				t.Errorf("the place of code %d is %+v", i, place)
			}
		}
		if err := r.RevokeCodes(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Enter(ctx, "shop", room.Visit{Code: vip[0]}); !errors.Is(err, engine.ErrBadCode) {
			t.Errorf("a void code: %v", err)
		}
		if _, err := r.Enter(ctx, "shop", room.Visit{Code: r.codes("vip", 1)[0]}); err != nil {
			t.Errorf("a new code: %v", err)
		}
		if waiting := r.view("shop").Status.Waiting; waiting != 5 {
			t.Errorf("%d wait, want 5", waiting)
		}
	})
}

// Guesses are bounded as joins are.
func TestGuessingCodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		shop := teller(1)
		shop.InvitationOnly, shop.Codes, shop.JoinsPerMinute = true, true, 5
		r.put("shop", shop)
		visit := room.Visit{Client: netip.MustParseAddr("203.0.113.7"), Code: "0000-0000-0000-0000-0000"}
		var limit *engine.LimitError
		for range 5 {
			if _, err := r.Enter(ctx, "shop", visit); !errors.Is(err, engine.ErrBadCode) {
				t.Errorf("a guess: %v", err)
			}
		}
		if _, err := r.Enter(ctx, "shop", visit); !errors.As(err, &limit) {
			t.Errorf("one guess too many: %v", err)
		}
	})
}

func TestWhatCodesNeed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		shop := teller(1)
		shop.Codes = true
		var wrong *room.SettingsError
		if _, _, err := r.PutRoom(ctx, "shop", shop); !errors.As(err, &wrong) || wrong.Field != "codes" {
			t.Errorf("codes of a room in which they have no use: %v", err)
		}
		shop.Codes, shop.Lanes = false, "vip=1,public=2"
		r.put("shop", shop)
		if _, err := r.MakeCodes(ctx, "shop", "", 1, time.Now().Add(time.Hour)); !errors.As(err, &wrong) || wrong.Field != "codes" {
			t.Errorf("codes of a room without them: %v", err)
		}
		shop.Codes = true
		r.put("shop", shop)
		for field, make := range map[string]func() ([]string, error){
			"count": func() ([]string, error) {
				return r.MakeCodes(ctx, "shop", "", engine.MaxCodes+1, time.Now().Add(time.Hour))
			},
			"lane": func() ([]string, error) { return r.MakeCodes(ctx, "shop", "gold", 1, time.Now().Add(time.Hour)) },
			"until": func() ([]string, error) {
				return r.MakeCodes(ctx, "shop", "vip", 1, time.Now().Add(2*engine.MaxCodeLife))
			},
		} {
			if _, err := make(); !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("a wrong %s: %v", field, err)
			}
		}
	})
}
