package pebblestore

import (
	"context"

	"github.com/sluice-project/sluice/room"
)

// Enter puts a visitor at the end of the line.
func (s *Store) Enter(ctx context.Context, terms room.Terms, arrival room.Arrival) (room.Place, error) {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return room.Place{}, err
	}
	h := m.h
	if arrival.Key != (room.Key{}) {
		if number := h.keys.find(arrival.Key); number != 0 {
			place := m.ask(number, true)
			m.needs(h.moves) // one of them made the place
			return place, m.commit()
		}
	}
	if err := m.mayEnter(); err != nil {
		m.cancel()
		return room.Place{}, err
	}
	number := m.arrive(arrival)
	m.call(false)
	place := m.ask(number, true)
	place.New = true
	return place, m.commit()
}

// mayEnter says why a newcomer is refused.
func (m *move) mayEnter() error {
	switch t := m.terms; {
	case m.now < t.EnterFrom.UnixMilli() && !t.EnterFrom.IsZero():
		return room.ErrNotOpen
	case !t.EnterUntil.IsZero() && m.now >= t.EnterUntil.UnixMilli():
		return room.ErrEnded
	case m.h.waiting >= t.MaxWaiting:
		return room.ErrLineFull
	}
	return m.s.disk.Check(moment(m.now), entryBytes)
}

// entryBytes is about what a newcomer adds to the disk until it is gone.
const entryBytes = 512

// arrive gives a visitor the next number and a place in line.
func (m *move) arrive(arrival room.Arrival) int64 {
	h := m.h
	h.counts.number++
	number := h.counts.number
	p := h.visitors.need(number)
	p.live++
	p.set(number, slotWaiting)
	p.setAsked(number, m.now)
	if arrival.Key != (room.Key{}) {
		p.setKey(number, arrival.Key)
		h.keys.add(number)
	}
	if m.now < m.terms.DrawUntil.UnixMilli() && !m.terms.DrawUntil.IsZero() {
		p.setDraw(number, arrival.Draw)
	}
	h.waiting++
	h.line.add(p.spot(number))
	h.attendance.note(p.sheet(number), number, m.now)
	m.touch(number)
	m.tell(room.VisitorEntered, number, false)
	return number
}

// Ask returns where visitors are, and notes that they asked.
func (s *Store) Ask(ctx context.Context, terms room.Terms, numbers []int64, claim bool) ([]room.Place, error) {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return nil, err
	}
	places := make([]room.Place, len(numbers))
	for i, number := range numbers {
		places[i] = m.ask(number, claim)
	}
	return places, m.commit()
}

// ask is what one visitor's asking does, and the answer.
func (m *move) ask(number int64, claim bool) room.Place {
	h := m.h
	p := h.visitors.page(number)
	s := h.visitors.slot(number)
	if !s.live() {
		m.needs(h.goneMove)
		return m.place(number)
	}
	p.setAsked(number, m.now)
	switch {
	case s == slotSkipped:
		p.set(number, slotWaiting)
		h.line.setMay(p.spot(number), true)
		m.touch(number)
	case s == slotCalled && claim:
		m.claim(p, h.actives.by[number])
	case s == slotInside:
		m.slide(h.actives.by[number])
	}
	if g := h.actives.by[number]; g != nil {
		m.needs(g.move)
	}
	return m.place(number)
}

// Leave makes a visitor gone.
func (s *Store) Leave(ctx context.Context, terms room.Terms, number int64, reason room.Reason) (room.Place, error) {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return room.Place{}, err
	}
	place := m.place(number)
	if place.State == room.Gone {
		m.needs(m.h.goneMove)
		return place, m.commit()
	}
	m.remove(number, slotFor(reason))
	m.call(false)
	return place, m.commit()
}

// slotFor is what a slot holds of who is gone for a reason.
func slotFor(reason room.Reason) slot {
	for s, r := range reasons {
		if r == reason && s != slotNone {
			return s
		}
	}
	return slotLeft
}

// Find returns the number of the visitor with a key.
func (s *Store) Find(ctx context.Context, terms room.Terms, key room.Key) (int64, error) {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return 0, err
	}
	number := m.h.keys.find(key)
	if number == 0 {
		m.needs(m.h.goneMove)
	}
	return number, m.commit()
}

// remove makes a visitor who is not gone gone.
func (m *move) remove(number int64, to slot) {
	h := m.h
	p := h.visitors.page(number)
	was := h.visitors.slot(number)
	key, spot := p.key(number), p.spot(number)
	if was.active() {
		h.actives.remove(h.actives.by[number])
		if to == slotExpired {
			h.counts.expired++
			m.counted = true
		}
	} else {
		h.waiting--
		h.counts.departed++
		m.counted = true
	}
	if was == slotCalled {
		h.called--
	}
	if was != slotInside {
		m.leaveLine(spot)
	}
	if key != (room.Key{}) {
		h.keys.remove(number)
	}
	p.set(number, to)
	m.touch(number)
	h.goneMove = m.serial()
	if p.live--; p.live == 0 && p.full(h.counts.number) {
		m.emptied = append(m.emptied, p)
	}
	m.tell(eventOf[to], number, was.active())
}

// eventOf is the event of being gone for a reason.
var eventOf = map[slot]room.EventType{
	slotLeft: room.VisitorLeft, slotExpired: room.VisitorExpired, slotAbandoned: room.VisitorAbandoned,
	slotRevoked: room.VisitorRevoked, slotEnded: room.VisitorAbandoned,
}

// leaveLine takes a visitor out of the line as soon as that is durable; it is not
// called from it any more.
func (m *move) leaveLine(s spot) {
	m.h.line.setMay(s, false)
	m.left = append(m.left, s)
}

// close replaces the records of a page's visitors, who are all gone, by one.
func (m *move) close(p *page) {
	h := m.h
	for i := range p.people.sheets {
		h.attendance.drop(&p.people.sheets[i])
	}
	p.people, p.emptied = nil, m.now
	h.closed = append(h.closed, p)
	first := p.number << pageBits
	m.keep(m.writer().DeleteRange(keyFor(h.id, kindVisitor, first), keyFor(h.id, kindVisitor, first+pageSize), nil))
	m.keep(m.writer().Set(keyFor(h.id, kindGone, p.number), encodeGone(p.emptied, &p.slots), nil))
}
