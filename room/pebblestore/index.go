package pebblestore

import "math/bits"

// A leaf of the index covers so many numbers.
const (
	leafBits = 12
	leafSize = 1 << leafBits
)

// leaf holds which of 4,096 neighbours are in line, and which of those may be called.
type leaf struct {
	line, may           [leafSize / 64]uint64
	inLine, mayBeCalled int
}

// index is a line in the order of numbers. Numbers enter it in ascending order.
// A visitor takes two bits; the sums of the leaves are in Fenwick trees, so a rank
// is O(log n).
type index struct {
	base   int64   // the number of the first leaf
	leaves []*leaf // nil: nobody
	line   fenwick
	may    fenwick
}

// len returns how many are in line.
func (x *index) len() int64 { return x.line.total() }

// add adds a number at the end of the line, which may be called.
func (x *index) add(number int64) {
	at := number >> leafBits
	if len(x.leaves) > 0 && at-x.base >= int64(len(x.leaves)) {
		x.trim()
	}
	if len(x.leaves) == 0 {
		x.base = at
	}
	for at-x.base >= int64(len(x.leaves)) {
		x.leaves = append(x.leaves, nil)
		x.line.push(0)
		x.may.push(0)
	}
	i := int(at - x.base)
	l := x.leaves[i]
	if l == nil {
		l = new(leaf)
		x.leaves[i] = l
	}
	word, bit := place(number)
	if l.line[word]&bit != 0 {
		return
	}
	l.line[word] |= bit
	l.inLine++
	x.line.add(i, 1)
	x.setMay(number, true)
}

// remove takes a number out of the line.
func (x *index) remove(number int64) {
	l, i := x.leafOf(number)
	word, bit := place(number)
	if l == nil || l.line[word]&bit == 0 {
		return
	}
	x.setMay(number, false)
	l.line[word] &^= bit
	l.inLine--
	x.line.add(i, -1)
	if l.inLine == 0 {
		x.leaves[i] = nil
	}
}

// setMay sets whether a number in line may be called.
func (x *index) setMay(number int64, may bool) {
	l, i := x.leafOf(number)
	word, bit := place(number)
	if l == nil || l.line[word]&bit == 0 || (l.may[word]&bit != 0) == may {
		return
	}
	l.may[word] ^= bit
	delta := 1
	if !may {
		delta = -1
	}
	l.mayBeCalled += delta
	x.may.add(i, int64(delta))
}

// rank returns how many are in line before a number.
func (x *index) rank(number int64) int64 {
	i := number>>leafBits - x.base
	if i < 0 || len(x.leaves) == 0 {
		return 0
	}
	if i >= int64(len(x.leaves)) {
		return x.len()
	}
	rank := x.line.sum(int(i))
	l := x.leaves[i]
	if l == nil {
		return rank
	}
	word, bit := place(number)
	for _, w := range l.line[:word] {
		rank += int64(bits.OnesCount64(w))
	}
	return rank + int64(bits.OnesCount64(l.line[word]&(bit-1)))
}

// first returns the first number that may be called.
func (x *index) first() (number int64, found bool) {
	i := x.may.first()
	if i == len(x.leaves) {
		return 0, false
	}
	for word, w := range &x.leaves[i].may {
		if w != 0 {
			return (x.base+int64(i))<<leafBits + int64(word*64+bits.TrailingZeros64(w)), true
		}
	}
	return 0, false
}

// trim forgets the leaves before the first visitor, once they are half of all.
// It is called when a leaf is added, so it costs O(1) for each.
func (x *index) trim() {
	gone := 0
	for gone < len(x.leaves) && x.leaves[gone] == nil {
		gone++
	}
	if gone*2 < len(x.leaves) {
		return
	}
	x.base += int64(gone)
	x.leaves = append([]*leaf(nil), x.leaves[gone:]...)
	x.line.clear()
	x.may.clear()
	for _, l := range x.leaves {
		if l == nil {
			l = &leaf{}
		}
		x.line.push(int64(l.inLine))
		x.may.push(int64(l.mayBeCalled))
	}
}

func (x *index) leafOf(number int64) (*leaf, int) {
	i := number>>leafBits - x.base
	if i < 0 || i >= int64(len(x.leaves)) {
		return nil, 0
	}
	return x.leaves[i], int(i)
}

// place returns the word and the bit of a number in its leaf.
func place(number int64) (word int, bit uint64) {
	slot := number & (leafSize - 1)
	return int(slot / 64), 1 << (slot % 64)
}

// fenwick is a Fenwick tree: a list of counts that changes one count, and sums the first
// i, in O(log n).
type fenwick struct{ tree []int64 }

// push appends a count.
func (f *fenwick) push(count int64) {
	i := len(f.tree) + 1
	for j := i - 1; j > i-(i&-i); j -= j & -j {
		count += f.tree[j-1]
	}
	f.tree = append(f.tree, count)
}

// add changes the i-th count, from 0, by delta.
func (f *fenwick) add(i int, delta int64) {
	for i++; i <= len(f.tree); i += i & -i {
		f.tree[i-1] += delta
	}
}

// sum returns the sum of the first i counts.
func (f *fenwick) sum(i int) int64 {
	var sum int64
	for ; i > 0; i -= i & -i {
		sum += f.tree[i-1]
	}
	return sum
}

// total returns the sum of all counts.
func (f *fenwick) total() int64 { return f.sum(len(f.tree)) }

// first returns the index of the first count that is not 0; the length if there is
// none. It needs that no count is negative.
func (f *fenwick) first() int {
	step := 1
	for step*2 <= len(f.tree) {
		step *= 2
	}
	at := 0
	for ; step > 0; step /= 2 {
		if at+step <= len(f.tree) && f.tree[at+step-1] == 0 {
			at += step
		}
	}
	return at
}

// clear forgets all counts.
func (f *fenwick) clear() { f.tree = f.tree[:0] }
