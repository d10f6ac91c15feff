package engine_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// A lottery: visitors from before the opening are in the order of their draws, which each can
// verify; later ones stand behind them; and no position is shown before the draw.
func TestLotteryMorning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storetest.NewMemory())
		defer r.stop()
		s := teller(1)
		s.Method, s.AbandonAfter = room.Lottery, time.Hour
		s.OpensAt, s.PrequeueFrom = time.Now().Add(20*time.Second), time.Now().Add(10*time.Second)
		r.put("shop", s)
		if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrNotOpen) {
			t.Errorf("Enter() = %v, want ErrNotOpen", err)
		}
		time.Sleep(10 * time.Second)
		var early []engine.Answer
		for i := range 50 {
			key := ""
			if i%2 == 0 {
				key = fmt.Sprint("user ", i)
			}
			a := r.enterAs("shop", key)
			if a.State != room.Waiting || a.Position != 0 || a.Draw != nil || a.Wait != nil {
				t.Fatalf("before the draw one is told %+v", a)
			}
			if until := time.Until(s.OpensAt); a.NextPoll > until {
				t.Fatalf("asks again in %v, %v after the opening", a.NextPoll, a.NextPoll-until)
			}
			early = append(early, a)
		}
		time.Sleep(10 * time.Second)
		late := r.enter("shop")
		for i := range early {
			early[i] = r.ask("shop", early[i].Ticket)
		}
		if late = r.ask("shop", late.Ticket); late.Draw != nil || late.Position != 50 {
			t.Errorf("who came after the opening is told %+v", late)
		}
		slices.SortFunc(early, func(a, b engine.Answer) int { return cmp.Or(cmp.Compare(*a.Draw, *b.Draw), cmp.Compare(a.ID, b.ID)) })
		view, err := r.Room(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range early {
			// The first may be inside, or count as called, at this moment.
			if a.State == room.Waiting && a.Position != int64(i) && a.Position != int64(i)+1 || a.State == room.Inside && i > 0 {
				t.Errorf("the draw makes it the %d., it is told %+v", i+1, a)
			}
			ticket, err := r.Parse(ctx, "shop", a.Ticket, nowhere)
			if err != nil || room.Draw(view.Room.Seed, ticket.Nonce) != *a.Draw {
				t.Errorf("the draw of %+v cannot be checked: %v", a, err)
			}
		}
	})
}

// Visitors who ask together get the same answers as alone. Without claim, a called visitor learns
// so and has no pass.
func TestAskAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.AbandonAfter = time.Hour
		r.put("shop", s)
		first := r.enter("shop")
		askers := make([]engine.Asker, 0, 2501)
		for range 2500 {
			ticket, err := r.Parse(ctx, "shop", r.enter("shop").Ticket, nowhere)
			if err != nil {
				t.Fatal(err)
			}
			askers = append(askers, engine.Asker{Ticket: ticket})
		}
		askers = append(askers, engine.Asker{Ticket: engine.Ticket{Number: 99_999}})
		if err := r.Leave(ctx, "shop", first.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		for _, claim := range []bool{false, true} {
			results := r.AskAll(ctx, "shop", askers, claim)
			if len(results) != len(askers) {
				t.Fatalf("%d results for %d askers", len(results), len(askers))
			}
			want := room.Called
			if claim {
				want = room.Inside
			}
			if a := results[0].Answer; a.State != want || (a.Pass != "") != claim || a.Position != 0 {
				t.Errorf("with claim %v, the first is told %+v", claim, a)
			}
			for i, result := range results[1:2500] {
				ahead := int64(i)
				if !claim {
					ahead++ // a called visitor counts until it enters
				}
				if result.Err != nil || result.Answer.Position != ahead+1 {
					t.Fatalf("%d is told %+v, want position %d", i+2, result, ahead+1)
				}
			}
			gone(t, results[2500].Err, room.Forgotten)
		}
		if got := r.AskAll(ctx, "shop", nil, true); len(got) != 0 {
			t.Errorf("nobody asks and is told %v", got)
		}
	})
}

