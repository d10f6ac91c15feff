package pebblestore

import (
	"cmp"
	"context"

	"github.com/sluice-project/sluice/room"
)

// call calls visitors from the front of the line, as many as the terms allow, and
// skips those that have been silent. It reports whether it stopped before that.
func (m *operation) call(expiring bool) (more bool) {
	rs, t := m.rs, &m.terms
	calls, batch := t.Callable(m.now, rs.actives.len(), rs.counts.batch, expiring)
	m.setBatch(batch)
	if calls <= 0 {
		return false
	}
	away := t.ServiceAway(m.now, rs.expired)
	for range maxStep {
		if calls <= 0 {
			break
		}
		number, after := rs.next(t)
		if number == 0 {
			calls = 0
			break
		}
		p := rs.visitors.page(number)
		if !away && t.Silent(m.now, rs.asked(p, number)) {
			p.set(number, slotSkipped)
			rs.setMay(p.position(number), false)
			m.touch(number)
			continue
		}
		m.callOne(p, number)
		rs.turns = after
		calls--
		batch.Left--
	}
	if calls <= 0 {
		batch.Left = 0 // unused calls lapse
	}
	if t.Tick != 0 {
		m.setBatch(batch)
	}
	return calls > 0
}

func (m *operation) setBatch(batch room.Batch) {
	if batch != m.rs.counts.batch {
		m.rs.counts.batch = batch
		m.counted = true
	}
}

// callOne calls a visitor who waits.
func (m *operation) callOne(p *page, number int64) {
	rs := m.rs
	p.set(number, slotCalled)
	rs.setMay(p.position(number), false)
	rs.waiting--
	rs.called++
	until := m.now + m.terms.Claim.Milliseconds()
	rs.actives.add(&activeVisitor{
		number: number, called: true, since: m.now, tick: m.terms.Tick, until: until, stored: until, serial: m.serial(),
	})
	rs.counts.admitted++
	m.counted = true
	m.touch(number)
	m.addEvent(room.VisitorAdmitted, number, false)
}

// claim lets a called visitor in.
func (m *operation) claim(p *page, g *activeVisitor) {
	rs := m.rs
	p.set(g.number, slotInside)
	rs.called--
	g.called, g.serial = false, m.serial()
	until := m.terms.PassEnd(m.now, g.tick)
	rs.actives.setUntil(g, until)
	g.stored = until
	if m.terms.Sliding {
		g.stored += m.terms.TTL.Milliseconds() / 8
	}
	m.touch(g.number)
	m.leaveLine(p.position(g.number))
}

// slide extends a sliding pass. The disk has a later end, so that it is written once for
// an eighth of the pass's length, and never ends earlier than was answered.
func (m *operation) slide(g *activeVisitor) {
	if !m.terms.Sliding {
		return
	}
	m.rs.actives.setUntil(g, m.terms.PassEnd(m.now, g.tick))
	if g.until > g.stored {
		g.stored = g.until + m.terms.TTL.Milliseconds()/8
		g.serial = m.serial()
		m.touch(g.number)
	}
}

// Renew implements room.Store.
func (s *Store) Renew(ctx context.Context, terms room.Terms, bearer room.Bearer) (place room.Place, err error) {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return room.Place{}, err
	}
	defer func() { place.Number = bearer.Number }()
	rs, number := m.rs, m.numberOf(bearer)
	if slot := rs.visitors.slot(number); slot != slotInside {
		if g := rs.actives.by[number]; g != nil {
			m.needs(g.serial)
		} else if !slot.live() {
			m.needs(rs.goneSerial)
		}
		return m.place(number), m.commit()
	}
	g := rs.actives.by[number]
	if !terms.Renewable(g.renewals) {
		m.needs(g.serial)
		place = m.place(number)
		return place, cmp.Or(m.commit(), room.ErrNotRenewable)
	}
	g.renewals++
	rs.actives.setUntil(g, m.now+terms.TTL.Milliseconds())
	g.stored, g.serial = g.until, m.serial()
	m.touch(number)
	place = m.place(number)
	return place, m.commit()
}

// Clear implements room.Store. It writes more than spillBytes in steps, under the room's
// lock.
func (s *Store) Clear(ctx context.Context, terms room.Terms) error {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return err
	}
	for n := 1; m.rs.actives.len() > 0; n++ {
		m.remove(m.rs.actives.first().number, slotRevoked)
		if n%maxStep == 0 {
			m.spill()
		}
	}
	m.call(false)
	return m.commit()
}
