package pebblestore

import (
	"cmp"
	"slices"
)

// blockSize is the most visitors of a block.
const blockSize = 512

// lot is a visitor whose place is drawn: its draw, and its number with a bit
// that says whether it may be called.
type lot struct {
	draw int64
	bits int64
}

func newLot(draw, number int64) lot { return lot{draw, number<<1 | 1} }

func (l lot) number() int64 { return l.bits >> 1 }
func (l lot) may() bool     { return l.bits&1 != 0 }

func compareLots(a, b lot) int {
	if a.draw != b.draw {
		return cmp.Compare(a.draw, b.draw)
	}
	return cmp.Compare(a.number(), b.number())
}

// block is a run of neighbours in the line.
type block struct {
	lots []lot
	may  int
}

// drawn is a line in the order of draws, and of numbers where draws are the
// same: a sorted list in blocks, with their sums in Fenwick trees. Visitors enter
// and leave it, and are counted, in O(log n) but for a move within a block.
type drawn struct {
	blocks []*block // none is empty
	// bounds are those of the blocks: none in a block is behind its bound, and all in the
	// next one are.
	bounds []lot
	line   fenwick
	may    fenwick
}

// len returns how many are in line.
func (d *drawn) len() int64 { return d.line.total() }

// load fills an empty line; the lots need no order, and are sorted.
func (d *drawn) load(lots []lot) {
	slices.SortFunc(lots, compareLots)
	for part := range slices.Chunk(lots, blockSize*3/4) {
		b := &block{lots: slices.Clone(part)}
		for _, l := range b.lots {
			if l.may() {
				b.may++
			}
		}
		d.blocks = append(d.blocks, b)
	}
	d.count()
}

// add puts a visitor in, from where it may be called.
func (d *drawn) add(draw, number int64) {
	l := newLot(draw, number)
	i, at, found := d.find(l)
	if found {
		return
	}
	if len(d.blocks) == 0 {
		d.blocks = append(d.blocks, &block{lots: []lot{l}, may: 1})
		d.count()
		return
	}
	if i == len(d.blocks) { // behind all
		i--
		at = len(d.blocks[i].lots)
		d.bounds[i] = l
	}
	b := d.blocks[i]
	b.lots = slices.Insert(b.lots, at, l)
	b.may++
	if len(b.lots) > blockSize {
		d.split(i)
		return
	}
	d.line.add(i, 1)
	d.may.add(i, 1)
}

// split makes two blocks of one.
func (d *drawn) split(i int) {
	b, half := d.blocks[i], len(d.blocks[i].lots)/2
	next := &block{lots: slices.Clone(b.lots[half:])}
	b.lots = slices.Clone(b.lots[:half])
	for _, l := range next.lots {
		if l.may() {
			next.may++
		}
	}
	b.may -= next.may
	d.blocks = slices.Insert(d.blocks, i+1, next)
	d.count()
}

// remove takes a visitor out.
func (d *drawn) remove(draw, number int64) {
	i, at, found := d.find(newLot(draw, number))
	if !found {
		return
	}
	b := d.blocks[i]
	if b.lots[at].may() {
		b.may--
		d.may.add(i, -1)
	}
	b.lots = slices.Delete(b.lots, at, at+1)
	d.line.add(i, -1)
	if len(b.lots) == 0 {
		d.blocks = slices.Delete(d.blocks, i, i+1)
		d.count()
	}
}

// setMay says whether a visitor may be called.
func (d *drawn) setMay(draw, number int64, may bool) {
	i, at, found := d.find(newLot(draw, number))
	if !found || d.blocks[i].lots[at].may() == may {
		return
	}
	b := d.blocks[i]
	b.lots[at].bits ^= 1
	delta := 1
	if !may {
		delta = -1
	}
	b.may += delta
	d.may.add(i, int64(delta))
}

// rank returns how many are before a visitor.
func (d *drawn) rank(draw, number int64) int64 {
	i, at, _ := d.find(newLot(draw, number))
	return d.line.sum(i) + int64(at)
}

// first returns the first visitor who may be called.
func (d *drawn) first() (number int64, found bool) {
	i := d.may.first()
	if i == len(d.blocks) {
		return 0, false
	}
	for _, l := range d.blocks[i].lots {
		if l.may() {
			return l.number(), true
		}
	}
	return 0, false
}

// find returns where a lot is, or would be.
func (d *drawn) find(l lot) (i, at int, found bool) {
	i, _ = slices.BinarySearchFunc(d.bounds, l, compareLots)
	if i == len(d.blocks) {
		return i, 0, false
	}
	at, found = slices.BinarySearchFunc(d.blocks[i].lots, l, compareLots)
	return i, at, found
}

// count makes the sums anew, after a block was added or removed.
func (d *drawn) count() {
	d.line.clear()
	d.may.clear()
	d.bounds = d.bounds[:0]
	for _, b := range d.blocks {
		d.bounds = append(d.bounds, b.lots[len(b.lots)-1])
		d.line.push(int64(len(b.lots)))
		d.may.push(int64(b.may))
	}
}
