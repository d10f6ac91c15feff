package pebblestore

import (
	"context"

	"github.com/sluice-project/sluice/room"
)

// Enter implements room.Store.
func (s *Store) Enter(ctx context.Context, terms room.Terms, arrival room.Arrival) (room.Place, error) {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return room.Place{}, err
	}
	rs := m.rs
	if arrival.Key != (room.Key{}) {
		if number := rs.keys.find(arrival.Key); number != 0 {
			place := m.ask(number, !arrival.Provisional)
			m.needs(rs.logged) // one of them made the place
			return place, m.commit()
		}
	}
	err := terms.MayEnter(m.now, rs.waiting)
	if err == nil {
		err = s.disk.Check(moment(m.now), entryBytes)
	}
	if err != nil {
		m.cancel()
		return room.Place{}, err
	}
	m.setBatch(terms.Lapsed(m.now, rs.waiting, rs.counts.batch))
	number := m.arrive(arrival)
	m.call(false)
	place := m.ask(number, !arrival.Provisional)
	place.New = true
	return place, m.commit()
}

// entryBytes is about what a newcomer adds to the disk until it is gone.
const entryBytes = 512

// arrive gives a visitor the next number and a place in line.
func (m *operation) arrive(arrival room.Arrival) int64 {
	rs := m.rs
	rs.counts.number++
	number := rs.counts.number
	p := rs.visitors.need(number)
	p.live++
	p.set(number, slotWaiting)
	p.setAsked(number, m.now)
	p.setPrint(number, arrival.Fingerprint)
	p.setLane(number, uint8(arrival.Lane))
	if arrival.Key != (room.Key{}) {
		p.setKey(number, arrival.Key)
		rs.keys.add(number)
	}
	if m.terms.ByDraw(m.now, arrival.Lane) {
		p.setDraw(number, arrival.Draw)
	}
	rs.waiting++
	at := p.position(number)
	rs.lineOf(at).add(at)
	rs.silence.note(p.bucket(number), number, m.now)
	m.touch(number)
	m.addEvent(room.VisitorEntered, number, false)
	return number
}

// Ask implements room.Store.
func (s *Store) Ask(ctx context.Context, terms room.Terms, bearers []room.Bearer, claim bool) ([]room.Place, error) {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return nil, err
	}
	places := make([]room.Place, len(bearers))
	for i, bearer := range bearers {
		places[i] = m.ask(m.numberOf(bearer), claim)
		places[i].Number = bearer.Number
	}
	return places, m.commit()
}

// ask records that a visitor asked, and returns its place.
func (m *operation) ask(number int64, claim bool) room.Place {
	rs := m.rs
	p := rs.visitors.page(number)
	s := rs.visitors.slot(number)
	if !s.live() {
		m.needs(rs.goneSerial)
		return m.place(number)
	}
	p.setAsked(number, m.now)
	switch {
	case s == slotSkipped:
		p.set(number, slotWaiting)
		rs.setMay(p.position(number), true)
		m.touch(number)
	case s == slotCalled && claim:
		m.claim(p, rs.actives.by[number])
	case s == slotInside:
		m.slide(rs.actives.by[number])
	}
	if g := rs.actives.by[number]; g != nil {
		m.needs(g.serial)
	}
	return m.place(number)
}

// Leave implements room.Store.
func (s *Store) Leave(ctx context.Context, terms room.Terms, bearer room.Bearer, reason room.Reason) (room.Place, error) {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return room.Place{}, err
	}
	number := m.numberOf(bearer)
	place := m.place(number)
	place.Number = bearer.Number
	if place.State == room.Gone {
		m.needs(m.rs.goneSerial)
		return place, m.commit()
	}
	m.remove(number, slotFor(reason))
	m.call(false)
	return place, m.commit()
}

// slotFor returns the slot of a visitor who is gone for a reason.
func slotFor(reason room.Reason) slot {
	for s, r := range reasons {
		if r == reason && s != slotNone {
			return s
		}
	}
	return slotLeft
}

// Find implements room.Store.
func (s *Store) Find(ctx context.Context, terms room.Terms, key room.Key) (int64, error) {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return 0, err
	}
	number := m.rs.keys.find(key)
	if number == 0 {
		m.needs(m.rs.goneSerial)
	}
	return number, m.commit()
}

// remove makes a visitor gone who is not.
func (m *operation) remove(number int64, to slot) {
	rs := m.rs
	p := rs.visitors.page(number)
	was := rs.visitors.slot(number)
	key, position := p.key(number), p.position(number)
	if was.active() {
		rs.actives.remove(rs.actives.by[number])
		if to == slotExpired {
			rs.counts.expired++
			m.counted = true
		}
	} else {
		rs.waiting--
	}
	if was == slotCalled {
		rs.called--
		rs.counts.missed++
	}
	if was != slotInside {
		rs.counts.departed++
		m.counted = true
		m.leaveLine(position)
	}
	if key != (room.Key{}) {
		rs.keys.remove(number)
	}
	p.set(number, to)
	m.touch(number)
	rs.goneSerial = m.serial()
	if p.live--; p.live == 0 && p.full(rs.counts.number) {
		m.emptied = append(m.emptied, p)
	}
	m.addEvent(reasons[to].Event(), number, was.active())
}

// leaveLine removes a visitor from the line as soon as that is durable; from now on it is
// not called.
func (m *operation) leaveLine(s position) {
	m.rs.setMay(s, false)
	m.left = append(m.left, s)
}

// close replaces the records of a page's visitors, all gone, by one.
func (m *operation) close(p *page) {
	rs := m.rs
	for i := range p.people.buckets {
		rs.silence.drop(&p.people.buckets[i])
	}
	p.people, p.emptied = nil, m.now
	rs.closed = append(rs.closed, p)
	first := p.number << pageBits
	m.keep(m.writer().DeleteRange(keyFor(rs.id, kindVisitor, first), keyFor(rs.id, kindVisitor, first+pageSize), nil))
	m.keep(m.writer().Set(keyFor(rs.id, kindGone, p.number), encodeGone(p.emptied, &p.slots), nil))
}
