package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// jumps are the steps by which the store's clock is set, forward and back.
var jumps = map[string]time.Duration{
	"a second forth": time.Second, "an hour forth": time.Hour, "a week forth": 7 * 24 * time.Hour,
	"a second back": -time.Second, "an hour back": -time.Hour, "a week back": -7 * 24 * time.Hour,
}

// The clock of the store jumps while visitors wait. Visitors who keep asking keep their places and
// are let in, in order, and never are more inside than allowed. A jump forward ends the visits
// whose time it skips.
//
// A jump back prolongs present visits by as much; but leaving frees a slot at once.
func TestClockJumps(t *testing.T) {
	for name, by := range jumps {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, r *rig) { testJump(t, r, by) })
		})
	}
}

func testJump(t *testing.T, r *rig, by time.Duration) {
	r.put("shop", teller(2))
	line := &jumpedLine{rig: r, jumped: time.Now()}
	for range 8 {
		line.tickets = append(line.tickets, r.enter("shop").Ticket)
	}
	for range 5 {
		line.askAll()
		time.Sleep(time.Second)
	}
	synctest.Wait()
	r.store.Shift(by)
	line.jumped = time.Now()
	for range 10 {
		line.askAll()
		time.Sleep(time.Second)
	}
	if by < time.Minute { // all visitors inside still are
		for i, ticket := range line.tickets[:2] {
			if a := r.ask("shop", ticket); a.State != room.Inside {
				t.Errorf("visitor %d is %+v, want inside", i+1, a)
			}
		}
	}
	for i, ticket := range line.tickets { // one after the other
		line.askAll()
		if err := r.Leave(ctx, "shop", ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		if inside := line.askAll(); inside != min(2, len(line.tickets)-1-i) {
			t.Errorf("after visitor %d has left, %d are inside", i+1, inside)
		}
		time.Sleep(time.Second)
	}
	status, err := r.store.Status(ctx, "shop")
	if err != nil || status.Waiting+status.Inside != 0 || status.NoShows != 0 || status.Departed != 0 {
		t.Errorf("%+v, %v; want that all had their visit, and none missed its turn", status, err)
	}
}

// jumpedLine has the visitors of a room for two, in the order of entering.
type jumpedLine struct {
	*rig
	tickets []string
	jumped  time.Time
}

// askAll lets all ask, and returns how many are inside.
func (l *jumpedLine) askAll() (inside int) {
	l.t.Helper()
	status, err := l.store.Status(ctx, "shop")
	if err != nil || status.Inside > 2 {
		l.t.Errorf("%+v, %v; want two inside at most", status, err)
	}
	position := int64(0)
	for i, ticket := range l.tickets {
		a, err := l.Ask(ctx, "shop", ticket, nowhere)
		switch {
		case errors.As(err, new(*room.GoneError)):
		case err != nil:
			l.t.Fatalf("visitor %d: %v", i+1, err)
		case a.State == room.Inside && position > 0:
			l.t.Errorf("visitor %d is inside, and one before it waits", i+1)
		case a.State == room.Inside:
			inside++
			// An engine notices a jump at its next tick, and the ticket renews the pass.
			if _, err := l.AskPass(ctx, "shop", a.Pass, nowhere); err != nil && (time.Since(l.jumped) > 500*time.Millisecond || !errors.Is(err, engine.ErrBadPass)) {
				l.t.Errorf("the pass of visitor %d: %v", i+1, err)
			}
		case a.Position <= position:
			l.t.Errorf("visitor %d is at %d, and one before it at %d", i+1, a.Position, position)
		default:
			position = a.Position
		}
	}
	return inside
}

// A batch is never let in twice for one tick, however the clock jumps. After a jump forward the
// skipped ticks have lapsed; after a jump back the next batch comes when the clock has passed the
// tick of the last one.
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
