package pebblestore

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// load checks the format and rebuilds memory from what is on disk.
func (s *Store) load() error {
	if err := s.loadMeta(); err != nil {
		return err
	}
	return pebblekv.Scan(s.db, []byte{keyRoom}, []byte{keyRoom + 1}, func(key, value []byte) (bool, error) {
		stored, err := decodeRoom(value)
		if err != nil {
			return false, corrupt(key, err.Error())
		}
		name := string(key[1:])
		h := newHall(stored.id, room.Record{Name: name, Data: stored.data, Revision: stored.revision})
		s.halls[name] = h
		return true, s.loadHall(h)
	})
}

func (s *Store) loadMeta() error {
	version, err := pebblekv.Get(s.db, metaVersion)
	if err != nil {
		return err
	}
	if version == nil {
		if err := s.refuseForeign(); err != nil {
			return err
		}
		return s.db.Set(metaVersion, binary.AppendUvarint(nil, FormatVersion), pebble.Sync)
	}
	if found, _ := binary.Uvarint(version); found != FormatVersion {
		return &VersionError{Found: found}
	}
	revision, err := pebblekv.Get(s.db, metaRevision)
	if err != nil {
		return err
	}
	if revision != nil {
		r := reader{rest: revision}
		if s.revision = uint64(r.count()); !r.whole() {
			return corrupt(metaRevision, errForm.Error())
		}
	}
	keys, err := pebblekv.Get(s.db, metaKeys)
	if err != nil || keys == nil {
		return err
	}
	if err := json.Unmarshal(keys, &s.keys); err != nil {
		return corrupt(metaKeys, "it is not a key ring") // an error of the decoder might quote it
	}
	return nil
}

// refuseForeign refuses a Pebble directory that something else has written.
func (s *Store) refuseForeign() error {
	return pebblekv.Scan(s.db, nil, nil, func(key, _ []byte) (bool, error) {
		return false, corrupt(key, "it was not written by this store")
	})
}

// loadHall reads what belongs to a room.
func (s *Store) loadHall(h *hall) error {
	key := keyFor(h.id, kindCounts, 0)
	value, err := pebblekv.Get(s.db, key)
	if err != nil {
		return err
	}
	if value != nil {
		if h.counts, err = decodeCounts(value); err != nil {
			return corrupt(key, err.Error())
		}
	}
	closed := map[int64]*page{}
	from, to := kindRange(h.id, kindGone)
	err = pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		number, err := numberOf(key)
		if err != nil || number > 1<<(63-pageBits)-1 {
			return false, corrupt(key, "it is of no page")
		}
		p := &page{number: number}
		if p.emptied, err = decodeGone(value, &p.slots); err != nil {
			return false, corrupt(key, err.Error())
		}
		closed[number] = p
		h.closed = append(h.closed, p)
		return true, nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(h.closed, func(a, b *page) int { return cmp.Compare(a.emptied, b.emptied) })
	if err := s.loadVisitors(h, closed); err != nil {
		return err
	}
	return s.loadOutbox(h)
}

// loadVisitors reads the records of visitors, and puts the pages of those who are
// gone between them.
func (s *Store) loadVisitors(h *hall, closed map[int64]*page) error {
	numbers := make([]int64, 0, len(closed))
	for number := range closed {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	place := func(before int64) { // the closed pages before one
		for len(numbers) > 0 && numbers[0] < before {
			h.visitors.put(closed[numbers[0]])
			h.counts.number = max(h.counts.number, (numbers[0]+1)<<pageBits-1)
			numbers = numbers[1:]
		}
	}
	var lots []lot
	from, to := kindRange(h.id, kindVisitor)
	err := pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		number, err := numberOf(key)
		if err != nil {
			return false, err
		}
		v, err := decodeVisitor(value)
		if err != nil {
			return false, corrupt(key, err.Error())
		}
		if closed[number>>pageBits] != nil {
			return false, corrupt(key, "its page is closed")
		}
		place(number >> pageBits)
		if !h.restore(number, &v, &lots) {
			return false, corrupt(key, "two visitors have one key")
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	place(1 << (63 - pageBits))
	h.line.drawn.load(lots)
	return nil
}

// restore puts one visitor where its record says; who is drawn and in line is
// added to the lots. False: another visitor has its key.
func (h *hall) restore(number int64, v *visitor, lots *[]lot) bool {
	h.counts.number = max(h.counts.number, number)
	p := h.visitors.need(number)
	p.set(number, v.slot)
	if !v.slot.live() {
		return true
	}
	p.live++
	if v.key != (room.Key{}) {
		if h.keys.find(v.key) != 0 {
			return false
		}
		p.setKey(number, v.key)
		h.keys.add(number)
	}
	if v.draw >= 0 {
		p.setDraw(number, v.draw)
	}
	if v.slot != slotInside {
		at := spot{v.draw, number}
		if v.draw >= 0 {
			l := newLot(v.draw, number)
			if v.slot != slotWaiting {
				l.bits &^= 1
			}
			*lots = append(*lots, l)
		} else {
			h.line.add(at)
			h.line.setMay(at, v.slot == slotWaiting)
		}
	}
	if v.slot.waiting() {
		h.waiting++
		h.attendance.note(p.sheet(number), number, 0)
		return true
	}
	if v.slot == slotCalled {
		h.called++
	}
	h.actives.add(&guest{
		number: number, called: v.slot == slotCalled, since: v.since, tick: v.tick,
		until: v.until, told: v.until, renewals: v.renewals,
	})
	return true
}

// loadOutbox counts the events that wait.
func (s *Store) loadOutbox(h *hall) error {
	from, to := kindRange(h.id, kindEvents)
	err := pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		events, err := entryAt(key, value)
		if err != nil {
			return false, err
		}
		if h.outbox.waiting == 0 {
			h.outbox.first = events[0].Sequence
		}
		h.outbox.waiting += int64(len(events))
		h.counts.sequence = max(h.counts.sequence, events[len(events)-1].Sequence)
		return true, nil
	})
	h.eventsDurable.Store(h.counts.sequence)
	return err
}