// The fast encoder writes the same as encoding/json.
func TestAnswerJSON(t *testing.T) {
	type wait struct {
		Low  int64 `json:"low"`
		High int64 `json:"high"`
	}
	type shape struct {
		Ticket    *string    `json:"ticket"`
		ID        int64      `json:"id"`
		Status    string     `json:"status"`
		Position  *int64     `json:"position"`
		Ahead     *int64     `json:"ahead"`
		Wait      *wait      `json:"estimated_wait_ms"`
		NextPoll  int64      `json:"next_poll_ms"`
		Pass      *string    `json:"pass"`
		ExpiresAt *time.Time `json:"pass_expires_at"`
		Draw      *int64     `json:"draw,omitempty"`
	}
	text := rapid.StringMatching(`[A-Za-z0-9_.-]{1,80}`)
	rapid.Check(t, func(rt *rapid.T) {
		a := engine.Answer{
			ID: rapid.Int64().Draw(rt, "id"), State: rapid.SampledFrom([]room.State{room.Waiting, room.Called, room.Inside}).Draw(rt, "state"),
			NextPoll: time.Duration(rapid.Int64Range(0, 1e14).Draw(rt, "poll")),
		}
		want := shape{ID: a.ID, Status: a.State.String(), NextPoll: a.NextPoll.Milliseconds()}
		if rapid.Bool().Draw(rt, "ticket") {
			a.Ticket = text.Draw(rt, "text")
			want.Ticket = &a.Ticket
		}
		if rapid.Bool().Draw(rt, "position") {
			a.Position = rapid.Int64Range(1, 1e9).Draw(rt, "position")
			want.Position, want.Ahead = &a.Position, new(a.Position-1)
		}
		if rapid.Bool().Draw(rt, "wait") {
			a.Wait = &engine.Wait{Low: time.Duration(rapid.Int64Range(0, 1e14).Draw(rt, "low")), High: 1e14}
			want.Wait = &wait{a.Wait.Low.Milliseconds(), a.Wait.High.Milliseconds()}
		}
		if rapid.Bool().Draw(rt, "pass") {
			a.Pass = text.Draw(rt, "text")
			a.PassExpiresAt = time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(rt, "expires")).In(time.FixedZone("", 3600))
			want.Pass, want.ExpiresAt = &a.Pass, new(a.PassExpiresAt.UTC())
		}
		if rapid.Bool().Draw(rt, "draw") {
			a.Draw = new(rapid.Int64Range(0, room.MaxDraw).Draw(rt, "draw"))
			want.Draw = a.Draw
		}
		var got shape
		encoded, err := json.Marshal(a)
		if err != nil {
			rt.Fatal(err)
		}
		if err := json.Unmarshal(encoded, &got); err != nil {
			rt.Fatalf("%s: %v", encoded, err)
		}
		if !reflect.DeepEqual(got, want) {
			rt.Fatalf("%s: got %+v, want %+v", encoded, got, want)
		}
	})
}

// With keys for tokens, a visitor's key is worth nothing by itself.
func TestTokenSaysWhoAVisitorIs(t *testing.T) {
	secret := strings.Repeat("s", 32)
	keys, err := engine.ParseTokenKeys([]string{"HS256:" + secret})
	if err != nil {
		t.Fatal(err)
	}
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		enter := func(v room.Visit) int64 {
			t.Helper()
			a, err := r.Enter(ctx, "shop", v)
			if err != nil {
				t.Fatal(err)
			}
			return a.ID
		}
		token := func(who string) string {
			t.Helper()
			text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": who, "exp": time.Now().Add(time.Minute).Unix()}).SignedString([]byte(secret))
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		alice := enter(room.Visit{Token: token("alice")})
		if again := enter(room.Visit{Token: token("alice"), Key: "alice"}); again != alice {
			t.Errorf("alice has the places %d and %d", alice, again)
		}
		if bob, nobody := enter(room.Visit{Token: token("bob")}), enter(room.Visit{}); bob == alice || nobody == alice {
			t.Errorf("alice has the place %d, bob %d, and a visitor without a key %d", alice, bob, nobody)
		}
		for _, test := range []struct {
			visit room.Visit
			want  error
		}{
			{room.Visit{Key: "alice"}, engine.ErrNoToken},
			{room.Visit{Key: "alice", Token: token("bob")}, engine.ErrBadToken},
			{room.Visit{Token: token("alice") + "x"}, engine.ErrBadToken},
		} {
			if _, err := r.Enter(ctx, "shop", test.visit); !errors.Is(err, test.want) {
				t.Errorf("%+v: %v, want %v", test.visit, err, test.want)
			}
		}
		if err := r.RevokeVisitor(ctx, "shop", "alice"); err != nil {
			t.Errorf("an operator needs no token: %v", err)
		}
		old := token("alice")
		time.Sleep(time.Minute + 30*time.Second)
		if _, err := r.Enter(ctx, "shop", room.Visit{Token: old}); !errors.Is(err, engine.ErrBadToken) {
			t.Errorf("after its end: %v", err)
		}
	}, engine.WithTokenKeys(keys))
}

