package demo

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

// roomEvent is an event of a room as its history needs it.
type roomEvent struct {
	Sequence, Number int64
	Type             room.EventType
	WasInside        bool
	Time             time.Time
}

// seenRooms collects the events that a consumer of sluice.room.events has read. It
// shares no code with the engine that it checks.
type seenRooms struct {
	total  int64
	events map[string][]roomEvent // by room
	ids    map[string]bool
	ended  map[string]int64 // visitors that are gone, by room
	faults
}

func newSeenRooms() *seenRooms {
	return &seenRooms{events: map[string][]roomEvent{}, ids: map[string]bool{}, ended: map[string]int64{}}
}

// goneBy are the events that end a visit.
var goneBy = []room.EventType{room.VisitorLeft, room.VisitorExpired, room.VisitorAbandoned, room.VisitorRevoked}

// Add implements eventSink.
func (h *seenRooms) Add(at eventAt) {
	var e struct {
		ID   string    `json:"id"`
		Time time.Time `json:"time"`
		Data struct {
			Room   string         `json:"room"`
			ID     int64          `json:"id"`
			Event  room.EventType `json:"event"`
			Inside bool           `json:"was_inside"`
		} `json:"data"`
	}
	h.total++
	err := json.Unmarshal(at.Value, &e)
	var sequence int64
	if err == nil {
		sequence, err = strconv.ParseInt(e.ID[strings.LastIndexByte(e.ID, '-')+1:], 10, 64)
	}
	if err != nil {
		h.blame("the record at %d/%d is no event: %w", at.Partition, at.Offset, err)
		return
	}
	if h.ids[e.ID] {
		h.blame("event %s of %s came twice", e.ID, e.Data.Room)
		return
	}
	h.ids[e.ID] = true
	h.events[e.Data.Room] = append(h.events[e.Data.Room], roomEvent{sequence, e.Data.ID, e.Data.Event, e.Data.Inside, e.Time})
	if slices.Contains(goneBy, e.Data.Event) {
		h.ended[e.Data.Room]++
	}
}

// stay is the history of one visitor.
type stay struct {
	Entered time.Time
	// First is when the visitor was called for the first time, Last for the last; at
	// each place of Order in the order of all calls of the room.
	First, Last time.Time
	Order       int
	Called      int // how often
	Gone        room.EventType
	End         time.Time
	inside      bool
}

// roomHistory is a room's history, replayed from its events.
type roomHistory struct {
	Events []roomEvent
	Stays  map[int64]*stay
	// Most is the most visitors inside at one moment, including those called.
	Most   int64
	Missed int64
	Gone   map[room.EventType]int64
	// calls are the numbers of the visitors called, in order.
	calls []int64
	faults
}

// replay sorts the events of a room and follows each visitor.
func replay(events []roomEvent) *roomHistory {
	h := &roomHistory{Events: slices.Clone(events), Stays: map[int64]*stay{}, Gone: map[room.EventType]int64{}}
	slices.SortFunc(h.Events, func(a, b roomEvent) int { return cmp.Compare(a.Sequence, b.Sequence) })
	inside := int64(0)
	for i := range h.Events {
		e := &h.Events[i]
		if e.Sequence != int64(i)+1 {
			h.blame("event %d is not there", i+1)
			return h
		}
		s := h.Stays[e.Number]
		if (s == nil) != (e.Type == room.VisitorEntered) || s != nil && (s.Gone != "" || s.inside != e.WasInside) {
			h.blame("event %d of visitor %d, %s, cannot be", e.Sequence, e.Number, e.Type)
			return h
		}
		switch {
		case s == nil:
			h.Stays[e.Number] = &stay{Entered: e.Time}
		case e.Type == room.VisitorAdmitted:
			inside++
			h.Most = max(h.Most, inside)
			if s.Called++; s.Called == 1 {
				s.First, s.Order = e.Time, len(h.calls)
			}
			s.Last, s.inside = e.Time, true
			h.calls = append(h.calls, e.Number)
		default:
			if e.WasInside {
				inside--
			}
			s.inside = false
			if e.Type == room.VisitorNoShow {
				h.Missed++
				continue
			}
			s.Gone, s.End = e.Type, e.Time
			h.Gone[e.Type]++
		}
	}
	return h
}

// Overtaken returns the visitors, of the given ones, who were called after a visitor
// who came later.
func (h *roomHistory) Overtaken(of map[int64]bool) (overtaken []int64) {
	highest := int64(0)
	for i, number := range h.calls {
		if of[number] && h.Stays[number].Order == i && highest > number {
			overtaken = append(overtaken, number)
		}
		highest = max(highest, number)
	}
	return overtaken
}

// tickCount counts the visitors called at a tick of a park.
type tickCount struct {
	Index int64
	// Waited is how many waited at the tick.
	Waited, Called int64
}

// Ticks counts the calls of a park by tick, up to the last tick with a call.
func (h *roomHistory) Ticks(opening time.Time, interval time.Duration) []tickCount {
	if len(h.calls) == 0 {
		return nil
	}
	last := int64(0)
	for i := range h.Events {
		if h.Events[i].Type == room.VisitorAdmitted {
			last = max(last, int64(h.Events[i].Time.Sub(opening)/interval))
		}
	}
	ticks := make([]tickCount, last+1)
	waiting, at := int64(0), 0
	for i := range ticks {
		ticks[i].Index = int64(i)
		strikes := opening.Add(time.Duration(i) * interval)
		for ; at < len(h.Events) && h.Events[at].Time.Before(strikes); at++ {
			waiting += waitsMore(&h.Events[at])
		}
		ticks[i].Waited = waiting
	}
	for i := range h.Events {
		if e := &h.Events[i]; e.Type == room.VisitorAdmitted {
			if e.Time.Before(opening) {
				h.blame("visitor %d was called before the opening", e.Number)
				continue
			}
			ticks[int64(e.Time.Sub(opening)/interval)].Called++
		}
	}
	return ticks
}

// waitsMore returns the change in the number of waiting visitors at an event.
func waitsMore(e *roomEvent) int64 {
	switch {
	case e.Type == room.VisitorEntered, e.Type == room.VisitorNoShow:
		return 1
	case e.Type == room.VisitorAdmitted, !e.WasInside:
		return -1
	}
	return 0
}
