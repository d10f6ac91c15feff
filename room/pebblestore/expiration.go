package pebblestore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Expire implements room.Store. It takes active visitors in the order of their ends, and
// waiting ones by the buckets of silence.go.
func (s *Store) Expire(ctx context.Context, terms room.Terms) (room.Due, error) {
	var m operation
	if err := s.begin(ctx, &m, terms); err != nil {
		return room.Due{}, err
	}
	rs := m.rs
	if acts, next := terms.Tends(m.now, rs.tending()); !acts {
		defer m.cancel()
		return room.Due{Next: moment(next), Now: moment(m.now), Status: rs.status(m.now)}, nil
	}
	if terms.ServiceAway(m.now, rs.expired) {
		m.comeBack()
	}
	rs.expired = m.now
	more := m.endActive(maxStep)
	more = m.endSilent(maxStep) || more
	m.forget()
	// A tick calls once, so it waits until all due slots are free.
	if !more || terms.Tick == 0 {
		more = m.call(true) || more
	}
	if rs.tender = cmp.Or(terms.Tender, rs.tender); rs.waiting+rs.actives.len() == 0 {
		rs.tender = ""
	}
	due := room.Due{Next: m.next(), More: more, Now: moment(m.now), Tended: true, Status: rs.status(m.now)}
	return due, m.commit()
}

// tending returns what decides who tends the room.
func (rs *roomState) tending() room.Tending {
	last := room.Tending{Tender: rs.tender, Expired: rs.expired, Last: rs.counts.batch}
	if g := rs.actives.first(); g != nil {
		last.Ends = g.until
	}
	return last
}

// comeBack gives everybody the time that the service was away.
func (m *operation) comeBack() {
	rs := m.rs
	rs.back = m.now
	end := m.now + m.terms.Claim.Milliseconds()
	for _, g := range rs.actives.by {
		if g.called && g.until < end {
			rs.actives.setUntil(g, end)
			g.stored, g.serial = end, m.serial()
			m.touch(g.number)
		}
	}
}

// endActive ends passes and claim windows that are due.
func (m *operation) endActive(limit int) (more bool) {
	rs := m.rs
	for g := rs.actives.first(); g != nil && g.until <= m.now; g = rs.actives.first() {
		if limit == 0 {
			return true
		}
		limit--
		if !g.called {
			m.remove(g.number, slotExpired)
			continue
		}
		p := rs.visitors.page(g.number)
		rs.actives.remove(g)
		rs.called--
		rs.waiting++
		rs.counts.missed++
		m.counted = true
		p.set(g.number, slotSkipped)
		rs.silence.note(p.bucket(g.number), g.number, p.asked(g.number))
		m.touch(g.number)
		m.addEvent(room.VisitorNoShow, g.number, true)
	}
	return false
}

// maxBuckets is how many buckets one Expire looks at, 65,536 visitors: after an absence
// all are due at once.
const maxBuckets = 512

// silentVisitor is a visitor who has been silent for too long.
type silentVisitor struct{ asked, number int64 }

// endSilent makes visitors gone who have been silent for too long.
func (m *operation) endSilent(limit int) (more bool) {
	rs := m.rs
	var found []silentVisitor
	looked := 0
	bucket := rs.silence.first()
	for ; bucket != nil && m.terms.PlaceEnd(max(bucket.earliest, rs.back)) <= m.now; bucket = rs.silence.first() {
		if len(found) >= limit || looked >= maxBuckets {
			more = true
			break
		}
		looked++
		found = m.look(bucket, found)
	}
	slices.SortFunc(found, func(a, b silentVisitor) int {
		return cmp.Or(cmp.Compare(a.asked, b.asked), cmp.Compare(a.number, b.number))
	})
	for _, a := range found {
		m.remove(a.number, slotAbandoned)
	}
	return more
}

// look finds the visitors of a bucket who have been silent for too long, and reschedules
// the bucket.
func (m *operation) look(s *bucket, found []silentVisitor) []silentVisitor {
	rs := m.rs
	p := rs.visitors.page(s.first)
	earliest := int64(-1)
	for number := s.first; number < s.first+bucketSize; number++ {
		if !rs.visitors.slot(number).waiting() {
			continue
		}
		asked := rs.asked(p, number)
		switch {
		case m.terms.PlaceEnd(asked) <= m.now:
			found = append(found, silentVisitor{asked, number})
		case earliest < 0 || asked < earliest:
			earliest = asked
		}
	}
	if earliest < 0 {
		rs.silence.drop(s)
	} else {
		rs.silence.reschedule(s, earliest)
	}
	return found
}

// forget drops the pages whose visitors have all been gone for room.KeepGone. The last
// number outlives its page in the counts: every visitor who is gone was counted as
// admitted or departed.
func (m *operation) forget() {
	rs := m.rs
	n := 0
	for ; n < len(rs.closed) && n < maxStep && rs.closed[n].emptied+room.KeepGone.Milliseconds() < m.now; n++ {
		p := rs.closed[n]
		rs.visitors.forget(p)
		m.keep(m.writer().Delete(keyFor(rs.id, kindGone, p.number), nil))
	}
	rs.closed = slices.Delete(rs.closed, 0, n)
}

// next returns when something may be due; the zero time if nothing will be.
func (m *operation) next() time.Time {
	rs := m.rs
	next := int64(0)
	if g := rs.actives.first(); g != nil {
		next = g.until
	}
	if s := rs.silence.first(); s != nil {
		if due := m.terms.PlaceEnd(max(s.earliest, rs.back)); next == 0 || due < next {
			next = due
		}
	}
	return until(next)
}
