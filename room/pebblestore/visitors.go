package pebblestore

import "github.com/sluice-project/sluice/room"

// slot is where a visitor is, in a byte.
type slot uint8

// The values of a slot. The numbers are part of the format.
const (
	slotNone slot = iota // a number that was not given yet
	slotWaiting
	slotSkipped // waiting, and not called until it asks
	slotCalled
	slotInside
	slotLeft
	slotExpired
	slotAbandoned
	slotRevoked
	slotEnded
	slotLast = slotEnded
)

func (s slot) live() bool    { return s >= slotWaiting && s <= slotInside }
func (s slot) waiting() bool { return s == slotWaiting || s == slotSkipped }
func (s slot) active() bool  { return s == slotCalled || s == slotInside }

// reasons are the reasons by the slots of visitors who are gone.
var reasons = map[slot]room.Reason{
	slotNone: room.Forgotten, slotLeft: room.Left, slotExpired: room.Expired,
	slotAbandoned: room.Abandoned, slotRevoked: room.Revoked, slotEnded: room.Ended,
}

// The sizes of a page and of a bucket of silence.go.
const (
	pageBits   = 12
	pageSize   = 1 << pageBits
	bucketBits = 7
	bucketSize = 1 << bucketBits
)

// page holds the visitors of 4,096 neighbouring numbers.
type page struct {
	number int64 // of the page: that of its visitors >> pageBits
	slots  [pageSize]slot
	live   int
	// people is nil once the page is closed: all its numbers were given, and all visitors
	// are gone, the last one at emptied.
	people  *people
	emptied int64
}

// people is the state of visitors who are not gone.
type people struct {
	asked   [pageSize]int64 // when each asked last
	prints  [pageSize]room.Fingerprint
	keys    *[pageSize]room.Key // nil: none has one
	draws   *[pageSize]int64    // the draw + 1; nil: none has one
	lanes   *[pageSize]uint8    // nil: all are in lane 0
	buckets [pageSize / bucketSize]bucket
}

// visitors are the pages of a room, beginning with the oldest one kept.
type visitors struct {
	base  int64
	pages []*page // nil: forgotten
}

// page returns the page of a visitor; nil if it is forgotten, or there is none yet.
func (v *visitors) page(number int64) *page {
	i := number>>pageBits - v.base
	if number < 0 || i < 0 || i >= int64(len(v.pages)) {
		return nil
	}
	return v.pages[i]
}

// slot returns where a visitor is.
func (v *visitors) slot(number int64) slot {
	p := v.page(number)
	if p == nil {
		return slotNone
	}
	return p.slots[number&(pageSize-1)]
}

// need returns the page of a visitor, and creates it if needed; the numbers of new pages
// ascend.
func (v *visitors) need(number int64) *page {
	if p := v.page(number); p != nil {
		return p
	}
	p := &page{number: number >> pageBits, people: new(people)}
	v.put(p)
	return p
}

// put appends a page.
func (v *visitors) put(p *page) {
	if len(v.pages) == 0 {
		v.base = p.number
	}
	for p.number-v.base >= int64(len(v.pages)) {
		v.pages = append(v.pages, nil)
	}
	v.pages[p.number-v.base] = p
}

// forget drops a page, and all forgotten ones at the beginning.
func (v *visitors) forget(p *page) {
	v.pages[p.number-v.base] = nil
	gone := 0
	for gone < len(v.pages) && v.pages[gone] == nil {
		gone++
	}
	// Once half can go, the rest is copied: O(1) for each page.
	if gone*2 >= len(v.pages) {
		v.base += int64(gone)
		v.pages = append([]*page(nil), v.pages[gone:]...)
	}
}

// full reports whether all numbers of the page were given.
func (p *page) full(last int64) bool { return last >= (p.number+1)<<pageBits-1 }

func (p *page) asked(number int64) int64  { return p.people.asked[number&(pageSize-1)] }
func (p *page) setAsked(number, at int64) { p.people.asked[number&(pageSize-1)] = at }
func (p *page) bucket(number int64) *bucket {
	return &p.people.buckets[number&(pageSize-1)>>bucketBits]
}
func (p *page) set(number int64, to slot) { p.slots[number&(pageSize-1)] = to }
func (p *page) setKey(number int64, k room.Key) {
	if p.people.keys == nil {
		p.people.keys = new([pageSize]room.Key)
	}
	p.people.keys[number&(pageSize-1)] = k
}

func (p *page) setDraw(number, draw int64) {
	if p.people.draws == nil {
		p.people.draws = new([pageSize]int64)
	}
	p.people.draws[number&(pageSize-1)] = draw + 1
}

// key returns a visitor's key; the zero key if it has none.
func (p *page) key(number int64) room.Key {
	if p.people == nil || p.people.keys == nil {
		return room.Key{}
	}
	return p.people.keys[number&(pageSize-1)]
}

func (p *page) print(number int64) room.Fingerprint { return p.people.prints[number&(pageSize-1)] }
func (p *page) setPrint(number int64, to room.Fingerprint) {
	p.people.prints[number&(pageSize-1)] = to
}

func (p *page) lane(number int64) uint8 {
	if p.people == nil || p.people.lanes == nil {
		return 0
	}
	return p.people.lanes[number&(pageSize-1)]
}

func (p *page) setLane(number int64, to uint8) {
	if p.people.lanes == nil && to != 0 {
		p.people.lanes = new([pageSize]uint8)
	}
	if p.people.lanes != nil {
		p.people.lanes[number&(pageSize-1)] = to
	}
}

// position returns where a visitor stands in line.
func (p *page) position(number int64) position {
	if p.people == nil || p.people.draws == nil {
		return position{noDraw, number, p.lane(number)}
	}
	return position{p.people.draws[number&(pageSize-1)] - 1, number, p.lane(number)}
}
