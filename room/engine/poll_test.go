package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

func TestNextPoll(t *testing.T) {
	flow := Flow{Over: time.Minute, Called: 600} // 10 a second: 300 within the longest poll
	in := func(d time.Duration) func(*Room) { return func(r *Room) { r.Settings.OpensAt = keyTime.Add(d) } }
	status := func(waiting int64) room.Status { return room.Status{Waiting: waiting, Inside: 10} }
	wait := func(low, high time.Duration) *Wait { return &Wait{low, high} }
	for _, test := range []struct {
		name        string
		room        *Room
		ahead       int64
		status      room.Status
		flow        Flow
		wait        *Wait
		most, least time.Duration // with a spread of 0, and just below 1
	}{
		{"the first", tellerRoom(nil), 0, status(10), flow, wait(0, time.Second), time.Second, time.Second},
		{"near, and long to wait", tellerRoom(nil), 9, status(10), Flow{}, wait(time.Minute, time.Hour), 5 * time.Second, 4375 * time.Millisecond},
		{"near, and nothing known", tellerRoom(nil), 9, status(10), Flow{}, nil, 5 * time.Second, 4375 * time.Millisecond},
		{"near by what is let in", tellerRoom(nil), 299, status(500), flow, wait(25*time.Second, 35*time.Second), 5 * time.Second, 4375 * time.Millisecond},
		{"not near", tellerRoom(nil), 300, status(500), flow, wait(25*time.Second, 35*time.Second), 7500 * time.Millisecond, 6562 * time.Millisecond},
		{"far, and nothing known", tellerRoom(nil), 300, status(500), Flow{}, nil, 10 * time.Second, 8750 * time.Millisecond},
		{"far", tellerRoom(nil), 5000, status(6000), flow, wait(8*time.Minute, 9*time.Minute), 30 * time.Second, 26250 * time.Millisecond},
		{"far with half a million", tellerRoom(nil), 5000, status(500_000), flow, wait(8*time.Minute, 9*time.Minute), 30 * time.Second, 26250 * time.Millisecond},
		{"far with a million", tellerRoom(nil), 5000, status(1_000_000), flow, wait(8*time.Minute, 9*time.Minute), 50 * time.Second, 43750 * time.Millisecond},
		{"far with ten millions", tellerRoom(nil), 5000, status(10_000_000), flow, nil, 60 * time.Second, 52500 * time.Millisecond},
		{"a short claim window", tellerRoom(func(r *Room) { r.Settings.ClaimWindow = 300 * time.Millisecond }), 0, status(10), flow, nil,
			150 * time.Millisecond, 150 * time.Millisecond},
		{"a short patience", tellerRoom(func(r *Room) { r.Settings.AbandonAfter = 300 * time.Millisecond }), 0, status(10), flow, nil,
			100 * time.Millisecond, 100 * time.Millisecond},
		{"a short patience, far", tellerRoom(func(r *Room) { r.Settings.AbandonAfter = 3 * time.Second }), 5000, status(1_000_000), flow, nil,
			1500 * time.Millisecond, 1312 * time.Millisecond},

		{"a batch is near", parkRoom(func(r *Room) { r.Settings.Interval = time.Hour }), 9, lastTick(10), Flow{}, wait(time.Hour, time.Hour),
			5 * time.Second, 4375 * time.Millisecond},
		{"the next is not", parkRoom(func(r *Room) { r.Settings.Interval = time.Hour }), 10, lastTick(20), Flow{}, wait(time.Hour, time.Hour),
			30 * time.Second, 26250 * time.Millisecond},
		{"three batches within the longest poll", parkRoom(nil), 29, lastTick(50), Flow{}, wait(25*time.Second, 25*time.Second),
			5 * time.Second, 4375 * time.Millisecond},

		{"an hour before the opening", tellerRoom(in(time.Hour)), 0, status(10), Flow{}, nil, 30 * time.Second, 26250 * time.Millisecond},
		{"20 s before", tellerRoom(in(20 * time.Second)), 0, status(10), Flow{}, nil, 20 * time.Second, 15 * time.Second},
		{"2 s before, near", tellerRoom(in(2 * time.Second)), 0, status(10), Flow{}, nil, 2 * time.Second, 5 * time.Second},
		{"2 s before, far", tellerRoom(in(2 * time.Second)), 100, status(1000), Flow{}, nil, 2 * time.Second, 7 * time.Second},
		{"2 s before the draw", tellerRoom(in(2 * time.Second)), -1, status(100_000), Flow{}, nil, 2 * time.Second, 5 * time.Second},
		{"25 s before the draw of 400,000", tellerRoom(in(25 * time.Second)), -1, status(400_000), Flow{}, nil, 25 * time.Second, 5 * time.Second},
		{"5 s before the draw of 400,000", tellerRoom(in(5 * time.Second)), -1, status(400_000), Flow{}, nil, 5 * time.Second, 25 * time.Second},
	} {
		o := Outlook{Room: test.room, Now: keyTime, Ahead: test.ahead, Status: test.status, Flow: test.flow}
		for spread, want := range map[float64]time.Duration{0: test.most, 1 - 1e-9: test.least} {
			if got := NextPoll(o, test.wait, spread); (got - want).Abs() > 2*time.Millisecond {
				t.Errorf("%s, spread %.0f: %v, want %v", test.name, spread, got, want)
			}
		}
	}
}

