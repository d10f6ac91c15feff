package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

func tellerRoom(change func(*Room)) *Room {
	r := &Room{Name: "shop", CreatedAt: keyTime.Add(-time.Hour), Settings: room.Settings{Mode: room.Teller, Capacity: 10}}
	if change != nil {
		change(r)
	}
	r.Settings = r.Settings.WithDefaults()
	return r
}

func parkRoom(change func(*Room)) *Room {
	r := &Room{Name: "park", CreatedAt: keyTime.Add(-65 * time.Second), Settings: room.Settings{
		Mode: room.Park, Batch: 10, Interval: 10 * time.Second, Stay: time.Minute,
	}}
	if change != nil {
		change(r)
	}
	r.Settings = r.Settings.WithDefaults()
	return r
}

// lastTick returns the status of a park whose last batch was called, with the given number waiting.
func lastTick(waiting int64) room.Status {
	return room.Status{Waiting: waiting, Tick: keyTime.Add(-5 * time.Second).UnixMilli()}
}

// withLanes gives lane 1 a fifth of the calls.
func withLanes(r *Room) { r.Settings.Lanes = "vip=20,public=80" }

// waitCase is an outlook and its wait, within some percent.
type waitCase struct {
	name      string
	outlook   Outlook
	known     bool
	low, high time.Duration
}

func sec(n float64) time.Duration { return time.Duration(n*1000) * time.Millisecond }

// opensSoon makes a room open in a minute.
func opensSoon(r *Room) { r.Settings.OpensAt = keyTime.Add(time.Minute) }

func tellerWaits() []waitCase {
	busy := room.Status{Waiting: 100, Inside: 10}
	flow := Flow{Over: time.Minute, Called: 600} // 10 a second
	return []waitCase{
		{"paused", Outlook{Room: tellerRoom(func(r *Room) { r.Paused = true }), Ahead: 5, Status: busy, Flow: flow}, false, 0, 0},
		{"not drawn", Outlook{Room: tellerRoom(opensSoon), Ahead: -1, Status: busy, Flow: flow}, false, 0, 0},
		{"nobody was let in", Outlook{Room: tellerRoom(nil), Ahead: 5, Status: busy}, false, 0, 0},
		{"watched for too short", Outlook{Room: tellerRoom(nil), Ahead: 5, Status: busy, Flow: Flow{Over: time.Second, Called: 5}}, false, 0, 0},
		{"the room was filled, and nobody has left", Outlook{
			Room: tellerRoom(nil), Ahead: 5, Status: busy, Flow: Flow{Over: time.Minute, Called: 10, Inside: 10},
		}, false, 0, 0},
		{"100 at 10 a second", Outlook{Room: tellerRoom(nil), Ahead: 99, Status: busy, Flow: flow}, true, sec(7.4), sec(13.9)},
		{"the first", Outlook{Room: tellerRoom(nil), Ahead: 0, Status: busy, Flow: flow}, true, sec(.004), sec(1)},
		{"those ahead are called already", Outlook{
			Room: tellerRoom(nil), Ahead: 5, Status: room.Status{Waiting: 100, Inside: 10, Called: 5}, Flow: flow,
		}, true, sec(.004), sec(1)},
		{"half leave the line", Outlook{
			Room: tellerRoom(nil), Ahead: 99, Status: busy, Flow: Flow{Over: time.Minute, Called: 600, Departed: 606},
		}, true, sec(3.7), sec(13.9)},
		{"a place that was free a moment ago", Outlook{Room: tellerRoom(nil), Ahead: 0, Status: room.Status{Waiting: 1, Inside: 9}}, false, 0, 0},
		{"in time for the opening", Outlook{Room: tellerRoom(opensSoon), Ahead: 9, Status: room.Status{Waiting: 100}}, true, sec(60), sec(61)},
		{"after the opening", Outlook{Room: tellerRoom(opensSoon), Ahead: 10, Status: room.Status{Waiting: 100}}, false, 0, 0},
		{"the end is before", Outlook{Room: tellerRoom(func(r *Room) { r.Settings.EndsAt = keyTime.Add(5 * time.Second) }),
			Ahead: 99, Status: busy, Flow: flow}, false, 0, 0},
		{"a fifth of the calls at least", Outlook{Room: tellerRoom(withLanes), Ahead: 19, Lane: 1, Status: busy, Flow: flow}, true, sec(1.25), sec(13.9)},
		{"longer than anybody waits", Outlook{
			Room: tellerRoom(nil), Ahead: 1e7 - 1, Status: busy, Flow: Flow{Over: time.Minute, Called: 1},
		}, true, maxWait, maxWait},
	}
}

