package pebblestore

import (
	"cmp"
	"slices"
)

// blockSize is the most visitors of a block.
const blockSize = 512

// drawnVisitor is a visitor whose place is drawn: its draw, and its number with a bit for
// whether it may be called.
type drawnVisitor struct {
	draw int64
	bits int64
}

func newLot(draw, number int64) drawnVisitor { return drawnVisitor{draw, number<<1 | 1} }

func (l drawnVisitor) number() int64 { return l.bits >> 1 }
func (l drawnVisitor) may() bool     { return l.bits&1 != 0 }

func compareLots(a, b drawnVisitor) int {
	if a.draw != b.draw {
		return cmp.Compare(a.draw, b.draw)
	}
	return cmp.Compare(a.number(), b.number())
}

// block is a run of neighbours in the line.
type block struct {
	entries []drawnVisitor
	may     int
}

// drawn is a line in the order of draws, and of numbers where draws are equal: a sorted
// list in blocks, with their sums in Fenwick trees. Entering, leaving and ranking are
// O(log n) plus the work within a block.
type drawn struct {
	blocks []*block // none is empty
	// bounds separate the blocks: none in a block is behind its bound, and all in the
	// next one are.
	bounds []drawnVisitor
	line   fenwick
	may    fenwick
}

// len returns how many are in line.
func (d *drawn) len() int64 { return d.line.total() }

// load fills an empty line; the entries need no order, and are sorted.
func (d *drawn) load(entries []drawnVisitor) {
	slices.SortFunc(entries, compareLots)
	for part := range slices.Chunk(entries, blockSize*3/4) {
		b := &block{entries: slices.Clone(part)}
		for _, l := range b.entries {
			if l.may() {
				b.may++
			}
		}
		d.blocks = append(d.blocks, b)
	}
	d.count()
}

// add adds a visitor, who may be called.
func (d *drawn) add(draw, number int64) {
	l := newLot(draw, number)
	i, at, found := d.find(l)
	if found {
		return
	}
	if len(d.blocks) == 0 {
		d.blocks = append(d.blocks, &block{entries: []drawnVisitor{l}, may: 1})
		d.count()
		return
	}
	if i == len(d.blocks) { // behind all
		i--
		at = len(d.blocks[i].entries)
		d.bounds[i] = l
	}
	b := d.blocks[i]
	b.entries = slices.Insert(b.entries, at, l)
	b.may++
	if len(b.entries) > blockSize {
		d.split(i)
		return
	}
	d.line.add(i, 1)
	d.may.add(i, 1)
}

// split makes two blocks of one.
func (d *drawn) split(i int) {
	b, half := d.blocks[i], len(d.blocks[i].entries)/2
	next := &block{entries: slices.Clone(b.entries[half:])}
	b.entries = slices.Clone(b.entries[:half])
	for _, l := range next.entries {
		if l.may() {
			next.may++
		}
	}
	b.may -= next.may
	d.blocks = slices.Insert(d.blocks, i+1, next)
	d.count()
}

// remove removes a visitor.
func (d *drawn) remove(draw, number int64) {
	i, at, found := d.find(newLot(draw, number))
	if !found {
		return
	}
	b := d.blocks[i]
	if b.entries[at].may() {
		b.may--
		d.may.add(i, -1)
	}
	b.entries = slices.Delete(b.entries, at, at+1)
	d.line.add(i, -1)
	if len(b.entries) == 0 {
		d.blocks = slices.Delete(d.blocks, i, i+1)
		d.count()
	}
}

// setMay sets whether a visitor may be called.
func (d *drawn) setMay(draw, number int64, may bool) {
	i, at, found := d.find(newLot(draw, number))
	if !found || d.blocks[i].entries[at].may() == may {
		return
	}
	b := d.blocks[i]
	b.entries[at].bits ^= 1
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
	for _, l := range d.blocks[i].entries {
		if l.may() {
			return l.number(), true
		}
	}
	return 0, false
}

// find returns where a drawnVisitor is, or would be.
func (d *drawn) find(l drawnVisitor) (i, at int, found bool) {
	i, _ = slices.BinarySearchFunc(d.bounds, l, compareLots)
	if i == len(d.blocks) {
		return i, 0, false
	}
	at, found = slices.BinarySearchFunc(d.blocks[i].entries, l, compareLots)
	return i, at, found
}

// count recomputes the sums, after a block was added or removed.
func (d *drawn) count() {
	d.line.clear()
	d.may.clear()
	d.bounds = d.bounds[:0]
	for _, b := range d.blocks {
		d.bounds = append(d.bounds, b.entries[len(b.entries)-1])
		d.line.push(int64(len(b.entries)))
		d.may.push(int64(b.may))
	}
}
