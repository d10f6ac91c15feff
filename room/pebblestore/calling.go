package pebblestore

import (
	"cmp"
	"context"

	"github.com/sluice-project/sluice/room"
)

// call calls visitors from the front of the line, as many as the terms allow, and
// skips those that have been silent. It reports whether it stopped before that.
func (m *move) call(expiring bool) (more bool) {
	h, t := m.h, m.terms
	if t.Capacity <= 0 || (!t.From.IsZero() && m.now < t.From.UnixMilli()) || (!t.Until.IsZero() && m.now >= t.Until.UnixMilli()) {
		return false
	}
	free := t.Capacity - h.actives.len()
	if t.Tick != 0 {
		if !expiring || !m.tick() {
			return false
		}
		free = min(free, h.counts.calls)
	}
	away := h.away(m.now, t)
	silentSince := m.now - t.Abandon.Milliseconds()
	for range maxStep {
		if free <= 0 {
			break
		}
		number, found := h.line.first()
		if !found {
			free = 0
			break
		}
		p := h.visitors.page(number)
		if !away && h.asked(p, number) <= silentSince {
			p.set(number, slotSkipped)
			h.line.setMay(p.spot(number), false)
			m.touch(number)
			continue
		}
		m.callOne(p, number)
		free--
		if t.Tick != 0 {
			h.counts.calls--
		}
	}
	if t.Tick != 0 && free <= 0 && h.counts.calls > 0 {
		h.counts.calls = 0 // what was not used lapses
		m.counted = true
	}
	return free > 0
}

// tick begins the batch of a tick, unless it had begun before; false if it is over,
// or not due.
func (m *move) tick() bool {
	c, t := &m.h.counts, m.terms
	switch {
	case t.Tick > m.now || t.Tick < c.tick:
		return false
	case t.Tick == c.tick:
		return c.calls > 0
	}
	c.tick, c.calls = t.Tick, t.Calls
	m.counted = true
	return true
}

// callOne gives a visitor who waits a slot.
func (m *move) callOne(p *page, number int64) {
	h := m.h
	p.set(number, slotCalled)
	h.line.setMay(p.spot(number), false)
	h.waiting--
	h.called++
	until := m.now + m.terms.Claim.Milliseconds()
	h.actives.add(&guest{
		number: number, called: true, since: m.now, tick: m.terms.Tick, until: until, told: until, move: m.serial(),
	})
	h.counts.admitted++
	m.counted = true
	m.touch(number)
	m.tell(room.VisitorAdmitted, number, false)
}

// claim lets a visitor in who was called.
func (m *move) claim(p *page, g *guest) {
	h := m.h
	p.set(g.number, slotInside)
	h.called--
	g.called, g.move = false, m.serial()
	until := m.now + m.terms.TTL.Milliseconds()
	if g.tick != 0 && !m.terms.Sliding {
		until = g.tick + m.terms.TTL.Milliseconds()
	}
	h.actives.setUntil(g, until)
	g.told = until
	if m.terms.Sliding {
		g.told += m.terms.TTL.Milliseconds() / 8
	}
	m.touch(g.number)
	m.leaveLine(p.spot(g.number))
}

// slide prolongs a sliding pass. The disk has an end that is later, so that it is
// written once for an eighth of the pass's length, and never ends earlier than what
// was told.
func (m *move) slide(g *guest) {
	if !m.terms.Sliding {
		return
	}
	ttl := m.terms.TTL.Milliseconds()
	m.h.actives.setUntil(g, m.now+ttl)
	if g.until > g.told {
		g.told = g.until + ttl/8
		g.move = m.serial()
		m.touch(g.number)
	}
}

// Renew prolongs a pass that does not slide.
func (s *Store) Renew(ctx context.Context, terms room.Terms, number int64) (room.Place, error) {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return room.Place{}, err
	}
	h := m.h
	if slot := h.visitors.slot(number); slot != slotInside {
		if g := h.actives.by[number]; g != nil {
			m.needs(g.move)
		} else if !slot.live() {
			m.needs(h.goneMove)
		}
		return m.place(number), m.commit()
	}
	g := h.actives.by[number]
	if terms.Sliding || g.renewals >= int64(terms.Renewals) {
		m.needs(g.move)
		place := m.place(number)
		return place, cmp.Or(m.commit(), room.ErrNotRenewable)
	}
	g.renewals++
	h.actives.setUntil(g, m.now+terms.TTL.Milliseconds())
	g.told, g.move = g.until, m.serial()
	m.touch(number)
	place := m.place(number)
	return place, m.commit()
}

// Clear makes all who are active gone. What is more than spillBytes is written in
// steps; nobody else moves in between.
func (s *Store) Clear(ctx context.Context, terms room.Terms) error {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return err
	}
	for n := 1; m.h.actives.len() > 0; n++ {
		m.remove(m.h.actives.first().number, slotRevoked)
		if n%maxStep == 0 {
			m.spill()
		}
	}
	m.call(false)
	return m.commit()
}
