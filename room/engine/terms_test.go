package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

// noon is when the rooms of these tests open.
var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func roomOf(s room.Settings) *Room {
	return &Room{Name: "shop", Settings: s.WithDefaults(), Epoch: 1, Generation: "g", CreatedAt: noon.Add(-time.Hour), Revision: 3}
}

func TestTermsOfTeller(t *testing.T) {
	r := roomOf(room.Settings{Mode: room.Teller, Capacity: 5, OpensAt: noon, PrequeueFrom: noon.Add(-time.Minute), EndsAt: noon.Add(time.Hour), Grace: -1})
	got := terms(r, noon, 7)
	want := room.Terms{
		Room: "shop", Revision: 3, Capacity: 5, From: noon, Until: noon.Add(time.Hour),
		EnterFrom: noon.Add(-time.Minute), EnterUntil: noon.Add(time.Hour), MaxWaiting: room.DefaultMaxWaiting,
		TTL: room.DefaultPassTTL, Sliding: true, Claim: room.DefaultClaimWindow, Abandon: room.DefaultAbandonAfter,
		Tend: time.Second, Late: 200 * time.Millisecond, Away: 3 * time.Second, Events: 7,
	}
	if got != want {
		t.Errorf("terms %+v, want %+v", got, want)
	}
	r.Settings.Pass, r.Settings.Renewals, r.Settings.Method, r.Paused = room.Fixed, 2, room.Lottery, true
	want.Sliding, want.Renewals, want.DrawUntil, want.Capacity = false, 2, noon, 0
	if got := terms(r, noon, 7); got != want {
		t.Errorf("terms %+v, want %+v", got, want)
	}
}

func TestTermsOfPark(t *testing.T) {
	r := roomOf(room.Settings{Mode: room.Park, Batch: 5, Interval: time.Minute, Stay: 30 * time.Second, OpensAt: noon})
	at := func(after time.Duration, tick time.Duration) {
		t.Helper()
		got := terms(r, noon.Add(after), 0)
		due := noon.Add(tick)
		if got.Tick != due.UnixMilli() || !got.From.Equal(due) || !got.Until.Equal(due.Add(15*time.Second)) || got.Calls != 5 || got.Capacity < 1e9 {
			t.Errorf("%v after the opening: %+v, want the tick at %v", after, got, tick)
		}
	}
	at(-time.Hour, 0)
	at(0, 0)
	at(59*time.Second, 0)
	at(60*time.Second, time.Minute)
	at(90*time.Minute+time.Second, 90*time.Minute)
	r.Settings.EndsAt = noon.Add(5 * time.Second)
	if got := terms(r, noon, 0); !got.Until.Equal(r.Settings.EndsAt) {
		t.Errorf("nobody is called from %v on, want from the end on", got.Until)
	}
}

// Terms that are kept are those that would be made again, whenever that is.
func TestTermsAreKeptWhileTheyHold(t *testing.T) {
	teller := room.Settings{Mode: room.Teller, Capacity: 5, OpensAt: noon}
	park := room.Settings{Mode: room.Park, Batch: 5, Interval: time.Minute, Stay: 30 * time.Second, OpensAt: noon}
	for _, settings := range []room.Settings{teller, park} {
		rapid.Check(t, func(t *rapid.T) {
			var k cachedRoom
			rooms := []*Room{roomOf(settings), roomOf(settings)}
			rooms[1].Paused = true
			for range 50 {
				r := rapid.SampledFrom(rooms).Draw(t, "room")
				now := noon.Add(time.Duration(rapid.Int64Range(-150_000, 150_000).Draw(t, "ms")) * time.Millisecond)
				events := rapid.Int64Range(0, 1).Draw(t, "events")
				if got, want := *k.terms(r, now, events), terms(r, now, events); got != want {
					t.Fatalf("at %v: %+v, want %+v", now, got, want)
				}
			}
			if k.terms(rooms[0], noon, 1) != k.terms(rooms[0], noon.Add(time.Second), 1) {
				t.Error("the same terms were made again")
			}
		})
	}
}

