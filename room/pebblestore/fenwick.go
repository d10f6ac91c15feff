package pebblestore

// fenwick is a list of counts in which one count is changed, and those of the first
// i are summed, in O(log n): a Fenwick tree.
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
