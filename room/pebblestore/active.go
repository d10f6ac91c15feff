package pebblestore

import "container/heap"

// activeVisitor is a visitor who is called or inside. Times are milliseconds.
type activeVisitor struct {
	number   int64
	called   bool
	since    int64 // when it was called
	tick     int64 // the tick at which; 0: there are none
	until    int64 // when the claim window or the pass ends
	renewals int64
	// stored is the end that is on disk: no earlier than any that was answered.
	stored int64
	// serial is the last operation whose batch changed the visitor.
	serial uint64
	place  int
}

// actives are all active visitors, ordered by their ends.
type actives struct {
	by   map[int64]*activeVisitor
	ends ends
}

func (a *actives) len() int64 { return int64(len(a.ends)) }

func (a *actives) add(g *activeVisitor) {
	if a.by == nil {
		a.by = map[int64]*activeVisitor{}
	}
	a.by[g.number] = g
	heap.Push(&a.ends, g)
}

func (a *actives) remove(g *activeVisitor) {
	delete(a.by, g.number)
	heap.Remove(&a.ends, g.place)
}

// setUntil changes when an active visitor ends.
func (a *actives) setUntil(g *activeVisitor, until int64) {
	if g.until != until {
		g.until = until
		heap.Fix(&a.ends, g.place)
	}
}

// first returns the active visitor that ends first; nil if there is none.
func (a *actives) first() *activeVisitor {
	if len(a.ends) == 0 {
		return nil
	}
	return a.ends[0]
}

// ends is a heap.
type ends []*activeVisitor

func (h ends) Len() int { return len(h) }
func (h ends) Less(i, j int) bool {
	if h[i].until != h[j].until {
		return h[i].until < h[j].until
	}
	return h[i].number < h[j].number
}

func (h ends) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is for the heap.
func (h *ends) Push(x any) {
	g := x.(*activeVisitor)
	g.place = len(*h)
	*h = append(*h, g)
}

// Pop is for the heap.
func (h *ends) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return g
}
