package pebblestore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/room"
)

// roomState is a room in memory. Times are milliseconds.
type roomState struct {
	id uint64

	mu       sync.Mutex // held for all below
	removed  bool
	record   room.Record
	visitors visitors
	keys     keyTable // of visitors who are not gone
	// lines hold the visitors who wait or are called. They lag behind the slots: a visitor
	// who left counts for the ranks of others until that is durable, so that no position
	// that was shown rises after a crash.
	lines   []line // by lane, as far as used
	turns   room.Turns
	silence silenceIndex
	actives actives
	waiting int64
	called  int64
	counts  counts
	closed  []*page // whose visitors are gone, by when
	outbox  outbox

	// expired is when Expire was last called, and tender by whom; 0: not since the store was
	// opened.
	expired int64
	tender  string
	// back is when the service last came back: all visitors then count as having asked.
	back int64

	logged     uint64        // batches that were entered into the log
	goneSerial uint64        // the last that made somebody gone
	durable    atomic.Uint64 // up to which batch they are on disk
	// eventsDurable is up to which sequence number events are on disk.
	eventsDurable atomic.Int64
}

func newRoomState(id uint64, record room.Record) *roomState {
	rs := &roomState{id: id, record: record, lines: make([]line, 1), silence: newSilenceIndex(), actives: newActives()}
	rs.keys = newKeyTable(func(number int64) room.Key { return rs.visitors.page(number).key(number) })
	return rs
}

// raise raises a number to at least to.
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

// lineOf returns the line of a visitor.
func (rs *roomState) lineOf(s position) *line {
	for len(rs.lines) <= int(s.lane) {
		rs.lines = append(rs.lines, line{})
	}
	return &rs.lines[s.lane]
}

func (rs *roomState) setMay(s position, may bool) { rs.lineOf(s).setMay(s, may) }

// next returns who is called next, and the turns after that; 0 if nobody may be.
func (rs *roomState) next(t *room.Terms) (number int64, after room.Turns) {
	var firsts [room.MaxLanes]int64
	for i := range rs.lines {
		firsts[i], _ = rs.lines[i].first()
	}
	lane, after, _ := t.Next(rs.turns, func(lane int) bool { return firsts[lane] != 0 })
	return firsts[lane], after
}

// asked returns when a visitor who is not gone counts as having asked last.
func (rs *roomState) asked(p *page, number int64) int64 { return max(p.asked(number), rs.back) }

// numberOf returns a bearer's number; 0, which no visitor has, if another visitor has it.
func (m *operation) numberOf(b room.Bearer) int64 {
	if m.rs.visitors.slot(b.Number).live() && !b.Is(m.rs.visitors.page(b.Number).print(b.Number)) {
		return 0
	}
	return b.Number
}

// place returns where a visitor is.
func (m *operation) place(number int64) room.Place {
	rs := m.rs
	place := room.Place{Number: number, Now: moment(m.now)}
	p := rs.visitors.page(number)
	s := rs.visitors.slot(number)
	if !s.live() {
		place.State, place.Reason = room.Gone, reasons[s]
		return place
	}
	position := p.position(number)
	place.Drawn = position.draw >= 0
	switch s {
	case slotCalled, slotInside:
		place.State = room.Called
		if s == slotInside {
			place.State = room.Inside
		}
		g := rs.actives.by[number]
		place.Since, place.Until = moment(g.since), moment(g.until)
	default:
		place.State, place.Lane, place.Ahead = room.Waiting, int(position.lane), rs.lineOf(position).rank(position)
		for _, s := range m.left { // durable when this answer is
			if s.lane == position.lane && comparePositions(s, position) < 0 {
				place.Ahead--
			}
		}
	}
	return place
}

// write puts a visitor's record, as it is, into a batch.
func (rs *roomState) write(batch *pebble.Batch, number int64) error {
	v := rs.visitor(number)
	var key, value [64]byte
	return batch.Set(appendKey(key[:0], rs.id, kindVisitor, number), v.append(value[:0]), nil)
}

// writeCounts puts the counts, and the time, into a batch.
func (rs *roomState) writeCounts(batch *pebble.Batch, now int64) error {
	rs.counts.clock = now
	var key, value [128]byte
	return batch.Set(appendKey(key[:0], rs.id, kindCounts, 0), rs.counts.append(value[:0]), nil)
}

// visitor returns a visitor's record.
func (rs *roomState) visitor(number int64) visitor {
	p := rs.visitors.page(number)
	v := visitor{slot: rs.visitors.slot(number), draw: noDraw}
	if !v.slot.live() {
		return v
	}
	v.key, v.print, v.draw, v.lane = p.key(number), p.print(number), p.position(number).draw, p.lane(number)
	if g := rs.actives.by[number]; g != nil {
		v.since, v.until, v.tick, v.renewals = g.since, g.stored, g.tick, g.renewals
	}
	return v
}
