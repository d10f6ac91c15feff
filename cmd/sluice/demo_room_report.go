package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/room"
)

// roomsResult is what the demo reports of its rooms.
type roomsResult struct {
	Shop, Ride *crowdRun
	Took       time.Duration
	Heard      *heardRooms
	// Total is how many events the topic has, Committed how many of them the group
	// has committed.
	Total, Committed int64
	// Requests have reached the shop and the ride, WithoutPass of them without pass.
	Requests, WithoutPass int64
}

// clockMargin is by how much the store's milliseconds may differ from ours.
const clockMargin = 5 * time.Millisecond

// keepers are the numbers of those who have kept asking: there was never a time as
// long as AbandonAfter in which they might not have.
func (r *crowdRun) keepers() map[int64]bool {
	keepers := map[int64]bool{}
	for _, v := range r.Visitors {
		if v.Conduct != vanishes && v.Conduct != returns && v.Silence(time.Time{}) < r.Room.AbandonAfter {
			keepers[v.Number] = true
		}
	}
	return keepers
}

// checkOrder says who of those who kept asking was overtaken, or has lost the place:
// who asks within the claim window is let in when called for the first time.
func (r *crowdRun) checkOrder() error {
	keepers := r.keepers()
	var wrong []error
	for _, number := range r.History.Overtaken(keepers) {
		wrong = append(wrong, fmt.Errorf("visitor %d of %s kept asking and was overtaken", number, r.Name))
	}
	for _, v := range r.Visitors {
		s := r.History.Stays[v.Number]
		if !keepers[v.Number] || s == nil {
			continue
		}
		missed := s.Called > 1 && v.Silence(s.First) < r.Room.ClaimWindow-clockMargin
		if missed || v.Sent || !v.Inside && v.Conduct != givesUp {
			wrong = append(wrong, fmt.Errorf("visitor %d of %s kept asking and lost the place", v.Number, r.Name))
		}
	}
	return errors.Join(wrong[:min(len(wrong), mostMessages)]...)
}

// checkEnds compares how visits ended with what the events tell.
func (r *crowdRun) checkEnds() error {
	var wrong []error
	unanswered, known := int64(0), map[int64]bool{}
	for _, v := range r.Visitors {
		unanswered += int64(v.Unanswered)
		s := r.History.Stays[v.Number]
		switch {
		case known[v.Number]:
			wrong = append(wrong, fmt.Errorf("two visitors of %s have the place %d", r.Name, v.Number))
		case s == nil:
			wrong = append(wrong, fmt.Errorf("nothing tells that visitor %d of %s has entered", v.Number, r.Name))
		case s.Gone == "":
			wrong = append(wrong, fmt.Errorf("nothing tells that visitor %d of %s is gone", v.Number, r.Name))
		case v.Paid && s.Gone != room.VisitorLeft, v.Inside && s.Called == 0:
			wrong = append(wrong, fmt.Errorf("visitor %d of %s was inside and paid (%t), but is told to have %s", v.Number, r.Name, v.Paid, s.Gone))
		}
		known[v.Number] = true
	}
	// A join without an answer may have made a place.
	if entered := int64(len(r.History.Stays)); entered < int64(len(known)) || entered > int64(len(known))+unanswered {
		wrong = append(wrong, fmt.Errorf("%d came to %s, and %d have entered", len(known), r.Name, entered))
	}
	return errors.Join(wrong[:min(len(wrong), mostMessages)]...)
}

