package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

// memoryRoom is a room of a Memory.
type memoryRoom struct {
	record   room.Record
	visitors map[int64]*memoryVisitor // visitors that are not gone
	gone     map[int64]memoryGone
	keys     map[room.Key]int64
	line     []*memoryVisitor // waiting and called visitors, in order
	counts   [room.Gone]int64 // how many are in each state
	last     int64            // number
	expired  time.Time        // the last Expire; zero if there was none
	tender   string           // who called it
	turns    room.Turns
	status   room.Status // what only grows, and Tick

	events   []room.Event
	sequence int64
}

type memoryVisitor struct {
	number     int64
	key        room.Key
	print      room.Fingerprint
	lane       int
	draw       int64 // room.MaxDraw+1 without a lottery
	state      room.State
	skipped    bool
	asked      time.Time
	called     time.Time
	calledTick int64
	until      time.Time
	renewals   int64
}

type memoryGone struct {
	reason room.Reason
	when   time.Time
}

// at is the input of an operation: its terms, and the time.
type at struct {
	room.Terms
	now time.Time
}

// ms returns the time in milliseconds.
func (a at) ms() int64 { return a.now.UnixMilli() }

func newMemoryRoom() *memoryRoom {
	return &memoryRoom{
		visitors: map[int64]*memoryVisitor{}, gone: map[int64]memoryGone{}, keys: map[room.Key]int64{},
	}
}

// inOrder compares two visitors by their places in the queue.
func inOrder(a, b *memoryVisitor) int {
	return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.draw, b.draw), cmp.Compare(a.number, b.number))
}

// at returns the index of a visitor in the line.
func (r *memoryRoom) at(v *memoryVisitor) int {
	i, _ := slices.BinarySearchFunc(r.line, v, inOrder)
	return i
}

// ahead returns how many visitors are before one in its lane.
func (r *memoryRoom) ahead(v *memoryVisitor) int {
	return r.at(v) - r.at(&memoryVisitor{lane: v.lane, draw: -1})
}

func (r *memoryRoom) active() int64 { return r.counts[room.Called] + r.counts[room.Inside] }

// beat returns the time of the last Expire in milliseconds; 0 if there was none.
func (r *memoryRoom) beat() int64 {
	if r.expired.IsZero() {
		return 0
	}
	return r.expired.UnixMilli()
}

// tending returns what decides who tends the room.
func (r *memoryRoom) tending() room.Tending {
	last := room.Tending{Tender: r.tender, Expired: r.beat(), Last: room.Batch{Tick: r.status.Tick}}
	for _, v := range r.visitors {
		if ends := v.until.UnixMilli(); v.state != room.Waiting && (last.Ends == 0 || ends < last.Ends) {
			last.Ends = ends
		}
	}
	return last
}

// away reports whether the service is away.
func (r *memoryRoom) away(at at) bool { return at.ServiceAway(at.ms(), r.beat()) }

func (r *memoryRoom) note(at at, kind room.EventType, number int64, inside bool) {
	if at.Events == 0 {
		return
	}
	r.sequence++
	if int64(len(r.events)) >= at.Events {
		r.status.EventsDropped++
		return
	}
	r.events = append(r.events, room.Event{Sequence: r.sequence, Type: kind, Number: number, Inside: inside, Time: at.now})
}

// add puts a visitor into the queue.
func (r *memoryRoom) add(at at, arrival room.Arrival) *memoryVisitor {
	r.last++
	v := &memoryVisitor{number: r.last, key: arrival.Key, print: arrival.Fingerprint, lane: arrival.Lane, draw: room.MaxDraw + 1, state: room.Waiting, asked: at.now}
	if at.ByDraw(at.ms(), v.lane) {
		v.draw = arrival.Draw
	}
	r.visitors[v.number] = v
	if v.key != (room.Key{}) {
		r.keys[v.key] = v.number
	}
	r.line = slices.Insert(r.line, r.at(v), v)
	r.counts[room.Waiting]++
	r.status.Entered++
	r.note(at, room.VisitorEntered, v.number, false)
	return v
}