func TestPhaseOf(t *testing.T) {
	schedule := room.Settings{Mode: room.Teller, Capacity: 2, OpensAt: noon, PrequeueFrom: noon.Add(-time.Minute), EndsAt: noon.Add(time.Hour)}
	park := room.Settings{Mode: room.Park, Batch: 2, Interval: time.Minute, Stay: time.Minute}
	for _, test := range []struct {
		name     string
		settings room.Settings
		paused   bool
		status   room.Status
		after    time.Duration
		want     room.Phase
	}{
		{"before the pre-queue", schedule, false, room.Status{}, -2 * time.Minute, room.Closed},
		{"before the pre-queue, paused", schedule, true, room.Status{}, -2 * time.Minute, room.Closed},
		{"in the pre-queue", schedule, false, room.Status{}, -time.Minute, room.Queueing},
		{"open", schedule, false, room.Status{Inside: 1, Waiting: 1}, 0, room.Open},
		{"full", schedule, false, room.Status{Inside: 2}, 0, room.Queueing},
		{"paused", schedule, true, room.Status{}, 0, room.Paused},
		{"ended", schedule, false, room.Status{}, time.Hour, room.Closed},
		{"park", park, false, room.Status{Inside: 100, Waiting: 1}, 0, room.Open},
		{"park with a line", park, false, room.Status{Waiting: 2}, 0, room.Queueing},
	} {
		r := roomOf(test.settings)
		r.Paused = test.paused
		if got := PhaseOf(r, &test.status, noon.Add(test.after)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// For any end of a tick, the next comes in time for everything that began after it, and not before
// something is due.
func TestUntilNext(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		duration := func(name string, low, high time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(int64(low/time.Millisecond), int64(high/time.Millisecond)).Draw(rt, name)) * time.Millisecond
		}
		s := room.Settings{Mode: room.Teller, Capacity: 1, PassTTL: duration("ttl", 100*time.Millisecond, time.Minute), ClaimWindow: duration("claim", 100*time.Millisecond, time.Minute)}
		shortest := min(s.PassTTL, s.ClaimWindow)
		if rapid.Bool().Draw(rt, "park") {
			s = room.Settings{Mode: room.Park, Batch: 1, Interval: duration("interval", 100*time.Millisecond, time.Minute), Stay: s.PassTTL, ClaimWindow: s.ClaimWindow}
		}
		if rapid.Bool().Draw(rt, "opens") {
			s.OpensAt = noon.Add(duration("opens", -time.Minute, time.Minute))
		}
		r := roomOf(s)
		allowed := terms(r, noon.Add(-duration("estimate", 0, 3*time.Millisecond)), 0)
		due := room.Due{Now: noon, Tended: rapid.Bool().Draw(rt, "tended"), More: rapid.Bool().Draw(rt, "more")}
		if rapid.Bool().Draw(rt, "somebody") {
			due.Next = noon.Add(duration("next", time.Millisecond, time.Minute))
		}
		if !due.Tended {
			due.Next, due.More = noon.Add(duration("takeover", time.Millisecond, tendTime)), false
		}
		jitter := duration("jitter", 0, lookJitter)
		wait := untilNext(r, &allowed, due, 500*time.Millisecond, jitter)
		switch at := noon.Add(wait); {
		case due.More && wait != 0:
			rt.Fatalf("more is due, and the next look is in %v", wait)
		case wait > 500*time.Millisecond && due.Tended:
			rt.Fatalf("the next look is in %v", wait)
		case !due.Next.IsZero() && (wait > shortest || at.After(due.Next.Add(jitter))):
			rt.Fatalf("the next look is in %v, after something is due in %v, or may be in %v", wait, due.Next.Sub(noon), shortest)
		case s.OpensAt.After(noon) && at.After(s.OpensAt.Add(jitter)):
			rt.Fatalf("the room opens in %v, and the next look is in %v", s.OpensAt.Sub(noon), wait)
		case s.Mode == room.Park && at.After(NextTick(r.Opening(), s.Interval, noon).Add(jitter)):
			rt.Fatalf("the next tick is at %v, and the next look at %v", NextTick(r.Opening(), s.Interval, noon), at)
		case s.Mode == room.Park && allowed.Tick < due.Now.Add(-s.Interval).UnixMilli() && wait > time.Millisecond+jitter:
			rt.Fatalf("a tick was missed by the estimate, and the next look is in %v", wait)
		}
	})
}

// The estimate is never ahead of the store's clock, and follows it when that drifts or jumps.
func TestStoreClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c storeClock
		if _, ok := c.now(); ok {
			t.Error("a time is known before any reply")
		}
		offset := 3 * time.Hour
		store := func() time.Time { return time.Now().Add(offset).Truncate(time.Millisecond) }
		reply := func(took time.Duration) {
			at := store()
			time.Sleep(took)
			c.observe(at)
		}
		check := func(most time.Duration) {
			t.Helper()
			now, _ := c.now()
			if behind := time.Now().Add(offset).Sub(now); behind < 0 || behind > most {
				t.Errorf("the estimate is %v behind, want 0 to %v", behind, most)
			}
		}
		reply(200 * time.Millisecond)
		check(201 * time.Millisecond)
		reply(time.Millisecond)
		check(2 * time.Millisecond)
		reply(500 * time.Millisecond) // a slow reply does no harm
		check(2 * time.Millisecond)
		offset += time.Hour // the clock is set forward
		reply(time.Millisecond)
		check(2 * time.Millisecond)
		offset -= 2 * time.Hour // and back
		for range 3 {
			time.Sleep(time.Second)
			reply(time.Millisecond)
		}
		check(2 * time.Millisecond)
		offset -= time.Hour // seen at once if no reply takes so long
		reply(time.Millisecond)
		check(2 * time.Millisecond)
	})
}
