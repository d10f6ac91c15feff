package pebblestore

import (
	"errors"

	"github.com/sluice-project/sluice/room"
)

var errForm = errors.New("it is not of its form")

// Flags of a visitor's record, beside its slot.
const (
	flagKey  = 0x40
	flagDraw = 0x80
	slotMask = 0x0f
)

// visitor is a visitor's record.
type visitor struct {
	slot slot
	key  room.Key // the zero key: none
	draw int64    // noDraw: none
	// Of who is called or inside: see active.
	since, until, tick, renewals int64
}

// append appends the record's form.
func (v *visitor) append(to []byte) []byte {
	first := len(to)
	to = append(to, byte(v.slot))
	if !v.slot.live() {
		return to
	}
	if v.key != (room.Key{}) {
		to[first] |= flagKey
		to = append(to, v.key[:]...)
	}
	if v.draw >= 0 {
		to[first] |= flagDraw
		to = appendCounts(to, v.draw)
	}
	switch v.slot {
	case slotCalled:
		to = appendCounts(to, v.since, v.until, v.tick)
	case slotInside:
		to = appendCounts(to, v.since, v.until, v.tick, v.renewals)
	}
	return to
}

func decodeVisitor(value []byte) (v visitor, err error) {
	r := reader{rest: value}
	first := r.byte()
	v.slot, v.draw = slot(first&slotMask), noDraw
	if v.slot == slotNone || v.slot > slotLast || first&^(slotMask|flagKey|flagDraw) != 0 {
		return v, errForm
	}
	if !v.slot.live() && first != byte(v.slot) {
		return v, errForm
	}
	if first&flagKey != 0 {
		copy(v.key[:], r.take(len(v.key)))
		if v.key == (room.Key{}) {
			return v, errForm
		}
	}
	if first&flagDraw != 0 {
		v.draw = r.count()
	}
	if v.slot == slotCalled || v.slot == slotInside {
		v.since, v.until, v.tick = r.count(), r.count(), r.count()
	}
	if v.slot == slotInside {
		v.renewals = r.count()
	}
	if !r.whole() || v.draw > room.MaxDraw {
		return v, errForm
	}
	return v, nil
}

// counts are what a room counts for ever. What every entry would change is only as
// fresh as the last write: number and sequence are then those of the last
// visitor's record and of the last event.
type counts struct {
	number, sequence                    int64 // the last ones given
	admitted, missed, departed, expired int64
	dropped                             int64 // events
	tick, calls                         int64 // of a batch, calls that are left to make
}

func (c *counts) append(to []byte) []byte {
	return appendCounts(to, c.number, c.sequence, c.admitted, c.missed, c.departed, c.expired, c.dropped, c.tick, c.calls)
}

func decodeCounts(value []byte) (c counts, err error) {
	r := reader{rest: value}
	for _, field := range []*int64{&c.number, &c.sequence, &c.admitted, &c.missed, &c.departed, &c.expired, &c.dropped, &c.tick, &c.calls} {
		*field = r.count()
	}
	if !r.whole() {
		return c, errForm
	}
	return c, nil
}

// encodeGone is when a page emptied, and why its visitors are gone, in runs.
func encodeGone(emptied int64, slots *[pageSize]slot) []byte {
	to := appendCounts(nil, emptied)
	for i := 0; i < pageSize; {
		end := i + 1
		for end < pageSize && slots[end] == slots[i] {
			end++
		}
		to = appendCounts(append(to, byte(slots[i])), int64(end-i))
		i = end
	}
	return to
}

func decodeGone(value []byte, slots *[pageSize]slot) (emptied int64, err error) {
	r := reader{rest: value}
	emptied = r.count()
	for at := int64(0); at < pageSize; {
		s, n := slot(r.byte()), r.count()
		if r.bad || s.live() || s > slotLast || n == 0 || n > pageSize-at {
			return 0, errForm
		}
		for i := range n {
			slots[at+i] = s
		}
		at += n
	}
	if !r.whole() {
		return 0, errForm
	}
	return emptied, nil
}

// roomRecord is what is stored under a room's name.
type roomRecord struct {
	id, revision uint64
	data         []byte
}

func (r *roomRecord) encode() []byte {
	return append(appendCounts(nil, int64(r.id), int64(r.revision)), r.data...)
}

func decodeRoom(value []byte) (r roomRecord, err error) {
	in := reader{rest: value}
	r.id, r.revision = uint64(in.count()), uint64(in.count())
	if in.bad || r.id == 0 || r.revision < r.id {
		return r, errForm
	}
	r.data = append([]byte{}, in.rest...)
	return r, nil
}

// eventTypes are the types of events by their byte in the outbox.
var eventTypes = [...]room.EventType{
	1: room.VisitorEntered, 2: room.VisitorAdmitted, 3: room.VisitorMissed, 4: room.VisitorLeft,
	5: room.VisitorExpired, 6: room.VisitorAbandoned, 7: room.VisitorRevoked,
}

// flagWasInside is set in the byte of an event's type.
const flagWasInside = 0x80

func appendEvent(to []byte, e *room.Event) []byte {
	for code, t := range eventTypes {
		if code > 0 && t == e.Type {
			if e.Inside {
				code |= flagWasInside
			}
			return appendCounts(append(to, byte(code)), e.Number)
		}
	}
	panic("pebblestore: an event of type " + string(e.Type))
}

// decodeEvents returns the events of an entry, the first of which has that sequence.
func decodeEvents(sequence int64, value []byte) (events []room.Event, err error) {
	r := reader{rest: value}
	at := moment(r.count())
	for len(r.rest) > 0 {
		code := r.byte()
		known := code &^ flagWasInside
		if known == 0 || int(known) >= len(eventTypes) {
			return nil, errForm
		}
		events = append(events, room.Event{
			Sequence: sequence + int64(len(events)), Type: eventTypes[known], Number: r.count(),
			Inside: code&flagWasInside != 0, Time: at,
		})
	}
	if !r.whole() || len(events) == 0 || len(events) > entryEvents {
		return nil, errForm
	}
	return events, nil
}
