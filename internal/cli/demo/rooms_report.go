package demo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
)

// roomsResult is what the demo reports of its rooms.
type roomsResult struct {
	Shop, Ride *roomRun
	Took       time.Duration
	Seen       *seenRooms
	// Total is how many events the topic has, Committed how many of them the group
	// has committed.
	Total, Committed int64
	// Requests have reached the shop and the ride, WithoutPass of them without pass.
	Requests, WithoutPass int64
}

// clockMargin bounds the difference between the store's clock and ours.
const clockMargin = 5 * time.Millisecond

// keepers returns the numbers of the visitors who kept asking: none of their gaps is as
// long as AbandonAfter.
func (r *roomRun) keepers() map[int64]bool {
	keepers := map[int64]bool{}
	for _, v := range r.Visitors {
		if v.Conduct != vanishes && v.Conduct != returns && v.Silence(time.Time{}) < r.Room.AbandonAfter {
			keepers[v.Number] = true
		}
	}
	return keepers
}

// comesIn is how long who is let in has for the request that shows that the cookies came back: the claim window, or
// what is left of the visit after it.
func (r *roomRun) comesIn() time.Duration {
	return min(r.Room.ClaimWindow, r.Room.PassTTL+max(0, r.Room.Stay-r.Room.ClaimWindow))
}

// checkOrder finds visitors who kept asking and were overtaken or lost their place: a
// visitor who asks within the claim window enters when called for the first time, and is inside who asks again before
// the pass ends.
func (r *roomRun) checkOrder() error {
	keepers := r.keepers()
	var wrong faults
	for _, number := range r.History.Overtaken(keepers) {
		wrong.blame("visitor %d of %s kept asking and was overtaken", number, r.Name)
	}
	for _, v := range r.Visitors {
		s := r.History.Stays[v.Number]
		if !keepers[v.Number] || s == nil {
			continue
		}
		missed := s.Called > 1 && v.Silence(s.First) < r.Room.ClaimWindow-clockMargin
		late := s.Gone == room.VisitorExpired && v.Silence(s.End) >= r.comesIn()
		if missed || !late && (v.Sent || !v.Inside && v.Conduct != givesUp) {
			wrong.blame("visitor %d of %s kept asking and lost the place", v.Number, r.Name)
		}
	}
	return wrong.Wrong()
}

// checkEnds compares the visits with the events. A pass may expire while a payment takes
// longer than the pass lasts.
func (r *roomRun) checkEnds() error {
	var wrong faults
	unanswered, known := int64(0), map[int64]bool{}
	lasts := r.Room.PassTTL + r.Room.Stay
	for _, v := range r.Visitors {
		unanswered += int64(v.Unanswered)
		s := r.History.Stays[v.Number]
		switch {
		case known[v.Number]:
			wrong.blame("two visitors of %s have the place %d", r.Name, v.Number)
		case s == nil:
			wrong.blame("no event says that visitor %d of %s has entered", v.Number, r.Name)
		case s.Gone == "":
			wrong.blame("no event says that visitor %d of %s is gone", v.Number, r.Name)
		case v.Paid && v.PaidIn <= lasts && s.Gone != room.VisitorLeft, v.Inside && s.Called == 0:
			wrong.blame("visitor %d of %s was inside and paid (%t), but the last event is %s", v.Number, r.Name, v.Paid, s.Gone)
		}
		known[v.Number] = true
	}
	// A request without an answer may have created a place.
	if entered := int64(len(r.History.Stays)); entered < int64(len(known)) || entered > int64(len(known))+unanswered {
		wrong.blame("%d came to %s, and %d have entered", len(known), r.Name, entered)
	}
	return wrong.Wrong()
}

// cameBack counts the visitors who came back within the grace, and those who kept their
// place.
func (r *roomRun) cameBack() (back, kept int64) {
	for _, v := range r.Visitors {
		if !v.CameBack || v.AwayFor >= r.Room.AbandonAfter+r.Room.Grace {
			continue
		}
		back++
		if s := r.History.Stays[v.Number]; !v.Sent && !v.Moved && v.Inside && s != nil && s.Called > 0 {
			kept++
		}
	}
	return back, kept
}