// move changes the state of a visitor who stays in the room.
func (r *memoryRoom) move(v *memoryVisitor, to room.State) {
	r.counts[v.state]--
	r.counts[to]++
	if to == room.Inside {
		i := r.at(v)
		r.line = slices.Delete(r.line, i, i+1)
	}
	v.state = to
}

// remove makes a visitor gone.
func (r *memoryRoom) remove(at at, v *memoryVisitor, reason room.Reason) {
	if v.state != room.Inside {
		i := r.at(v)
		r.line = slices.Delete(r.line, i, i+1)
	}
	r.counts[v.state]--
	delete(r.visitors, v.number)
	if v.key != (room.Key{}) {
		delete(r.keys, v.key)
	}
	r.gone[v.number] = memoryGone{reason, at.now}
	active := v.state != room.Waiting
	if v.state != room.Inside {
		r.status.Departed++
	}
	if v.state == room.Called {
		r.status.NoShows++
	}
	if active && reason == room.Expired {
		r.status.Expired++
	}
	r.note(at, reason.Event(), v.number, active)
}

// call calls as many from the front of the queue as the terms allow.
func (r *memoryRoom) call(at at, expiring bool) {
	calls, batch := at.Callable(at.ms(), r.active(), room.Batch{Tick: r.status.Tick}, expiring)
	r.status.Tick = batch.Tick
	away := r.away(at)
	for calls > 0 {
		lane, after, ok := at.Next(r.turns, func(lane int) bool { return r.first(lane) != nil })
		if !ok {
			return
		}
		v := r.first(lane)
		if !away && at.Silent(at.ms(), v.asked.UnixMilli()) {
			v.skipped = true
			continue
		}
		calls--
		r.turns = after
		r.move(v, room.Called)
		v.called, v.calledTick, v.until = at.now, at.Tick, at.now.Add(at.Claim)
		r.status.Admitted++
		r.note(at, room.VisitorAdmitted, v.number, false)
	}
}

// first returns the first visitor of a lane who may be called; nil if there is none.
func (r *memoryRoom) first(lane int) *memoryVisitor {
	for _, v := range r.line {
		if v.lane == lane && v.state == room.Waiting && !v.skipped {
			return v
		}
	}
	return nil
}

// ask applies the effect of a visitor's asking.
func (r *memoryRoom) ask(at at, v *memoryVisitor, claim bool) {
	v.asked, v.skipped = at.now, false
	claims := v.state == room.Called && claim
	if claims {
		r.move(v, room.Inside)
	}
	if claims || v.state == room.Inside && at.Sliding {
		v.until = time.UnixMilli(at.PassEnd(at.ms(), v.calledTick))
	}
}

// visitor returns the visitor of a bearer; nil if there is none, or another one has the number.
func (r *memoryRoom) visitor(b room.Bearer) *memoryVisitor {
	if v := r.visitors[b.Number]; v != nil && b.Is(v.print) {
		return v
	}
	return nil
}

// placeOf returns the place of a bearer.
func (r *memoryRoom) placeOf(b room.Bearer, now time.Time) room.Place {
	if r.visitors[b.Number] != nil && r.visitor(b) == nil {
		return room.Place{Number: b.Number, State: room.Gone, Reason: room.Forgotten, Now: now}
	}
	return r.place(b.Number, now)
}

// place returns the place of a visitor.
func (r *memoryRoom) place(number int64, now time.Time) room.Place {
	v := r.visitors[number]
	if v == nil {
		p := room.Place{Number: number, State: room.Gone, Reason: room.Forgotten, Now: now}
		if gone, known := r.gone[number]; known && now.Sub(gone.when) < room.KeepGone {
			p.Reason = gone.reason
		}
		return p
	}
	p := room.Place{Number: number, State: v.state, Drawn: v.draw <= room.MaxDraw, Now: now}
	if v.state == room.Waiting {
		p.Ahead, p.Lane = int64(r.ahead(v)), v.lane
	} else {
		p.Since, p.Until = v.called, v.until
	}
	return p
}