func parkWaits() []waitCase {
	return []waitCase{
		{"the next tick", Outlook{Room: parkRoom(nil), Ahead: 9, Status: lastTick(100)}, true, sec(5), sec(5)},
		{"the one after", Outlook{Room: parkRoom(nil), Ahead: 10, Status: lastTick(100)}, true, sec(15), sec(15)},
		{"the tenth tick", Outlook{Room: parkRoom(nil), Ahead: 99, Status: lastTick(100)}, true, sec(95), sec(95)},
		{"a tick that may be called yet", Outlook{Room: parkRoom(nil), Ahead: 9, Status: room.Status{Waiting: 100}}, true, 0, sec(5)},
		{"half miss", Outlook{Room: parkRoom(nil), Ahead: 20, Status: lastTick(100),
			Flow: Flow{Over: time.Minute, Called: 60, NoShows: 30}}, true, sec(25), sec(45)},
		{"half leave", Outlook{Room: parkRoom(nil), Ahead: 40, Status: lastTick(40),
			Flow: Flow{Over: time.Minute, Called: 60, Departed: 60}}, true, sec(25), sec(45)},
		{"the opening", Outlook{Room: parkRoom(opensSoon), Ahead: 9, Status: room.Status{Waiting: 100}}, true, sec(60), sec(60)},
		{"a tick after the opening", Outlook{Room: parkRoom(opensSoon), Ahead: 10, Status: room.Status{Waiting: 100}}, true, sec(70), sec(70)},
		{"a fifth of each batch at least", Outlook{Room: parkRoom(withLanes), Ahead: 19, Lane: 1, Status: lastTick(100)}, true, sec(15), sec(95)},
		{"a park that is paused", Outlook{Room: parkRoom(func(r *Room) { r.Paused = true }), Ahead: 0}, false, 0, 0},
		{"a park that ends", Outlook{Room: parkRoom(func(r *Room) { r.Settings.EndsAt = keyTime.Add(15 * time.Second) }),
			Ahead: 10, Status: lastTick(100)}, false, 0, 0},
	}
}

func TestEstimateWait(t *testing.T) {
	for _, test := range append(tellerWaits(), parkWaits()...) {
		test.outlook.Now = keyTime
		wait := EstimateWait(test.outlook)
		if (wait != nil) != test.known {
			t.Errorf("%s: %+v", test.name, wait)
			continue
		}
		off := func(got, want time.Duration) bool {
			return math.Abs(float64(got-want)) > 0.06*float64(want)+float64(time.Millisecond)
		}
		if wait != nil && (off(wait.Low, test.low) || off(wait.High, test.high)) {
			t.Errorf("%s: %v to %v, want %v to %v", test.name, wait.Low, wait.High, test.low, test.high)
		}
	}
}