// checkTicks finds ticks of a park at which fewer visitors were called than the batch and
// the line allowed, or too many, and visitors who did not leave at the end of their stay.
func (r *roomRun) checkTicks() (full int, rest []string, err error) {
	var wrong faults
	for _, tick := range r.History.Ticks(r.Room.OpensAt, r.Room.Interval) {
		if tick.Called < min(tick.Waited, r.Room.Batch) || tick.Called > r.Room.Batch {
			wrong.blame("at tick %d of %s %d were called; %d waited, the batch is %d", tick.Index, r.Name, tick.Called, tick.Waited, r.Room.Batch)
		}
		if tick.Called == r.Room.Batch {
			full++
		} else {
			rest = append(rest, humanize.Comma(tick.Called))
		}
	}
	for number, s := range r.History.Stays {
		struck := s.Last.Sub(r.Room.OpensAt).Truncate(r.Room.Interval)
		ends := r.Room.OpensAt.Add(struck + r.Room.Stay)
		if s.Gone != room.VisitorExpired || s.End.Before(ends) {
			wrong.blame("visitor %d of %s was %s at %s; the stay ended at %s", number, r.Name, s.Gone,
				s.End.Format(time.StampMilli), ends.Format(time.StampMilli))
		}
	}
	return full, rest, wrong.Wrong()
}

// waits returns how long the visitors who kept asking waited until called, sorted.
func (r *roomRun) waits() (waits []time.Duration) {
	keepers := r.keepers()
	for number, s := range r.History.Stays {
		if keepers[number] && s.Called > 0 {
			waits = append(waits, s.First.Sub(s.Entered))
		}
	}
	slices.Sort(waits)
	return waits
}

// estimates counts the estimates shown to visitors who kept asking: those that held, and
// those whose wait was shorter or longer than the range.
func (r *roomRun) estimates() (told, right, shorter, longer int64) {
	keepers := r.keepers()
	for _, v := range r.Visitors {
		s := r.History.Stays[v.Number]
		if !keepers[v.Number] || s == nil || s.Called == 0 {
			continue
		}
		for _, e := range v.Estimates {
			told++
			switch wait := s.First.Sub(e.At); {
			case wait < e.Low:
				shorter++
			case wait > e.High:
				longer++
			default:
				right++
			}
		}
	}
	return told, right, shorter, longer
}

// quantile returns a quantile of sorted values; 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// Verdict returns nil if the rooms kept their promises.
func (r *roomsResult) Verdict() error {
	var wrong faults
	for _, check := range r.checks() {
		wrong = append(wrong, check.err)
	}
	return wrong.Wrong()
}

// checks returns the checks of the rooms.
func (r *roomsResult) checks() []fact {
	return []fact{
		r.capacity(),
		{name: "order", text: fmt.Sprintf("none of %s who kept asking was overtaken, or lost the place",
			humanize.Comma(int64(len(r.Shop.keepers())+len(r.Ride.keepers())))), err: errors.Join(r.Shop.checkOrder(), r.Ride.checkOrder())},
		r.returned(),
		r.ticks(),
		{name: "visits", text: r.endsText(), err: errors.Join(r.Shop.checkEnds(), r.Ride.checkEnds())},
		r.gate(),
		{name: "events", text: fmt.Sprintf("%s in %s, each once and none missing,\nread by the consumer group %q", humanize.Comma(r.Total),
			events.RoomTopic, demoRoomsGroup), err: r.checkEvents()},
	}
}

func (r *roomsResult) capacity() fact {
	most := r.Shop.History.Most
	check := fact{name: "capacity", text: fmt.Sprintf("at most %d were inside the shop at any moment, of %d who may be,\nover all %s of its history",
		most, r.Shop.Room.Capacity, term.Counted(int64(len(r.Shop.History.Events)), "event"))}
	if most > r.Shop.Room.Capacity {
		check.err = fmt.Errorf("%d were inside the shop, which holds %d", most, r.Shop.Room.Capacity)
	}
	return check
}

func (r *roomsResult) returned() fact {
	back, kept := r.Shop.cameBack()
	check := fact{name: "came back", text: fmt.Sprintf("%d of %d who were away within the grace kept the place; %d who stayed away lost it",
		kept, back, r.Shop.History.Gone[room.VisitorAbandoned])}
	if back != kept {
		check.err = fmt.Errorf("%d came back to the shop within the grace, %d kept the place", back, kept)
	}
	return check
}

func (r *roomsResult) ticks() fact {
	full, rest, err := r.Ride.checkTicks()
	text := fmt.Sprintf("the ride took %d at each of %d ticks", r.Ride.Room.Batch, full)
	if len(rest) > 0 {
		text += fmt.Sprintf(", and all who waited at the others (%s)", strings.Join(rest, ", "))
	}
	text += fmt.Sprintf(";\neach was out when its %s were over", term.Spell(r.Ride.Room.Stay))
	return fact{name: "ticks", text: text, err: err}
}