// The bounds hold for any input.
func TestNextPollBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutlook(t)
		settings := &o.Room.Settings
		spread := rapid.Float64Range(0, 1-1e-9).Draw(t, "spread")
		got := NextPoll(o, EstimateWait(o), spread)
		least := min(shortestPoll, settings.ClaimWindow/2, settings.AbandonAfter/3).Truncate(time.Millisecond)
		if got > settings.AbandonAfter/2 || got < least {
			t.Fatalf("%v", got)
		}
		until := max(o.Room.Opening().Sub(o.Now), 0)
		near := settings.Capacity + settings.Batch
		if o.Ahead >= 0 && o.Ahead < near && got > max(until, settings.ClaimWindow/2) {
			t.Fatalf("%v near the front", got)
		}
		if busy := time.Duration(o.Status.Waiting) * (time.Second / maxPolls); until == 0 && o.Ahead >= 1e6 && near < 100 && !o.pollBounds().near &&
			got < min(busy, settings.AbandonAfter/2)*7/8-time.Millisecond {
			t.Fatalf("%v with %d waiting", got, o.Status.Waiting)
		}
	})
}

// A visitor at the front who asks when told is back within half a claim window before the opening,
// and within the claim window after it, however many wait behind.
func TestNextPollMeetsTheOpening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := anySettings(t).WithDefaults()
		settings.OpensAt = keyTime
		r := &Room{Name: "room", Settings: settings}
		o := Outlook{
			Room: r, Now: keyTime.Add(-anyLasting(0, 10*time.Minute).Draw(t, "before")), Ahead: 0,
			Status: room.Status{Waiting: rapid.Int64Range(1, room.MaxVisitors).Draw(t, "waiting")},
		}
		for n := 0; o.Now.Before(keyTime); n++ {
			last := o.Now
			o.Now = o.Now.Add(NextPoll(o, EstimateWait(o), rapid.Float64Range(0, 1-1e-9).Draw(t, "spread")))
			if o.Now.Sub(last) > settings.AbandonAfter/2 {
				t.Fatalf("told to ask after %v", o.Now.Sub(last))
			}
			if n > 100_000 {
				t.Fatal("asked too often")
			}
		}
		if late := o.Now.Sub(keyTime); late > settings.ClaimWindow/2 {
			t.Fatalf("came %v after the opening", late)
		}
	})
}

// Visitors who ask when told send about maxPolls requests per second together, if their patience
// allows it.
func TestNextPollLoad(t *testing.T) {
	r := tellerRoom(nil)
	for _, waiting := range []int64{1000, 100_000, 1_000_000} {
		perSecond, step := 0.0, max(waiting/10_000, 1)
		for ahead := int64(0); ahead < waiting; ahead += step {
			o := Outlook{Room: r, Now: keyTime, Ahead: ahead, Status: room.Status{Waiting: waiting, Inside: 10}, Flow: Flow{Over: time.Minute, Called: 6000}}
			spread := float64(ahead%97) / 97
			perSecond += float64(step) / NextPoll(o, EstimateWait(o), spread).Seconds()
		}
		if perSecond > maxPolls*1.15 {
			t.Errorf("%d who wait ask %.0f times a second", waiting, perSecond)
		}
	}
}
