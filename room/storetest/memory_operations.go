package storetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Enter implements room.Store.
func (m *Memory) Enter(ctx context.Context, terms room.Terms, arrival room.Arrival) (room.Place, error) {
	return operate(ctx, m, terms, func(r *memoryRoom, at at) (room.Place, error) {
		if number := r.keys[arrival.Key]; number != 0 {
			r.ask(at, r.visitors[number], !arrival.Provisional)
			return r.place(number, at.now), nil
		}
		if err := at.MayEnter(at.ms(), r.counts[room.Waiting]); err != nil {
			return room.Place{}, err
		}
		r.status.Tick = at.Lapsed(at.ms(), r.counts[room.Waiting], room.Batch{Tick: r.status.Tick}).Tick
		v := r.add(at, arrival)
		r.call(at, false)
		r.ask(at, v, !arrival.Provisional)
		p := r.place(v.number, at.now)
		p.New = true
		return p, nil
	})
}

// Ask implements room.Store.
func (m *Memory) Ask(ctx context.Context, terms room.Terms, bearers []room.Bearer, claim bool) ([]room.Place, error) {
	return operate(ctx, m, terms, func(r *memoryRoom, at at) ([]room.Place, error) {
		places := make([]room.Place, len(bearers))
		for i, bearer := range bearers {
			if v := r.visitor(bearer); v != nil {
				r.ask(at, v, claim)
			}
			places[i] = r.placeOf(bearer, at.now)
		}
		return places, nil
	})
}

// Renew implements room.Store.
func (m *Memory) Renew(ctx context.Context, terms room.Terms, bearer room.Bearer) (room.Place, error) {
	return operate(ctx, m, terms, func(r *memoryRoom, at at) (room.Place, error) {
		v := r.visitor(bearer)
		if v == nil || v.state != room.Inside {
			return r.placeOf(bearer, at.now), nil
		}
		if !at.Renewable(v.renewals) {
			return r.placeOf(bearer, at.now), room.ErrNotRenewable
		}
		v.renewals++
		v.until = at.now.Add(at.TTL)
		return r.placeOf(bearer, at.now), nil
	})
}

// Leave implements room.Store.
func (m *Memory) Leave(ctx context.Context, terms room.Terms, bearer room.Bearer, reason room.Reason) (room.Place, error) {
	return operate(ctx, m, terms, func(r *memoryRoom, at at) (room.Place, error) {
		before := r.placeOf(bearer, at.now)
		if v := r.visitor(bearer); v != nil {
			r.remove(at, v, reason)
			r.call(at, false)
		}
		return before, nil
	})
}

// Find implements room.Store.
func (m *Memory) Find(ctx context.Context, terms room.Terms, key room.Key) (int64, error) {
	return operate(ctx, m, terms, func(r *memoryRoom, _ at) (int64, error) { return r.keys[key], nil })
}

// Clear implements room.Store.
func (m *Memory) Clear(ctx context.Context, terms room.Terms) error {
	_, err := operate(ctx, m, terms, func(r *memoryRoom, at at) (struct{}, error) {
		for _, v := range r.byDeadline(at, func(v *memoryVisitor) bool { return v.state != room.Waiting }) {
			r.remove(at, v, room.Revoked)
		}
		r.call(at, false)
		return struct{}{}, nil
	})
	return err
}

// Expire implements room.Store. It leaves nothing for later.
func (m *Memory) Expire(ctx context.Context, terms room.Terms) (room.Due, error) {
	return operate(ctx, m, terms, func(r *memoryRoom, at at) (room.Due, error) {
		if acts, next := at.Tends(at.ms(), r.tending()); !acts {
			return room.Due{Now: at.now, Next: time.UnixMilli(next), Status: r.countsAt(at.now)}, nil
		}
		if r.away(at) {
			r.comeBack(at)
		}
		r.expired = at.now
		due := func(v *memoryVisitor) bool { return !v.deadline(at).After(at.now) }
		for _, v := range r.byDeadline(at, func(v *memoryVisitor) bool { return v.state != room.Waiting && due(v) }) {
			if v.state == room.Inside {
				r.remove(at, v, room.Expired)
				continue
			}
			r.move(v, room.Waiting)
			v.skipped = true
			r.status.NoShows++
			r.note(at, room.VisitorNoShow, v.number, true)
		}
		for _, v := range r.byDeadline(at, func(v *memoryVisitor) bool { return v.state == room.Waiting && due(v) }) {
			r.remove(at, v, room.Abandoned)
		}
		r.call(at, true)
		for number, gone := range r.gone {
			if at.now.Sub(gone.when) > room.KeepGone {
				delete(r.gone, number)
			}
		}
		if at.Tender != "" {
			r.tender = at.Tender
		}
		if len(r.visitors) == 0 {
			r.tender = ""
		}
		result := room.Due{Now: at.now, Tended: true, Status: r.countsAt(at.now)}
		for _, v := range r.visitors {
			if d := v.deadline(at); result.Next.IsZero() || d.Before(result.Next) {
				result.Next = d
			}
		}
		return result, nil
	})
}

// comeBack makes all visitors count as having asked now, and gives called ones at least the claim
// window.
func (r *memoryRoom) comeBack(at at) {
	for _, v := range r.visitors {
		v.asked = at.now
		if end := at.now.Add(at.Claim); v.state == room.Called && v.until.Before(end) {
			v.until = end
		}
	}
}

// deadline returns when a visitor who does not ask changes state.
func (v *memoryVisitor) deadline(at at) time.Time {
	if v.state == room.Waiting {
		return time.UnixMilli(at.PlaceEnd(v.asked.UnixMilli()))
	}
	return v.until
}

// byDeadline returns visitors by their deadlines, then by their numbers.
func (r *memoryRoom) byDeadline(at at, which func(*memoryVisitor) bool) []*memoryVisitor {
	var found []*memoryVisitor
	for _, v := range r.visitors {
		if which(v) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b *memoryVisitor) int {
		return cmp.Or(a.deadline(at).Compare(b.deadline(at)), cmp.Compare(a.number, b.number))
	})
	return found
}

// Status implements room.Store.
func (m *Memory) Status(ctx context.Context, name string) (room.Status, error) {
	return doNamed(ctx, m, name, func(r *memoryRoom, now time.Time) (room.Status, error) {
		return r.countsAt(now), nil
	})
}

// countsAt returns the status.
func (r *memoryRoom) countsAt(now time.Time) room.Status {
	s := r.status
	s.Waiting, s.Inside, s.Called, s.Now = r.counts[room.Waiting], r.active(), r.counts[room.Called], now
	s.EventsWaiting = int64(len(r.events))
	return s
}

// Events implements room.Store.
func (m *Memory) Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]room.Event, error) {
	return doRevision(ctx, m, name, revision, func(r *memoryRoom, _ time.Time) ([]room.Event, error) {
		rest := r.after(after)
		return slices.Clone(rest[:min(limit, len(rest))]), nil
	})
}

// Published implements room.Store.
func (m *Memory) Published(ctx context.Context, name string, revision uint64, upTo int64) error {
	_, err := doRevision(ctx, m, name, revision, func(r *memoryRoom, _ time.Time) (struct{}, error) {
		r.events = slices.Clone(r.after(upTo))
		return struct{}{}, nil
	})
	return err
}

// after returns the events after a sequence number.
func (r *memoryRoom) after(sequence int64) []room.Event {
	for i, e := range r.events {
		if e.Sequence > sequence {
			return r.events[i:]
		}
	}
	return nil
}
