package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
)

// told is one event in the history of a room.
type told struct {
	ms     int
	event  room.EventType
	number int64
	inside bool
	lost   bool // missing from the topic
}

// playedRooms simulates the rooms.
type playedRooms struct {
	start      time.Time
	shop, ride []told
	run        *roomsResult
	// junk and again add records to the topic.
	junk, again bool
}

// newPlayedRooms has a shop with capacity 2, where visitor 2 gives up, 3 returns, 5 vanishes inside
// and 6 does not return; and a ride that admits 2 each second.
func newPlayedRooms() *playedRooms {
	f := &playedRooms{start: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	f.shop = []told{
		{0, "entered", 1, false, false}, {0, "admitted", 1, false, false}, {10, "entered", 2, false, false}, {10, "admitted", 2, false, false},
		{20, "entered", 3, false, false}, {30, "entered", 4, false, false}, {40, "entered", 5, false, false}, {50, "entered", 6, false, false},
		{60, "entered", 7, false, false}, {70, "entered", 8, false, false},
		{220, "left", 2, true, false}, {220, "admitted", 3, false, false}, {230, "left", 1, true, false}, {230, "admitted", 4, false, false},
		{420, "missed", 3, true, false}, {420, "admitted", 5, false, false}, {500, "left", 4, true, false}, {500, "admitted", 3, false, false},
		{640, "left", 3, true, false}, {640, "admitted", 7, false, false}, {650, "left", 8, false, false},
		{900, "expired", 5, true, false}, {950, "left", 7, true, false}, {5000, "abandoned", 6, false, false},
	}
	for n := range 5 {
		f.ride = append(f.ride, told{100 + n, "entered", int64(n + 1), false, false})
	}
	for n := range 5 {
		f.ride = append(f.ride, told{1000 + 1000*(n/2), "admitted", int64(n + 1), false, false})
	}
	for n := range 5 {
		f.ride = append(f.ride, told{4000 + 1000*(n/2), "expired", int64(n + 1), true, false})
	}
	shop := &roomRun{Name: demoShopRoom, Room: room.Settings{
		Mode: room.Teller, Capacity: 2, PassTTL: 400 * time.Millisecond, ClaimWindow: 200 * time.Millisecond, AbandonAfter: 400 * time.Millisecond, Grace: 4 * time.Second,
	}}
	at := func(ms int) time.Time { return f.start.Add(time.Duration(ms) * time.Millisecond) }
	for n := range 8 {
		shop.Visitors = append(shop.Visitors, &demoVisitor{
			Number: int64(n + 1), Inside: true, Paid: true, Gaps: []gap{{at(100), at(200)}, {at(150), at(300)}},
		})
	}
	as := func(n int, c conduct) *demoVisitor {
		v := shop.Visitors[n-1]
		v.Conduct, v.Paid = c, false
		return v
	}
	as(8, givesUp).Inside = false
	as(6, vanishes).Inside = false
	as(5, wanders)
	v := as(3, returns)
	v.Paid, v.CameBack, v.AwayFor = true, true, time.Second
	shop.Visitors[3].Estimates = []estimate{
		{at(40), 100 * time.Millisecond, 200 * time.Millisecond}, {at(40), 200 * time.Millisecond, time.Second}, {at(40), 0, 100 * time.Millisecond},
	}
	ride := &roomRun{Name: demoRideRoom, Room: room.Settings{
		Mode: room.Park, Batch: 2, Interval: time.Second, Stay: 3 * time.Second, OpensAt: at(1000),
		ClaimWindow: time.Second, AbandonAfter: time.Second,
	}}
	for n := range 5 {
		ride.Visitors = append(ride.Visitors, &demoVisitor{visitorPlan: visitorPlan{Conduct: wanders}, Number: int64(n + 1), Inside: true})
	}
	f.run = &roomsResult{Shop: shop, Ride: ride, Took: 8 * time.Second, Requests: 20}
	return f
}

// result has read the events of both rooms.
func (f *playedRooms) result() *roomsResult {
	seen := newSeenRooms()
	var records []string
	for name, story := range map[string][]told{demoShopRoom: f.shop, demoRideRoom: f.ride} {
		for i, e := range story {
			if e.lost {
				continue
			}
			records = append(records, fmt.Sprintf(`{"id":"%s-generation-%d","time":%q,"data":{"room":%q,"id":%d,"event":%q,"was_inside":%t}}`,
				name, i+1, f.start.Add(time.Duration(e.ms)*time.Millisecond).Format(time.RFC3339Nano), name, e.number, e.event, e.inside))
		}
	}
	if f.again {
		records = append(records, records[0])
	}
	if f.junk {
		records = append(records, "junk")
	}
	for i, record := range records {
		seen.Add(eventAt{9, int64(i), []byte(record)})
	}
	r := f.run
	r.Seen, r.Total = seen, seen.total
	if r.Committed == 0 {
		r.Committed = r.Total
	}
	for _, of := range []*roomRun{r.Shop, r.Ride} {
		of.History = replay(seen.events[of.Name])
	}
	return r
}

func TestRoomsReport(t *testing.T) {
	f := newPlayedRooms()
	r := f.result()
	if err := r.Verdict(); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	r.writeText(&out, false)
	clitest.Golden(t, "demo_rooms", out.String())
}

// late makes the last visitor of the ride ask for the last time when the stay has ended, after a silence.
func (f *playedRooms) late(silence int) {
	end := f.start.Add(6000 * time.Millisecond)
	v := f.run.Ride.Visitors[4]
	v.Inside, v.Sent = false, true
	v.Gaps = []gap{{end.Add(time.Duration(100-silence) * time.Millisecond), end.Add(100 * time.Millisecond)}}
}

// A visitor who is let in, and whose next request comes when the pass has ended, has lost nothing.
func TestRoomsReportOfALateVisitor(t *testing.T) {
	f := newPlayedRooms()
	f.run.Ride.Room.AbandonAfter = 5 * time.Second
	f.late(2100)
	if err := f.result().Verdict(); err != nil {
		t.Error(err)
	}
}

func TestRoomsReportFindsWhatIsWrong(t *testing.T) {
	swap := func(story []told, a, b int) { story[a].number, story[b].number = story[b].number, story[a].number }
	for _, c := range []struct {
		fact, want string
		change     func(f *playedRooms)
	}{
		{"capacity", "2 were inside the shop, which holds 1", func(f *playedRooms) { f.run.Shop.Room.Capacity = 1 }},
		{"order", "visitor 4 of shop kept asking and was overtaken", func(f *playedRooms) {
			f.run.Shop.Visitors[4].Conduct = wanders
			swap(f.shop, 13, 15)
			f.shop[16].number, f.shop[21].number = 5, 4
		}},
		{"order", "visitor 3 of shop kept asking and lost the place", func(f *playedRooms) { f.run.Shop.Visitors[2].Conduct = pays }},
		{"order", "visitor 7 of shop kept asking and lost the place", func(f *playedRooms) { f.run.Shop.Visitors[6].Sent = true }},
		{"order", "visitor 5 of ride kept asking and lost the place", func(f *playedRooms) { f.late(700) }},
		{"order", "visitor 2 of ride kept asking and was overtaken", func(f *playedRooms) { swap(f.ride, 6, 7) }},
		{"came back", "1 came back to the shop within the grace, 0 kept", func(f *playedRooms) { f.run.Shop.Visitors[2].Moved = true }},
		{"ticks", "at tick 0 of ride 3 were called; 5 waited, the batch is 2", func(f *playedRooms) { f.ride[7].ms = 1500 }},
		{"ticks", "at tick 1 of ride 1 were called; 3 waited, the batch is 2", func(f *playedRooms) { f.ride[8].ms, f.ride[13].ms = 3000, 6000 }},
		{"ticks", "visitor 5 of ride was expired", func(f *playedRooms) { f.ride[14].ms = 5999 }},
		{"visits", "no event says that visitor 6 of shop is gone", func(f *playedRooms) { f.shop = f.shop[:len(f.shop)-1] }},
		{"visits", "no event says that visitor 9 of shop has entered", func(f *playedRooms) { f.run.Shop.Visitors[0].Number = 9 }},
		{"visits", "two visitors of shop have the place 2", func(f *playedRooms) { f.run.Shop.Visitors[0].Number = 2 }},
		{"visits", "visitor 5 of shop was inside and paid (true)", func(f *playedRooms) { f.run.Shop.Visitors[4].Paid = true }},
		{"visits", "7 came to shop, and 8 have entered", func(f *playedRooms) { f.run.Shop.Visitors = f.run.Shop.Visitors[:7] }},
		{"the gate", "1 of 20 requests came through a gate without a pass", func(f *playedRooms) { f.run.WithoutPass = 1 }},
		{"events", "event 3 is not there", func(f *playedRooms) { f.shop[2].lost = true }},
		{"events", "event 3 of visitor 9, left, cannot be", func(f *playedRooms) { f.shop[2] = told{20, "left", 9, false, false} }},
		{"events", "event 13 of visitor 1, left, cannot be", func(f *playedRooms) { f.shop[12].inside = false }},
		{"events", "came twice", func(f *playedRooms) { f.again = true }},
		{"events", "is no event", func(f *playedRooms) { f.junk = true }},
		{"events", "read 39 and committed 38 of 39 events", func(f *playedRooms) { f.run.Committed = 38 }},
	} {
		t.Run(c.want, func(t *testing.T) {
			f := newPlayedRooms()
			c.change(f)
			r := f.result()
			var out bytes.Buffer
			r.writeText(&out, false)
			err := r.Verdict()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(out.String(), term.Left(c.fact, factColumns)+"✗ ") {
				t.Errorf("got %v, want %s\n%s", err, c.want, out.String())
			}
		})
	}
}

// A replay counts the visitors inside as a plain counter does, in any order of the partitions'
// events.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events []roomEvent
		state := map[int64]room.EventType{}
		inside, most, entered := int64(0), int64(0), int64(0)
		add := func(number int64, event room.EventType, was bool) {
			events = append(events, roomEvent{int64(len(events)) + 1, number, event, was, time.Unix(int64(len(events)), 0)})
			state[number] = event
		}
		for range rapid.IntRange(0, 100).Draw(t, "moves") {
			number := rapid.Int64Range(1, entered+1).Draw(t, "visitor")
			switch state[number] {
			case "":
				entered = max(entered, number)
				add(number, room.VisitorEntered, false)
			case room.VisitorEntered, room.VisitorNoShow:
				if rapid.Bool().Draw(t, "called") {
					add(number, room.VisitorAdmitted, false)
					inside++
				} else {
					add(number, room.VisitorAbandoned, false)
				}
			case room.VisitorAdmitted:
				add(number, rapid.SampledFrom([]room.EventType{room.VisitorNoShow, room.VisitorLeft, room.VisitorExpired}).Draw(t, "end"), true)
				inside--
			}
			most = max(most, inside)
		}
		h := replay(rapid.Permutation(events).Draw(t, "order"))
		if err := h.Wrong(); err != nil || h.Most != most || len(h.Stays) != len(state) {
			t.Fatalf("%v; at most %d inside, want %d; %d visitors, want %d", err, h.Most, most, len(h.Stays), len(state))
		}
	})
}

