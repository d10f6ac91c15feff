package pebblestore

import (
	"encoding/binary"
	"errors"

	"github.com/sluice-project/sluice/room"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

var errForm = errors.New("it is not of its form")

// Flags of a visitor's record, beside its slot.
const (
	flagLane        = 0x10
	flagFingerprint = 0x20
	flagKey         = 0x40
	flagDraw        = 0x80
	slotMask        = 0x0f
)

// visitor is a visitor's record.
type visitor struct {
	slot slot
	key  room.Key // the zero key: none
	draw int64    // noDraw: none
	// print is the fingerprint of the ticket; 0: none.
	print room.Fingerprint
	lane  uint8
	// Of active visitors: see activeVisitor.
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
	if v.print != 0 {
		to[first] |= flagFingerprint
		to = binary.BigEndian.AppendUint16(to, uint16(v.print))
	}
	if v.lane != 0 {
		to[first] |= flagLane
		to = append(to, v.lane)
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
	r := pebblekv.Reader{Rest: value}
	first := r.Byte()
	v.slot, v.draw = slot(first&slotMask), noDraw
	if v.slot == slotNone || v.slot > slotLast || first&^(slotMask|flagLane|flagFingerprint|flagKey|flagDraw) != 0 {
		return v, errForm
	}
	if !v.slot.live() && first != byte(v.slot) {
		return v, errForm
	}
	if first&flagKey != 0 {
		copy(v.key[:], r.Take(uint64(len(v.key))))
		if v.key == (room.Key{}) {
			return v, errForm
		}
	}
	if first&flagDraw != 0 {
		v.draw = r.Count()
	}
	if first&flagFingerprint != 0 {
		if v.print = room.Fingerprint(r.Byte())<<8 | room.Fingerprint(r.Byte()); v.print == 0 {
			return v, errForm
		}
	}
	if first&flagLane != 0 {
		if v.lane = r.Byte(); v.lane == 0 || v.lane >= room.MaxLanes || v.draw >= 0 {
			return v, errForm
		}
	}
	if v.slot == slotCalled || v.slot == slotInside {
		v.since, v.until, v.tick = r.Count(), r.Count(), r.Count()
	}
	if v.slot == slotInside {
		v.renewals = r.Count()
	}
	if !r.Whole() || v.draw > room.MaxDraw {
		return v, errForm
	}
	return v, nil
}

// counts are the running counts of a room. Number and sequence on disk are only as fresh
// as the last write of counts: loading raises them to the last visitor's record and the
// last event.
type counts struct {
	number, sequence                    int64 // the last ones given
	admitted, missed, departed, expired int64
	dropped                             int64 // events
	batch                               room.Batch
	clock                               int64 // the time of the last write; 0: not known
}

func (c *counts) append(to []byte) []byte {
	return appendCounts(to, c.number, c.sequence, c.admitted, c.missed, c.departed, c.expired, c.dropped, c.batch.Tick, c.batch.Left, c.clock)
}

func decodeCounts(value []byte) (c counts, err error) {
	r := pebblekv.Reader{Rest: value}
	for _, field := range []*int64{&c.number, &c.sequence, &c.admitted, &c.missed, &c.departed, &c.expired, &c.dropped, &c.batch.Tick, &c.batch.Left} {
		*field = r.Count()
	}
	if len(r.Rest) > 0 { // earlier releases wrote no clock
		c.clock = r.Count()
	}
	if !r.Whole() {
		return c, errForm
	}
	return c, nil
}

// encodeGone encodes when a page emptied, and the reasons of its visitors, in runs.
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
	r := pebblekv.Reader{Rest: value}
	emptied = r.Count()
	for at := int64(0); at < pageSize; {
		s, n := slot(r.Byte()), r.Count()
		if r.Bad || s.live() || s > slotLast || n == 0 || n > pageSize-at {
			return 0, errForm
		}
		for i := range n {
			slots[at+i] = s
		}
		at += n
	}
	if !r.Whole() {
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
	in := pebblekv.Reader{Rest: value}
	r.id, r.revision = uint64(in.Count()), uint64(in.Count())
	if in.Bad || r.id == 0 || r.revision < r.id {
		return r, errForm
	}
	r.data = append([]byte{}, in.Rest...)
	return r, nil
}

// eventTypes are the types of events by their byte in the outbox.
var eventTypes = [...]room.EventType{
	1: room.VisitorEntered, 2: room.VisitorAdmitted, 3: room.VisitorNoShow, 4: room.VisitorLeft,
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

// decodeEvents returns the events of an entry whose first event has that sequence.
func decodeEvents(sequence int64, value []byte) (events []room.Event, err error) {
	r := pebblekv.Reader{Rest: value}
	at := moment(r.Count())
	for len(r.Rest) > 0 {
		code := r.Byte()
		known := code &^ flagWasInside
		if known == 0 || int(known) >= len(eventTypes) {
			return nil, errForm
		}
		events = append(events, room.Event{
			Sequence: sequence + int64(len(events)), Type: eventTypes[known], Number: r.Count(),
			Inside: code&flagWasInside != 0, Time: at,
		})
	}
	if !r.Whole() || len(events) == 0 || len(events) > entryEvents {
		return nil, errForm
	}
	return events, nil
}
