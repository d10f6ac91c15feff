package pebblestore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Expire does what is due, from the front of two lines: the active by when they end,
// and the sheets of attendance.
func (s *Store) Expire(ctx context.Context, terms room.Terms) (room.Due, error) {
	m, err := s.begin(ctx, &terms)
	if err != nil {
		return room.Due{}, err
	}
	h := m.h
	if h.away(m.now, &terms) {
		m.comeBack()
	}
	h.expired = m.now
	more := m.endActive(maxStep)
	more = m.endSilent(maxStep) || more
	m.forget()
	// A tick calls once, so it waits until all slots that are due are free.
	if !more || terms.Tick == 0 {
		more = m.call(true) || more
	}
	due := room.Due{Next: m.next(), More: more, Now: moment(m.now)}
	return due, m.commit()
}

// comeBack gives everybody the time that the service was away.
func (m *move) comeBack() {
	h := m.h
	h.back = m.now
	end := m.now + m.terms.Claim.Milliseconds()
	for _, g := range h.actives.by {
		if g.called && g.until < end {
			h.actives.setUntil(g, end)
			g.told, g.move = end, m.serial()
			m.touch(g.number)
		}
	}
}

// endActive ends what is due of who is called or inside.
func (m *move) endActive(limit int) (more bool) {
	h := m.h
	for g := h.actives.first(); g != nil && g.until <= m.now; g = h.actives.first() {
		if limit == 0 {
			return true
		}
		limit--
		if !g.called {
			m.remove(g.number, slotExpired)
			continue
		}
		p := h.visitors.page(g.number)
		h.actives.remove(g)
		h.called--
		h.waiting++
		h.counts.missed++
		m.counted = true
		p.set(g.number, slotSkipped)
		h.attendance.note(p.sheet(g.number), g.number, p.asked(g.number))
		m.touch(g.number)
		m.tell(room.VisitorMissed, g.number, true)
	}
	return false
}

// maxSheets is how many sheets one Expire looks at, 65,536 visitors: when the service
// came back, all are due at once.
const maxSheets = 512

// absent is a visitor who has been silent for too long.
type absent struct{ asked, number int64 }

// endSilent makes gone who has been silent for too long.
func (m *move) endSilent(limit int) (more bool) {
	h := m.h
	since := m.now - silence(m.terms)
	var found []absent
	looked := 0
	sheet := h.attendance.first()
	for ; sheet != nil && max(sheet.earliest, h.back) <= since; sheet = h.attendance.first() {
		if len(found) >= limit || looked >= maxSheets {
			more = true
			break
		}
		looked++
		found = m.look(sheet, since, found)
	}
	slices.SortFunc(found, func(a, b absent) int {
		return cmp.Or(cmp.Compare(a.asked, b.asked), cmp.Compare(a.number, b.number))
	})
	for _, a := range found {
		m.remove(a.number, slotAbandoned)
	}
	return more
}

// look finds who on a sheet has not asked since, and puts the sheet where it will be
// due next.
func (m *move) look(s *sheet, since int64, found []absent) []absent {
	h := m.h
	p := h.visitors.page(s.first)
	earliest := int64(-1)
	for number := s.first; number < s.first+sheetSize; number++ {
		if !h.visitors.slot(number).waiting() {
			continue
		}
		asked := h.asked(p, number)
		switch {
		case asked <= since:
			found = append(found, absent{asked, number})
		case earliest < 0 || asked < earliest:
			earliest = asked
		}
	}
	if earliest < 0 {
		h.attendance.drop(s)
	} else {
		h.attendance.move(s, earliest)
	}
	return found
}

// forget drops the pages whose visitors have all been gone for room.KeepGone. The
// last number outlives its page in the counts: nobody is gone who was not counted as
// admitted or departed before.
func (m *move) forget() {
	h := m.h
	n := 0
	for ; n < len(h.closed) && n < maxStep && h.closed[n].emptied+room.KeepGone.Milliseconds() < m.now; n++ {
		p := h.closed[n]
		h.visitors.forget(p)
		m.keep(m.writer().Delete(keyFor(h.id, kindGone, p.number), nil))
	}
	h.closed = slices.Delete(h.closed, 0, n)
}

// next is when something may be due; the zero time if nothing will be.
func (m *move) next() time.Time {
	h := m.h
	next := int64(0)
	if g := h.actives.first(); g != nil {
		next = g.until
	}
	if s := h.attendance.first(); s != nil {
		if due := max(s.earliest, h.back) + silence(m.terms); next == 0 || due < next {
			next = due
		}
	}
	return until(next)
}
