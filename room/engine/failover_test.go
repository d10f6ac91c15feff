package engine_test

import (
	"errors"
	"testing"

	"github.com/sluice-project/sluice/room"
)

// A store that has lost its last operations gives a number again. The first visitor's ticket and
// pass are void then, and do nothing to the visitor who has the number now.
func TestANumberGivenTwiceIsOneVisitors(t *testing.T) {
	forgotten := func(t *testing.T, what string, err error) {
		t.Helper()
		var gone *room.GoneError
		if !errors.As(err, &gone) || gone.Reason != room.Forgotten {
			t.Errorf("%s: %v, want a place that is forgotten", what, err)
		}
	}
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		first := r.enter("shop")
		r.store.Lose("shop")
		inside := r.enter("shop")
		if inside.ID != first.ID || inside.State != room.Inside {
			t.Fatalf("the second visitor is %+v, want inside with the number %d", inside, first.ID)
		}
		_, err := r.AskPass(ctx, "shop", first.Pass, nowhere)
		forgotten(t, "the lost visitor's pass", err)
		if err := r.LeavePass(ctx, "shop", first.Pass); err != nil {
			t.Error(err)
		}
		if err := r.RevokeTicket(ctx, "shop", first.Ticket); !errors.Is(err, room.ErrNoVisitor) {
			t.Errorf("revoking the lost visitor: %v", err)
		}
		_, err = r.Renew(ctx, "shop", first.Ticket, nowhere)
		forgotten(t, "the lost visitor's renewal", err)
		if answer, err := r.AskPass(ctx, "shop", inside.Pass, nowhere); err != nil || answer.State != room.Inside {
			t.Errorf("the second visitor's pass: %+v, %v", answer, err)
		}

		lost := r.enter("shop")
		r.store.Lose("shop")
		waiting := r.enter("shop")
		_, err = r.Ask(ctx, "shop", lost.Ticket, nowhere)
		forgotten(t, "the ticket of one who waited", err)
		if err := r.Leave(ctx, "shop", lost.Ticket, nowhere); err != nil {
			t.Error(err)
		}
		if a := r.ask("shop", waiting.Ticket); a.ID != lost.ID || a.Position != 1 {
			t.Errorf("the visitor with the number %d is %+v, want it to wait at 1", lost.ID, a)
		}
	})
}