func TestCrowdPlan(t *testing.T) {
	stage := newDemoStage()
	plans := stage.Shop.Plan()
	count := map[conduct]int{}
	for i, p := range plans {
		count[p.Conduct]++
		if p.Arrives < 0 || p.Arrives >= stage.Shop.Over || i > 0 && p.Arrives < plans[i-1].Arrives ||
			p.Away < stage.Shop.AwayMin || p.Away > stage.Shop.AwayMax || len(p.Looks) != stage.Shop.Pages {
			t.Fatalf("visitor %d: %+v", i, p)
		}
	}
	for c, percent := range map[conduct]int{wanders: stage.Shop.Wander, givesUp: stage.Shop.GiveUp, vanishes: stage.Shop.Vanish, returns: stage.Shop.Return} {
		if want := percent * len(plans) / 100; count[c] < want/2 || count[c] > 2*want {
			t.Errorf("%d of %d behave as %d, want about %d", count[c], len(plans), c, want)
		}
	}
	// A returning visitor must be away long enough to be skipped, and return within the grace.
	if s := stage.ShopRoom; stage.Shop.AwayMin <= s.AbandonAfter || stage.Shop.AwayMax >= s.AbandonAfter+s.Grace {
		t.Errorf("away for %s to %s", stage.Shop.AwayMin, stage.Shop.AwayMax)
	}
}

func TestRoomsDisplays(t *testing.T) {
	moment := func(seconds float64, inside int64) *roomMoment {
		return &roomMoment{Elapsed: time.Duration(seconds * float64(time.Second)), Rooms: []roomFigures{
			{Name: "shop", Capacity: 160, Inside: inside, Waiting: 1_034, Served: 320, Visitors: 2_400},
			{Name: "ride", Capacity: 150, Inside: 75, Waiting: 450, Served: 0, Visitors: 600},
		}}
	}
	var out bytes.Buffer
	lines := roomsDisplayOn(term.Screen{Writer: &out}, false)
	for _, seconds := range []float64{0, 0.5, 1, 1.5} {
		lines.Show(moment(seconds, 160))
	}
	lines.Show(moment(1.7, 0))
	lines.Close()
	for _, columns := range []int{80, 40} {
		fmt.Fprintf(&out, "# %d columns\n", columns)
		bars := roomsDisplayOn(term.Screen{Writer: &out, Size: func() (int, int) { return columns, 24 }}, false)
		bars.Show(moment(1, 80))
		bars.Show(moment(1.7, 160))
		bars.Close()
	}
	clitest.Golden(t, "demo_rooms_display", strings.ReplaceAll(out.String(), "\x1b", "^"))
}
