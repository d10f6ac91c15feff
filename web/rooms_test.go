package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

func TestRoomsSayWhatTheyDo(t *testing.T) {
	outflow := 0.5
	now := time.Now()
	shop := engine.View{Room: engine.Room{Name: "shop", Settings: room.Settings{Mode: room.Teller, Capacity: 200}}, Phase: room.Queueing, Outflow: &outflow,
		Waits:  &engine.Waits{P50: 90 * time.Second, P95: 4 * time.Minute, Of: 60},
		Status: room.Status{Waiting: 60, Inside: 150, Admitted: 100, NoShows: 25, Now: now}}
	fair := engine.View{Room: engine.Room{Name: "fair", Settings: room.Settings{Mode: room.Park, Batch: 500, Interval: time.Minute, OpensAt: now.Add(time.Hour)}},
		Phase: room.Closed, Status: room.Status{Now: now}}
	d := newTest(t, Options{Rooms: &fakeRooms{views: []engine.View{fair, shop}}})
	says(t, text(t, d, "/ui/rooms"),
		"fair closed opens in 60 min 0 500 a batch 0 0 – – amusement park", "shop queueing 150 of 200 60 30 about 2 min 25 % bank teller")
	says(t, text(t, d, "/ui/rooms/room?name=fair"), "Open now", "Pause")
	says(t, text(t, d, "/ui/rooms/room?name=shop"), "No-shows 25, 25 % of those called", "Waits of the last 10 minutes p50 90 s, p95 4 min")
	if page := text(t, d, "/ui/rooms/room?name=shop"); strings.Contains(page, "Open now") {
		t.Error("an open room can be opened")
	}
}

func TestRoomsArePaged(t *testing.T) {
	f := &fakeRooms{}
	for i := range 120 {
		f.views = append(f.views, engine.View{Room: engine.Room{Name: fmt.Sprintf("room-%03d", i), Settings: room.Settings{Mode: room.Teller, Capacity: 1}}})
	}
	d := newTest(t, Options{Rooms: f})
	for after, want := range map[string]int{"": 50, "room-049": 50, "room-099": 20} {
		page := ask(d, "GET", "/ui/rooms?after="+after, "").Body.String()
		if got := strings.Count(page, `href="/ui/rooms/room?`); got != want || strings.Contains(page, "Next page") != (want == 50) {
			t.Errorf("after %q: %d rooms, want %d", after, got, want)
		}
	}
}

func TestActsOnRooms(t *testing.T) {
	now := time.Now()
	shop := engine.View{Room: engine.Room{Name: "shop", Settings: room.Settings{Mode: room.Teller, Capacity: 100, OpensAt: now.Add(time.Hour), PrequeueFrom: now.Add(time.Minute)}},
		Status: room.Status{Waiting: 500, Inside: 90, Now: now}}
	for _, test := range []struct {
		do, value, asks string
		did             string
		put             room.Settings
	}{
		{do: "pause_room", asks: "lets nobody in until it is resumed", did: "pause shop"},
		{do: "resume_room", asks: "500 wait, and 90 are inside", did: "resume shop"},
		{do: "revoke_room", asks: "500 who wait keep their places and are let in as the room allows, and the 90 inside must wait in line again", did: "revoke shop"},
		{do: "room_capacity", value: "150", asks: "from 100 to 150: up to 60 visitors", put: room.Settings{Mode: room.Teller, Capacity: 150, OpensAt: now.Add(time.Hour), PrequeueFrom: now.Add(time.Minute)}},
		{do: "room_capacity", value: "80", asks: "nobody is let in until enough of the 90 inside have left", put: room.Settings{Mode: room.Teller, Capacity: 80, OpensAt: now.Add(time.Hour), PrequeueFrom: now.Add(time.Minute)}},
		{do: "open_room", asks: "opens now", put: room.Settings{Mode: room.Teller, Capacity: 100, OpensAt: now}},
	} {
		f := &fakeRooms{views: []engine.View{shop}}
		d := newTest(t, Options{Rooms: f})
		form := url.Values{"do": {test.do}, "name": {"shop"}, "value": {test.value}}.Encode()
		says(t, text(t, d, "/ui/act?"+form), test.asks)
		if len(f.did) > 0 || f.put != nil {
			t.Errorf("%s: asking has done %v %v", test.do, f.did, f.put)
		}
		if w := ask(d, "POST", "/ui/act", form); w.Code != http.StatusSeeOther {
			t.Errorf("%s: %d %s", test.do, w.Code, w.Body)
		}
		if got := strings.Join(f.did, ", "); got != test.did || fmt.Sprint(f.put["shop"]) != fmt.Sprint(test.put) {
			t.Errorf("%s: did %q and put %+v", test.do, got, f.put)
		}
	}
	f := &fakeRooms{views: []engine.View{shop}}
	d := newTest(t, Options{Rooms: f})
	for _, value := range []string{"", "0", "-5", "many", "10000001"} {
		if w := ask(d, "POST", "/ui/act", "do=room_capacity&name=shop&value="+value); w.Code != http.StatusConflict || f.put != nil {
			t.Errorf("a capacity of %q: %d %s, %v", value, w.Code, w.Body, f.put)
		}
	}
	if w := ask(d, "POST", "/ui/act", "do=pause_room&name="+strings.Repeat("x", maxForm)); w.Code < 400 || len(f.did) > 0 {
		t.Errorf("a form that is too large: %d, %v", w.Code, f.did)
	}
}

// A report has the figures of a room, or of all, as CSV that a browser keeps.
func TestReportOfRooms(t *testing.T) {
	now := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	f := &fakeRooms{}
	for i := range 120 {
		f.views = append(f.views, engine.View{Room: engine.Room{Name: fmt.Sprintf("room-%03d", i)}, Phase: room.Closed, Status: room.Status{Now: now}})
	}
	f.views[7].Waits = &engine.Waits{P50: 1500 * time.Millisecond, P95: 4 * time.Minute}
	f.views[7].Status = room.Status{Now: now, Waiting: 1, Inside: 2, Entered: 90, Admitted: 80, NoShows: 25, Departed: 4, Expired: 5, Called: 3}
	d := newTest(t, Options{Rooms: f})
	w := ask(d, "GET", "/ui/rooms/report?name=room-007", "")
	want := strings.Join(reportColumns, ",") + "\nroom-007,2026-11-21T13:00:00Z,closed,1,2,90,80,52,25,4,5,1.5,240\n"
	if w.Body.String() != want || w.Header().Get("Content-Type") != "text/csv; charset=utf-8" || w.Header().Get("Content-Disposition") != "attachment; filename=room-007.csv" {
		t.Errorf("the report is %v\n%s\nwant\n%s", w.Header(), w.Body, want)
	}
	if all := ask(d, "GET", "/ui/rooms/report", "").Body.String(); strings.Count(all, "\n") != 121 || !strings.Contains(all, "\nroom-119,2026-11-21T13:00:00Z,closed,0,0,0,0,0,0,0,0,,\n") {
		t.Errorf("the report of all rooms is\n%s", all)
	}
	if w := ask(d, "GET", "/ui/rooms/report?name=none", ""); w.Code != http.StatusNotFound {
		t.Errorf("a report of no room: %d", w.Code)
	}
}
