package room_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// jumps are by how much the store's clock is set, forth and back.
var jumps = map[string]time.Duration{
	"a second forth": time.Second, "an hour forth": time.Hour, "a week forth": 7 * 24 * time.Hour,
	"a second back": -time.Second, "an hour back": -time.Hour, "a week back": -7 * 24 * time.Hour,
}

// The clock of the store jumps while visitors wait. Whoever keeps asking has its place
// and is let in, in order, and never are more inside than may be. A jump forth ends the
// visits whose time it skips, as any clock that says so would.
//
// A jump back makes the visits last longer that had begun, by as much; but who leaves
// makes room at once.
func TestClockJumps(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, r *rig) { testJump(t, r, by) })
		})
	}
}

func testJump(t *testing.T, r *rig, by time.Duration) {
	r.put("shop", teller(2))
	tickets := make([]string, 8)
	for i := range tickets {
		tickets[i] = r.enter("shop").Ticket
	}
	jumped := time.Now()
	askAll := func() (inside int) {
		t.Helper()
		status, err := r.store.Status(ctx, "shop")
		if err != nil || status.Inside > 2 {
			t.Errorf("%+v, %v; want two inside at most", status, err)
		}
		position := int64(0)
		for i, ticket := range tickets {
			a, err := r.Ask(ctx, "shop", ticket, nowhere)
			if errors.As(err, new(*room.GoneError)) {
				continue
			}
			if err != nil {
				t.Fatalf("visitor %d: %v", i+1, err)
			}
			if a.State == room.Inside {
				if inside++; position > 0 {
					t.Errorf("visitor %d is inside, and one before it waits", i+1)
				}
				// An engine notices a jump with its next look, and the pass is renewed with the ticket.
				if _, err := r.AskPass(ctx, "shop", a.Pass); err != nil && (time.Since(jumped) > 500*time.Millisecond || !errors.Is(err, room.ErrBadPass)) {
					t.Errorf("the pass of visitor %d: %v", i+1, err)
				}
				continue
			}
			if a.Position <= position {
				t.Errorf("visitor %d is at %d, and one before it at %d", i+1, a.Position, position)
			}
			position = a.Position
		}
		return inside
	}
	for range 5 {
		askAll()
		time.Sleep(time.Second)
	}
	r.store.Shift(by)
	jumped = time.Now()
	for range 10 {
		askAll()
		time.Sleep(time.Second)
	}
	if by < time.Minute { // all who were inside still are
		for i := range 2 {
			if a := r.ask("shop", tickets[i]); a.State != room.Inside {
				t.Errorf("visitor %d is %+v, want inside", i+1, a)
			}
		}
	}
	for i, ticket := range tickets { // one after the other
		askAll()
		if err := r.Leave(ctx, "shop", ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		if inside := askAll(); inside != min(2, len(tickets)-1-i) {
			t.Errorf("after visitor %d has left, %d are inside", i+1, inside)
		}
		time.Sleep(time.Second)
	}
	status, err := r.store.Status(ctx, "shop")
	if err != nil || status.Waiting+status.Inside != 0 || status.Missed != 0 || status.Departed != 0 {
		t.Errorf("%+v, %v; want that all had their visit, and none missed its turn", status, err)
	}
}

// A batch is never let in twice for one tick, whatever the clock does; and after a jump
// forth the ticks that were skipped have lapsed. After a jump back the next batch comes
// when the clock is beyond the tick of the last.
func TestClockJumpsInAPark(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, r *rig) {
				s := room.Settings{
					Mode: room.Park, Batch: 2, Interval: 10 * time.Second, Stay: 20 * time.Second,
					ClaimWindow: 5 * time.Second, AbandonAfter: 10 * time.Second, Grace: 10 * time.Second,
				}
				r.put("fair", s)
				tickets := make([]string, 10)
				for i := range tickets {
					tickets[i] = r.enter("fair").Ticket
				}
				inside := func() (n int64) {
					for _, ticket := range tickets {
						if _, err := r.Ask(ctx, "fair", ticket, nowhere); err != nil && !errors.As(err, new(*room.GoneError)) {
							t.Fatal(err)
						}
					}
					status, err := r.store.Status(ctx, "fair")
					if err != nil {
						t.Fatal(err)
					}
					return status.Admitted
				}
				for range 15 {
					inside()
					time.Sleep(time.Second)
				}
				before := inside()
				r.store.Shift(by)
				time.Sleep(time.Second)
				if after := inside(); before < 2 || after > before+s.Batch {
					t.Errorf("%d were let in before the jump, and %d after it", before, after)
				}
				for range 60 { // six ticks at most
					inside()
					time.Sleep(time.Second)
				}
				after := inside()
				if by >= 0 && after != 10 || after < before {
					t.Errorf("%d were let in a minute later, want all", after)
				}
			})
		})
	}
}
