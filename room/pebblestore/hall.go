package pebblestore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/room"
)

// hall is a room in memory. Times are milliseconds.
type hall struct {
	id uint64

	mu       sync.Mutex // held for all below
	removed  bool
	record   room.Record
	visitors visitors
	keys     keyTable // of who is not gone
	// line is who waits and who is called. It lags behind the slots: who has left it
	// counts for the ranks of others until that is durable, so that no position that
	// was shown rises by a crash.
	line       line
	attendance attendance
	actives    actives
	waiting    int64
	called     int64
	counts     counts
	closed     []*page // whose visitors are gone, by when
	outbox     outbox

	// expired is when Expire was called last; 0: not since the store was opened.
	expired int64
	// back is when the service came back the last time: all who are there count as
	// having asked then.
	back int64

	moves    uint64        // batches that were entered into the log
	goneMove uint64        // the last that made somebody gone
	durable  atomic.Uint64 // up to which batch they are on disk
	// eventsDurable is up to which sequence number events are on disk.
	eventsDurable atomic.Int64
}

func newHall(id uint64, record room.Record) *hall {
	h := &hall{id: id, record: record}
	h.keys = newKeyTable(func(number int64) room.Key { return h.visitors.page(number).key(number) })
	return h
}

// raise makes a number at least so high.
func raise[N int64 | uint64](at interface {
	Load() N
	CompareAndSwap(old, new N) bool
}, to N) {
	for {
		known := at.Load()
		if to <= known || at.CompareAndSwap(known, to) {
			return
		}
	}
}

// away says whether the service is.
func (h *hall) away(now int64, terms *room.Terms) bool {
	return h.expired == 0 || now-h.expired > terms.Away.Milliseconds()
}

// asked is when a visitor who is not gone counts as having asked last.
func (h *hall) asked(p *page, number int64) int64 { return max(p.asked(number), h.back) }

// silence is for how long one may not ask before the place is gone.
func silence(terms *room.Terms) int64 { return (terms.Abandon + terms.Grace).Milliseconds() }

// place returns where a visitor is.
func (m *move) place(number int64) room.Place {
	h := m.h
	place := room.Place{Number: number, Now: moment(m.now)}
	p := h.visitors.page(number)
	s := h.visitors.slot(number)
	if !s.live() {
		place.State, place.Reason = room.Gone, reasons[s]
		return place
	}
	spot := p.spot(number)
	place.Drawn = spot.draw >= 0
	switch s {
	case slotCalled, slotInside:
		place.State = room.Called
		if s == slotInside {
			place.State = room.Inside
		}
		g := h.actives.by[number]
		place.Since, place.Until = moment(g.since), moment(g.until)
	default:
		place.State, place.Ahead = room.Waiting, h.line.rank(spot)
		for _, s := range m.left { // durable when this answer is
			if compareSpots(s, spot) < 0 {
				place.Ahead--
			}
		}
	}
	return place
}

// write puts a visitor's record, as it is, into a batch.
func (h *hall) write(batch *pebble.Batch, number int64) error {
	v := h.visitor(number)
	var key, value [64]byte
	return batch.Set(appendKey(key[:0], h.id, kindVisitor, number), v.append(value[:0]), nil)
}

// visitor returns a visitor's record.
func (h *hall) visitor(number int64) visitor {
	p := h.visitors.page(number)
	v := visitor{slot: h.visitors.slot(number), draw: noDraw}
	if !v.slot.live() {
		return v
	}
	v.key, v.draw = p.key(number), p.spot(number).draw
	if g := h.actives.by[number]; g != nil {
		v.since, v.until, v.tick, v.renewals = g.since, g.told, g.tick, g.renewals
	}
	return v
}