func (r *roomsResult) endsText() string {
	h, paid := r.Shop.History, int64(0)
	for _, v := range r.Shop.Visitors {
		if v.Paid {
			paid++
		}
	}
	return fmt.Sprintf("%s of the shop = %s paid + %s gave up\n+ %s walked off inside + %s did not come back",
		humanize.Comma(int64(len(h.Stays))), humanize.Comma(paid), humanize.Comma(h.Gone[room.VisitorLeft]-paid),
		humanize.Comma(h.Gone[room.VisitorExpired]), humanize.Comma(h.Gone[room.VisitorAbandoned]))
}

func (r *roomsResult) gate() fact {
	check := fact{name: "the gate", text: fmt.Sprintf("sent on %s, each with a pass", term.Counted(r.Requests, "request"))}
	if r.WithoutPass > 0 || r.Requests == 0 {
		check.err = fmt.Errorf("%d of %d requests came through a gate without a pass", r.WithoutPass, r.Requests)
	}
	return check
}

func (r *roomsResult) checkEvents() error {
	wrong := faults{r.Seen.Wrong(), r.Shop.History.Wrong(), r.Ride.History.Wrong()}
	if r.Committed != r.Total || r.Seen.total != r.Total {
		wrong.blame("group %s has read %d and committed %d of %d events", demoRoomsGroup, r.Seen.total, r.Committed, r.Total)
	}
	return wrong.Wrong()
}

func (r *roomsResult) figures() []fact {
	waits := r.Shop.waits()
	told, right, shorter, longer := r.Shop.estimates()
	estimates := "none was shown: the line was too short to measure it"
	if told > 0 {
		estimates = fmt.Sprintf("%s: %.0f %% of the waits ended within the range that was shown,\n%.0f %% before it, %.0f %% after it",
			humanize.Comma(told), 100*ratio(right, told), 100*ratio(shorter, told), 100*ratio(longer, told))
	}
	return []fact{
		{name: "waits", text: fmt.Sprintf("median %s, 95 %% within %s, in the line of the shop", term.Spell(quantile(waits, 0.5)), term.Spell(quantile(waits, 0.95)))},
		{name: "estimates", text: estimates},
	}
}

// writeText writes the report of the rooms.
func (r *roomsResult) writeText(w io.Writer, p term.Paint) {
	fmt.Fprintf(w, "\nrooms: %s through two gates, in %s\n", term.Counted(int64(len(r.Shop.Visitors)+len(r.Ride.Visitors)), "visitor"), term.Spell(r.Took))
	writeFacts(w, r.checks(), r.figures(), p)
}

// roomsJSON is the part of "demo --json" about rooms.
type roomsJSON struct {
	Visitors      int   `json:"visitors"`
	Capacity      int64 `json:"capacity"`
	MostInside    int64 `json:"most_inside"`
	KeptAsking    int   `json:"kept_asking"`
	CameBack      int64 `json:"came_back"`
	Abandoned     int64 `json:"abandoned"`
	WaitMedianMS  int64 `json:"wait_median_ms"`
	WaitP95MS     int64 `json:"wait_p95_ms"`
	Estimates     int64 `json:"estimates"`
	EstimatesHeld int64 `json:"estimates_held"`
	Events        int64 `json:"events"`
	Committed     int64 `json:"events_committed"`
	TookMS        int64 `json:"took_ms"`
}

func (r *roomsResult) json() *roomsJSON {
	waits := r.Shop.waits()
	told, right, _, _ := r.Shop.estimates()
	back, _ := r.Shop.cameBack()
	return &roomsJSON{
		Visitors: len(r.Shop.Visitors) + len(r.Ride.Visitors), Capacity: r.Shop.Room.Capacity, MostInside: r.Shop.History.Most,
		KeptAsking: len(r.Shop.keepers()) + len(r.Ride.keepers()), CameBack: back, Abandoned: r.Shop.History.Gone[room.VisitorAbandoned],
		WaitMedianMS: quantile(waits, 0.5).Milliseconds(), WaitP95MS: quantile(waits, 0.95).Milliseconds(),
		Estimates: told, EstimatesHeld: right, Events: r.Total, Committed: r.Committed, TookMS: r.Took.Milliseconds(),
	}
}
