package pebblestore

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/sluice-project/sluice/internal/pebblekv"
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
			return false, pebblekv.Corrupt(key, err.Error())
		}
		name := string(key[1:])
		rs := newRoomState(stored.id, room.Record{Name: name, Data: stored.data, Revision: stored.revision})
		s.rooms[name] = rs
		return true, s.loadHall(rs)
	})
}

func (s *Store) loadMeta() error {
	if err := pebblekv.Format(s.db, metaVersion, 1, FormatVersion); err != nil {
		return err
	}
	revision, err := pebblekv.Get(s.db, metaRevision)
	if err != nil {
		return err
	}
	if revision != nil {
		r := pebblekv.Reader{Rest: revision}
		if s.revision = uint64(r.Count()); !r.Whole() {
			return pebblekv.Corrupt(metaRevision, errForm.Error())
		}
	}
	keys, err := pebblekv.Get(s.db, metaKeys)
	if err != nil || keys == nil {
		return err
	}
	if err := json.Unmarshal(keys, &s.keys); err != nil {
		return pebblekv.Corrupt(metaKeys, "it is not a key ring") // an error of the decoder might quote it
	}
	return nil
}

// loadHall reads what belongs to a room.
func (s *Store) loadHall(rs *roomState) error {
	key := keyFor(rs.id, kindCounts, 0)
	value, err := pebblekv.Get(s.db, key)
	if err != nil {
		return err
	}
	if value != nil {
		if rs.counts, err = decodeCounts(value); err != nil {
			return pebblekv.Corrupt(key, err.Error())
		}
	}
	closed := map[int64]*page{}
	from, to := kindRange(rs.id, kindGone)
	err = pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		number, err := numberOf(key)
		if err != nil || number > 1<<(63-pageBits)-1 {
			return false, pebblekv.Corrupt(key, "it is of no page")
		}
		p := &page{number: number}
		if p.emptied, err = decodeGone(value, &p.slots); err != nil {
			return false, pebblekv.Corrupt(key, err.Error())
		}
		closed[number] = p
		rs.closed = append(rs.closed, p)
		return true, nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(rs.closed, func(a, b *page) int { return cmp.Compare(a.emptied, b.emptied) })
	if err := s.loadVisitors(rs, closed); err != nil {
		return err
	}
	if err := s.followClock(rs); err != nil {
		return err
	}
	return s.loadOutbox(rs)
}

// followClock moves the times of a room back by as much as the clock was set back since its
// counts were written: a clock that was wrong for a while makes no visit longer.
func (s *Store) followClock(rs *roomState) error {
	now := s.clock.now()
	ahead := rs.counts.clock - now
	if ahead <= 0 {
		return nil
	}
	batch := s.db.NewBatch()
	rs.counts.batch.Tick = min(rs.counts.batch.Tick, now)
	err := rs.writeCounts(batch, now)
	for _, g := range rs.actives.by {
		g.since, g.stored, g.tick = g.since-ahead, g.stored-ahead, max(g.tick-ahead, 0)
		rs.actives.setUntil(g, g.until-ahead)
		err = errors.Join(err, rs.write(batch, g.number))
	}
	return s.write(batch, err)
}

// loadVisitors reads the records of visitors, and puts the pages of those who are
// gone between them.
func (s *Store) loadVisitors(rs *roomState, closed map[int64]*page) error {
	numbers := slices.Sorted(maps.Keys(closed))
	place := func(before int64) { // the closed pages before one
		for len(numbers) > 0 && numbers[0] < before {
			rs.visitors.put(closed[numbers[0]])
			rs.counts.number = max(rs.counts.number, (numbers[0]+1)<<pageBits-1)
			numbers = numbers[1:]
		}
	}
	var entries []drawnVisitor
	from, to := kindRange(rs.id, kindVisitor)
	err := pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		number, err := numberOf(key)
		if err != nil {
			return false, err
		}
		v, err := decodeVisitor(value)
		if err != nil {
			return false, pebblekv.Corrupt(key, err.Error())
		}
		if closed[number>>pageBits] != nil {
			return false, pebblekv.Corrupt(key, "its page is closed")
		}
		place(number >> pageBits)
		if !rs.restore(number, &v, &entries) {
			return false, pebblekv.Corrupt(key, "two visitors have one key")
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	place(1 << (63 - pageBits))
	rs.lines[0].drawn.load(entries)
	return nil
}

// restore puts one visitor where its record says; who is drawn and in line is
// added to the entries. False: another visitor has its key.
func (rs *roomState) restore(number int64, v *visitor, entries *[]drawnVisitor) bool {
	rs.counts.number = max(rs.counts.number, number)
	p := rs.visitors.need(number)
	p.set(number, v.slot)
	if !v.slot.live() {
		return true
	}
	p.live++
	p.setPrint(number, v.print)
	p.setLane(number, v.lane)
	if v.key != (room.Key{}) {
		if rs.keys.find(v.key) != 0 {
			return false
		}
		p.setKey(number, v.key)
		rs.keys.add(number)
	}
	if v.draw >= 0 {
		p.setDraw(number, v.draw)
	}
	if v.slot != slotInside {
		at := position{v.draw, number, v.lane}
		if v.draw >= 0 {
			l := newLot(v.draw, number)
			if v.slot != slotWaiting {
				l.bits &^= 1
			}
			*entries = append(*entries, l)
		} else {
			rs.lineOf(at).add(at)
			rs.setMay(at, v.slot == slotWaiting)
		}
	}
	if v.slot.waiting() {
		rs.waiting++
		rs.silence.note(p.bucket(number), number, 0)
		return true
	}
	if v.slot == slotCalled {
		rs.called++
	}
	rs.actives.add(&activeVisitor{
		number: number, called: v.slot == slotCalled, since: v.since, tick: v.tick,
		until: v.until, stored: v.until, renewals: v.renewals,
	})
	return true
}

// loadOutbox counts the events that wait.
func (s *Store) loadOutbox(rs *roomState) error {
	from, to := kindRange(rs.id, kindEvents)
	err := pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		events, err := entryAt(key, value)
		if err != nil {
			return false, err
		}
		if rs.outbox.waiting == 0 {
			rs.outbox.first = events[0].Sequence
		}
		rs.outbox.waiting += int64(len(events))
		rs.counts.sequence = max(rs.counts.sequence, events[len(events)-1].Sequence)
		return true, nil
	})
	rs.eventsDurable.Store(rs.counts.sequence)
	return err
}