// cameBack counts those who came back within the grace, and who of them kept the place.
func (r *crowdRun) cameBack() (back, kept int64) {
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

// checkTicks says at which ticks of a park not the whole batch was called though
// enough waited, or too many were, and who did not leave when the stay was over.
func (r *crowdRun) checkTicks() (full int, rest []int64, err error) {
	var wrong []error
	for _, tick := range r.History.Ticks(r.Room.OpensAt, r.Room.Interval) {
		if tick.Called < min(tick.Waited, r.Room.Batch) || tick.Called > r.Room.Batch {
			wrong = append(wrong, fmt.Errorf("at tick %d of %s %d were called; %d waited, the batch is %d", tick.Index, r.Name, tick.Called, tick.Waited, r.Room.Batch))
		}
		if tick.Called == r.Room.Batch {
			full++
		} else {
			rest = append(rest, tick.Called)
		}
	}
	for number, s := range r.History.Stays {
		struck := s.Last.Sub(r.Room.OpensAt).Truncate(r.Room.Interval)
		ends := r.Room.OpensAt.Add(struck + r.Room.Stay)
		if s.Gone != room.VisitorExpired || s.End.Before(ends) {
			wrong = append(wrong, fmt.Errorf("visitor %d of %s was %s at %s; the stay ended at %s", number, r.Name, s.Gone,
				s.End.Format(time.StampMilli), ends.Format(time.StampMilli)))
		}
	}
	return full, rest, errors.Join(wrong[:min(len(wrong), mostMessages)]...)
}

// waits are how long those who kept asking waited until they were called, in order.
func (r *crowdRun) waits() (waits []time.Duration) {
	keepers := r.keepers()
	for number, s := range r.History.Stays {
		if keepers[number] && s.Called > 0 {
			waits = append(waits, s.First.Sub(s.Entered))
		}
	}
	slices.Sort(waits)
	return waits
}

// estimates counts what those who kept asking were told of their wait, and how often
// it was right, or shorter or longer than the range.
func (r *crowdRun) estimates() (told, right, shorter, longer int64) {
	keepers := r.keepers()
	for _, v := range r.Visitors {
		s := r.History.Stays[v.Number]
		if !keepers[v.Number] || s == nil || s.Called == 0 {
			continue
		}
		for _, e := range v.Told {
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

// quantile of values in order; 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// Verdict is nil if the rooms have kept what they promise.
func (r *roomsResult) Verdict() error {
	var wrong []error
	for _, f := range r.checks() {
		wrong = append(wrong, f.err)
	}
	return errors.Join(wrong...)
}

// roomCheck is a fact that is checked.
type roomCheck struct {
	name, text string
	err        error
}

// checks are what must hold.
func (r *roomsResult) checks() []roomCheck {
	_, _, ticks := r.Ride.checkTicks()
	return []roomCheck{
		{"capacity", r.capacityText(), r.checkCapacity()},
		{"order", fmt.Sprintf("none of %s who kept asking was overtaken, or lost the place",
			humanize.Comma(int64(len(r.Shop.keepers())+len(r.Ride.keepers())))), errors.Join(r.Shop.checkOrder(), r.Ride.checkOrder())},
		{"came back", r.cameBackText(), r.checkCameBack()},
		{"ticks", r.ticksText(), ticks},
		{"visits", r.endsText(), errors.Join(r.Shop.checkEnds(), r.Ride.checkEnds())},
		{"the gate", fmt.Sprintf("sent on %s, each with a pass", counted(r.Requests, "request")), r.checkGate()},
		{"events", fmt.Sprintf("%s in %s, each once and none missing,\nread by the consumer group %q", humanize.Comma(r.Total),
			roomEventsTopic, demoRoomsGroup), r.checkEvents()},
	}
}

func (r *roomsResult) capacityText() string {
	return fmt.Sprintf("at most %d were inside the shop at any moment, of %d who may be,\nover all %s of its history",
		r.Shop.History.Most, r.Shop.Room.Capacity, counted(int64(len(r.Shop.History.Events)), "event"))
}

func (r *roomsResult) checkCapacity() error {
	if most := r.Shop.History.Most; most > r.Shop.Room.Capacity {
		return fmt.Errorf("%d were inside the shop, which bears %d", most, r.Shop.Room.Capacity)
	}
	return nil
}

func (r *roomsResult) cameBackText() string {
	back, kept := r.Shop.cameBack()
	return fmt.Sprintf("%d of %d who were away within the grace kept the place; %d who stayed away lost it",
		kept, back, r.Shop.History.Gone[room.VisitorAbandoned])
}

func (r *roomsResult) checkCameBack() error {
	if back, kept := r.Shop.cameBack(); back != kept {
		return fmt.Errorf("%d came back to the shop within the grace, %d kept the place", back, kept)
	}
	return nil
}

func (r *roomsResult) ticksText() string {
	full, rest, _ := r.Ride.checkTicks()
	text := fmt.Sprintf("the ride took %d at each of %d ticks", r.Ride.Room.Batch, full)
	if len(rest) > 0 {
		text += fmt.Sprintf(", and all who waited at the others (%s)", sprintInts(rest))
	}
	return text + fmt.Sprintf(";\neach was out when its %s were over", spell(r.Ride.Room.Stay))
}

func sprintInts(numbers []int64) (text string) {
	for i, n := range numbers {
		if i > 0 {
			text += ", "
		}
		text += humanize.Comma(n)
	}
	return text
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

func (r *roomsResult) checkGate() error {
	if r.WithoutPass > 0 || r.Requests == 0 {
		return fmt.Errorf("%d of %d requests came through a gate without a pass", r.WithoutPass, r.Requests)
	}
	return nil
}

func (r *roomsResult) checkEvents() error {
	wrong := append(slices.Clone(r.Heard.wrong), r.Shop.History.Wrong(), r.Ride.History.Wrong())
	if r.Committed != r.Total || r.Heard.total != r.Total {
		wrong = append(wrong, fmt.Errorf("group %s has read %d and committed %d of %d events", demoRoomsGroup, r.Heard.total, r.Committed, r.Total))
	}
	return errors.Join(wrong...)
}

func (r *roomsResult) facts() []fact {
	var facts []fact
	for _, c := range r.checks() {
		facts = append(facts, fact{name: c.name, text: c.text, checked: true, ok: c.err == nil})
	}
	waits := r.Shop.waits()
	told, right, shorter, longer := r.Shop.estimates()
	estimates := "none was told: the line was too short to measure it"
	if told > 0 {
		estimates = fmt.Sprintf("%s: %.0f %% of the waits ended within the range that was told,\n%.0f %% before it, %.0f %% after it",
			humanize.Comma(told), 100*ratio(right, told), 100*ratio(shorter, told), 100*ratio(longer, told))
	}
	return append(facts,
		fact{name: "waits", text: fmt.Sprintf("median %s, 95 %% within %s, in the line of the shop", spell(quantile(waits, 0.5)), spell(quantile(waits, 0.95)))},
		fact{name: "estimates", text: estimates})
}

// writeText writes the report of the rooms.
func (r *roomsResult) writeText(w io.Writer, p paint) {
	fmt.Fprintf(w, "\nrooms: %s through two gates, in %s\n", counted(int64(len(r.Shop.Visitors)+len(r.Ride.Visitors)), "visitor"), spell(r.Took))
	writeChecked(w, r.facts(), p)
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