func TestWithoutKeysForTokens(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		if a := r.enterAs("shop", "alice"); a.ID != r.enterAs("shop", "alice").ID {
			t.Error("without keys for tokens, a key is enough")
		}
		if _, err := r.Enter(ctx, "shop", room.Visit{Token: "a.b.c"}); !errors.Is(err, engine.ErrBadToken) {
			t.Errorf("a token that cannot be checked: %v", err)
		}
	})
}

// A visitor who enters provisionally gets a pass for the claim window, and the whole time with the
// next ask. One who comes back too late finds a free slot again at once, or is the first in line.
func TestProvisionalVisitor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(2))
		provisional := func() engine.Answer {
			t.Helper()
			a, err := r.Enter(ctx, "shop", room.Visit{Provisional: true})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		lasts := func(a engine.Answer, state room.State, d time.Duration) {
			t.Helper()
			if a.State != state || a.Pass == "" || !a.PassExpiresAt.Equal(time.Now().Add(d)) {
				t.Fatalf("the answer is %+v, want %v for %v", a, state, d)
			}
		}
		first := provisional()
		lasts(first, room.Called, 2*time.Second)
		if claims := claimsOf(t, first.Pass); claims["exp"].(float64)-claims["iat"].(float64) > 2 {
			t.Errorf("the pass has %v, want 2 s", claims)
		}
		time.Sleep(time.Second)
		byPass, err := r.AskPass(ctx, "shop", first.Pass, nowhere)
		if err != nil {
			t.Fatal(err)
		}
		lasts(byPass, room.Inside, time.Minute)
		second := provisional()
		lasts(second, room.Called, 2*time.Second)
		time.Sleep(5 * time.Second) // too late
		if _, err := r.AskPass(ctx, "shop", second.Pass, nowhere); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("AskPass() = %v, want that the pass has expired", err)
		}
		lasts(r.ask("shop", second.Ticket), room.Inside, time.Minute)
		if err := r.Leave(ctx, "shop", second.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		late := provisional()
		time.Sleep(5 * time.Second)
		lasts(r.enter("shop"), room.Inside, time.Minute)
		r.enter("shop")
		if a := r.ask("shop", late.Ticket); a.State != room.Waiting || a.Position != 1 {
			t.Errorf("who came back to a full room is told %+v, want to be first in line", a)
		}
	})
}

// A room by invitation has places for visitors with a key only, one for each, and in a lottery one
// draw, however often they join.
func TestInvitationOnly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.InvitationOnly, s.Method, s.OpensAt, s.AbandonAfter = true, room.Lottery, time.Now().Add(time.Minute), time.Hour
		r.put("shop", s)
		if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, engine.ErrUninvited) {
			t.Fatalf("without a key: %v, want ErrUninvited", err)
		}
		first := r.enterAs("shop", "ann")
		if again := r.enterAs("shop", "ann"); again.ID != first.ID || again.Ticket != first.Ticket {
			t.Errorf("joining again gives %+v, want %+v", again, first)
		}
		if err := r.Leave(ctx, "shop", first.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		again := r.enterAs("shop", "ann").Ticket
		time.Sleep(2 * time.Minute)
		draw := func(ticket string) int64 {
			parsed, err := r.Parse(ctx, "shop", ticket, nowhere)
			if err != nil {
				t.Fatal(err)
			}
			return int64(parsed.Nonce[0])
		}
		if draw(first.Ticket) != draw(again) {
			t.Error("a person who left and came again has another draw")
		}
	})
}

// Tickets and passes say whether their visitor has passed a challenge, also when they are renewed.
func TestProvenVisitor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(2))
		for _, proven := range []bool{true, false} {
			a, err := r.Enter(ctx, "shop", room.Visit{Proven: proven})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				time.Sleep(10 * time.Second)
				byTicket := r.ask("shop", a.Ticket)
				byPass, err := r.AskPass(ctx, "shop", byTicket.Pass, nowhere)
				if err != nil || byTicket.Proven != proven || byPass.Proven != proven {
					t.Errorf("by the ticket %v, by the pass %v, %v; want %v", byTicket.Proven, byPass.Proven, err, proven)
				}
				a.Ticket = byTicket.Ticket
			}
			if a.Ticket, err = r.Prove(ctx, "shop", a.Ticket, nowhere); err != nil || !r.ask("shop", a.Ticket).Proven {
				t.Errorf("Prove() = %v, and the ticket is not proven", err)
			}
		}
	})
}