// The range is right: of visitors to a room where visits have random lengths, about 90 % wait
// within the range, and about 5 % less and 5 % more; of fast lines at most, and also if they
// become 15 % faster or slower.
func TestEstimateWaitHolds(t *testing.T) {
	const visits = 3000
	for _, test := range []struct {
		name  string
		mean  time.Duration // between two departures
		ahead int64
		pace  float64 // after the estimate
	}{
		{"the first of a slow line", 6 * time.Second, 0, 1},
		{"a slow line", 6 * time.Second, 10, 1},
		{"a long slow line", 6 * time.Second, 200, 1},
		{"a line", time.Second, 30, 1},
		{"a fast line", 50 * time.Millisecond, 300, 1},
		{"a line that becomes faster", 50 * time.Millisecond, 300, 1.15},
		{"a line that becomes slower", 50 * time.Millisecond, 300, 0.85},
	} {
		random := rand.New(rand.NewPCG(1, uint64(test.ahead)))
		told, early, late := 0, 0, 0
		for range visits {
			// Count the departures of the last minute, and then as many as are ahead.
			seen, at := int64(0), time.Duration(0)
			for at < time.Minute {
				if at += time.Duration(random.ExpFloat64() * float64(test.mean)); at < time.Minute {
					seen++
				}
			}
			first, over := at-time.Minute, test.ahead
			wait := EstimateWait(Outlook{
				Room: tellerRoom(nil), Now: keyTime, Ahead: test.ahead,
				Status: room.Status{Waiting: test.ahead + 1, Inside: 10}, Flow: Flow{Over: time.Minute, Called: seen},
			})
			for ; over > 0; over-- {
				first += time.Duration(random.ExpFloat64() * float64(test.mean) / test.pace)
			}
			if wait == nil {
				continue // nobody left within the minute
			}
			told++
			if first < wait.Low-time.Millisecond {
				early++
			} else if first > wait.High+time.Millisecond {
				late++
			}
		}
		few := test.mean >= time.Second
		if told < visits*9/10 || early > told*8/100 || late > told*8/100 || few && early+late < told*5/100 {
			t.Errorf("%s: of %d, %d were earlier and %d later than told, want about 5 %% each", test.name, told, early, late)
		}
	}
}

// A visitor further back never gets a shorter estimate, and each range is valid.
func TestEstimateWaitGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutlook(t)
		o.Flow.Departed = 0
		wait := EstimateWait(o)
		if wait == nil {
			return
		}
		if wait.Low < 0 || wait.High < wait.Low || wait.High > maxWait {
			t.Fatalf("%+v", wait)
		}
		further := o
		further.Ahead += rapid.Int64Range(0, 1e6).Draw(t, "further")
		if more := EstimateWait(further); more != nil && (more.Low < wait.Low || more.High < wait.High) {
			t.Fatalf("%d ahead: %+v; %d ahead: %+v", o.Ahead, wait, further.Ahead, more)
		}
	})
}

// drawOutlook draws any outlook.
func drawOutlook(t *rapid.T) Outlook {
	r := &Room{Name: "room", Settings: anySettings(t).WithDefaults(), CreatedAt: anyTime(t, "made")}
	o := Outlook{Room: r, Now: anyTime(t, "now"), Ahead: rapid.Int64Range(-1, room.MaxVisitors).Draw(t, "ahead")}
	if rapid.Bool().Draw(t, "near the opening") {
		o.Now = r.Opening().Add(-time.Duration(rapid.Int64Range(-1000, 100_000).Draw(t, "ms before")) * time.Millisecond)
	}
	r.Paused = rapid.IntRange(0, 5).Draw(t, "paused") == 0
	o.Status = room.Status{
		Waiting: max(o.Ahead, 0) + rapid.Int64Range(1, room.MaxVisitors).Draw(t, "behind"), Called: rapid.Int64Range(0, 1000).Draw(t, "called"),
		Inside: rapid.Int64Range(0, room.MaxVisitors).Draw(t, "inside"), Tick: o.Now.UnixMilli() - rapid.Int64Range(0, 1e9).Draw(t, "tick"),
	}
	if rapid.Bool().Draw(t, "small") {
		o.Ahead, o.Status.Waiting = o.Ahead%100, max(o.Ahead%100, 0)+1
	}
	o.Flow = Flow{
		Over: time.Duration(rapid.IntRange(0, 60).Draw(t, "over")) * time.Second, Called: rapid.Int64Range(0, room.MaxVisitors).Draw(t, "flow"),
		Departed: rapid.Int64Range(0, room.MaxVisitors).Draw(t, "departed"), Inside: rapid.Int64Range(-1000, 1000).Draw(t, "more inside"),
	}
	o.Flow.NoShows = rapid.Int64Range(0, o.Flow.Called).Draw(t, "missed")
	return o
}
