package engine_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// Tickets and passes of an earlier visit reveal nothing about the present one, and cannot end it.
func TestWhatWasBeforeIsOfNoUse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		before := r.enterAs("shop", "user")
		if err := r.Leave(ctx, "shop", before.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		now := r.enterAs("shop", "user")
		if now.ID == before.ID || now.Ticket == before.Ticket {
			t.Fatalf("the visitor came back as %d, with the ticket of %d", now.ID, before.ID)
		}
		_, err := r.Ask(ctx, "shop", before.Ticket, nowhere)
		gone(t, err, room.Left)
		_, err = r.Renew(ctx, "shop", before.Ticket, nowhere)
		gone(t, err, room.Left)
		_, err = r.AskPass(ctx, "shop", before.Pass, nowhere)
		gone(t, err, room.Left)
		if err := errors.Join(r.Leave(ctx, "shop", before.Ticket, nowhere), r.LeavePass(ctx, "shop", before.Pass)); err != nil {
			t.Errorf("leaving with what is gone: %v, want nil", err)
		}
		if err := r.RevokeTicket(ctx, "shop", before.Ticket); !errors.Is(err, room.ErrNoVisitor) {
			t.Errorf("revoke with what is gone: %v, want ErrNoVisitor", err)
		}
		if a := r.ask("shop", now.Ticket); a.State != room.Inside || a.ID != now.ID {
			t.Errorf("the visit is %+v, want that it goes on", a)
		}
		time.Sleep(24 * time.Hour)
		_, err = r.Ask(ctx, "shop", now.Ticket, nowhere)
		var g *room.GoneError
		if !errors.As(err, &g) || g.Reason != room.Expired && g.Reason != room.Forgotten {
			t.Errorf("a ticket of yesterday: %v, want that its place is gone", err)
		}
		if _, err := r.AskPass(ctx, "shop", now.Pass, nowhere); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("a pass of yesterday: %v, want ErrBadPass", err)
		}
	})
}

// Passes of a removed room are void in a new room of the same name, whose visitors have the same
// numbers; so are passes from before all were revoked.
func TestPassesOfBefore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		removed := r.enter("shop")
		if err := r.DeleteRoom(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		r.put("shop", teller(1))
		a := r.enter("shop")
		if a.ID != removed.ID {
			t.Fatalf("the first is %d, and was %d", a.ID, removed.ID)
		}
		if _, err := r.AskPass(ctx, "shop", removed.Pass, nowhere); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("a pass of the room that was removed: %v, want ErrBadPass", err)
		}
		if err := r.LeavePass(ctx, "shop", removed.Pass); !errors.Is(err, engine.ErrBadPass) {
			t.Errorf("leaving with it: %v, want ErrBadPass", err)
		}
		if err := r.RevokeAll(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		b := r.enter("shop")
		_, err := r.AskPass(ctx, "shop", a.Pass, nowhere)
		gone(t, err, room.Revoked)
		if err := r.LeavePass(ctx, "shop", a.Pass); err != nil {
			t.Errorf("leaving with a pass that was revoked: %v", err)
		}
		if c, err := r.AskPass(ctx, "shop", b.Pass, nowhere); err != nil || c.ID != b.ID {
			t.Errorf("the pass of who came after that: %+v, %v", c, err)
		}
	})
}

// Without a limit one visitor can take 1,000 places. Only the places that ask are kept, and later
// visitors wait no longer than until the silence of the others is noticed and those called before
// that are no-shows.
func TestAThousandPlacesOfOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(10)
		s.JoinsPerMinute = -1
		r.put("shop", s)
		for range 1000 {
			if _, err := r.Enter(ctx, "shop", room.Visit{Client: netip.MustParseAddr("192.0.2.1")}); err != nil {
				t.Fatal(err)
			}
		}
		honest := r.enter("shop")
		if honest.Position != 991 {
			t.Fatalf("the honest visitor is at %d, want 991", honest.Position)
		}
		begin := time.Now()
		// The ten who were let in at once hold their slots for the time of a pass.
		most := s.PassTTL + s.AbandonAfter + s.ClaimWindow + time.Second
		for honest.State != room.Inside {
			if time.Since(begin) > most {
				t.Fatalf("after %v the honest visitor is at %d", time.Since(begin), honest.Position)
			}
			time.Sleep(honest.NextPoll)
			honest = r.ask("shop", honest.Ticket)
		}
		synctest.Wait()
		if v, err := r.Room(ctx, "shop"); err != nil || v.Status.Waiting != 0 || v.Status.Inside != 1 {
			t.Errorf("%+v, %v; want the honest visitor alone", v.Status, err)
		}
	})
}
