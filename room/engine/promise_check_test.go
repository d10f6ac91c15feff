package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// trouble begins and ends the troubles of the service.
func (w *world) trouble(t *testing.T) {
	now := time.Since(w.begin)
	w.troubles = slices.DeleteFunc(w.troubles, func(tr trouble) bool { return tr.began && now >= tr.at+tr.lasts && w.ends(t, tr) })
	for i := range w.troubles {
		if tr := &w.troubles[i]; !tr.began && now >= tr.at {
			tr.began = w.begins(*tr)
		}
	}
}

// begins begins a trouble, if possible now.
func (w *world) begins(tr trouble) bool {
	e := w.engine(0)
	switch tr.kind {
	case "away":
		w.store.Fail(room.ErrUnavailable)
	case "lost replies":
		w.store.FailAfter(room.ErrUnavailable)
	case "kill":
		if w.engines[tr.engine] == nil {
			return false
		}
		w.engines[tr.engine].stop()
		w.engines[tr.engine] = nil
	case "capacity":
		if e == nil || w.failing() {
			return false
		}
		settings := w.settings
		settings.Capacity = tr.capacity
		e.put("shop", settings)
		w.capacities = append(w.capacities, capacityFrom{time.Now().Truncate(time.Millisecond), tr.capacity})
	case "pause", "rotate":
		if e == nil || w.failing() {
			return false
		}
		err := e.RotateKeys(ctx)
		if tr.kind == "pause" {
			_, err = e.Pause(ctx, "shop")
		}
		if err != nil {
			w.failf("%s: %v", tr.kind, err)
		}
	}
	return true
}

// ends ends a trouble, if possible now.
func (w *world) ends(t *testing.T, tr trouble) bool {
	e := w.engine(0)
	switch tr.kind {
	case "away":
		w.store.Fail(nil)
	case "lost replies":
		w.store.FailAfter(nil)
	case "kill":
		if w.failing() {
			return false
		}
		w.engines[tr.engine] = newRig(t, w.store, engine.WithPublisher(w.book))
	case "pause":
		if e == nil || w.failing() {
			return false
		}
		if _, err := e.Resume(ctx, "shop"); err != nil {
			w.failf("resume: %v", err)
		}
	}
	return true
}

// failing reports whether the store fails now.
func (w *world) failing() bool {
	_, err := w.store.Now(ctx)
	return err != nil
}

// slack is how late an event may be in virtual time.
const slack = 100 * time.Millisecond

// watchSlots checks that in a calm room no visitor who keeps asking waits while a slot is free,
// longer than until the next tick.
func (w *world) watchSlots() {
	if !w.calm || w.settings.Mode != room.Teller {
		return
	}
	status, err := w.store.Status(ctx, "shop")
	if err != nil {
		w.failf("%v", err)
	}
	w.known.Lock()
	defer w.known.Unlock()
	waits := slices.ContainsFunc(w.people, func(p *person) bool {
		return p.faithful() && p.ticket != "" && p.entered.IsZero() && !p.done
	})
	switch {
	case status.Inside >= w.settings.Capacity || !waits || status.Waiting == 0:
		w.idleSince = time.Time{}
	case w.idleSince.IsZero():
		w.idleSince = time.Now()
	case time.Since(w.idleSince) > 500*time.Millisecond+slack:
		w.failf("a slot is free for %v while somebody waits", time.Since(w.idleSince))
	}
}

// record is the history of one visitor.
type record struct {
	entered, admitted time.Time
	everAdmitted      bool
	inside, gone      bool
}

// check replays the room's history.
func (w *world) check(history []room.Notice) {
	records := map[int64]*record{}
	faithful := map[int64]*person{}
	for _, p := range w.people {
		if p.faithful() {
			faithful[p.number] = p
		}
	}
	inside, last := int64(0), int64(0)
	for _, n := range history {
		r := records[n.Number]
		if (r == nil) != (n.Type == room.VisitorEntered) || r != nil && (r.gone || r.inside != (n.Inside || n.Type == room.VisitorNoShow)) {
			w.failf("%+v does not follow from %+v", n, r)
			return
		}
		switch n.Type {
		case room.VisitorEntered:
			records[n.Number] = &record{entered: n.Time}
		case room.VisitorAdmitted:
			inside++
			if most := w.capacityAt(n.Time); w.settings.Mode == room.Teller && inside > most {
				w.failf("%d are inside, of at most %d: %+v", inside, most, n)
			}
			if faithful[n.Number] != nil && !r.everAdmitted {
				if n.Number < last {
					w.failf("%d was overtaken by %d", n.Number, last)
				}
				last = n.Number
			}
			r.inside, r.everAdmitted, r.admitted = true, true, n.Time
		case room.VisitorNoShow:
			inside--
			r.inside = false
			w.checkMissed(faithful[n.Number], r, n)
		default:
			if r.inside {
				inside--
			}
			r.inside, r.gone = false, true
			if n.Type == room.VisitorExpired && w.settings.Mode == room.Park {
				if late := n.Time.Sub(r.admitted) - w.settings.Stay; late < -slack || late > slack {
					w.failf("%d was let in at %v and out at %v", n.Number, r.admitted, n.Time)
				}
			}
		}
	}
	if w.settings.Mode == room.Park {
		w.checkTicks(history, records, faithful)
	}
}

func (w *world) checkMissed(p *person, r *record, n room.Notice) {
	if p != nil {
		w.failf("%d kept asking and missed the turn: %+v", n.Number, n)
	}
	if took := n.Time.Sub(r.admitted); w.calm && took > w.settings.ClaimWindow+slack {
		w.failf("%d was called and kept the slot for %v without coming", n.Number, took)
	}
}

// capacityAt returns the highest capacity that was in force at a time.
func (w *world) capacityAt(t time.Time) (most int64) {
	for i, c := range w.capacities {
		if !c.from.After(t) && (i+1 == len(w.capacities) || !w.capacities[i+1].from.Before(t)) {
			most = max(most, c.capacity)
		}
	}
	return most
}

// checkTicks checks that each tick let in a full batch, or all waiting visitors.
func (w *world) checkTicks(history []room.Notice, records map[int64]*record, faithful map[int64]*person) {
	admitted := map[int64]int64{}
	first := map[int64]int64{}
	opening := w.begin.Truncate(time.Millisecond)
	for _, n := range history {
		if n.Type != room.VisitorAdmitted {
			continue
		}
		index := int64(n.Time.Sub(opening) / w.settings.Interval)
		if late := n.Time.Sub(opening) % w.settings.Interval; late > slack {
			w.failf("%d was called %v after its tick", n.Number, late)
		}
		admitted[index]++
		if _, before := first[n.Number]; !before {
			first[n.Number] = index
		}
	}
	for index, n := range admitted {
		if n > w.settings.Batch {
			w.failf("%d were let in at tick %d, of at most %d", n, index, w.settings.Batch)
		}
	}
	for number, p := range faithful {
		r := records[number]
		if r == nil || p == nil {
			continue
		}
		for index := int64(r.entered.Sub(opening)/w.settings.Interval) + 1; index < first[number]; index++ {
			if admitted[index] < w.settings.Batch {
				w.failf("%d waited from %v on, and tick %d let in %d of %d", number, r.entered.Sub(opening), index, admitted[index], w.settings.Batch)
			}
		}
	}
}
