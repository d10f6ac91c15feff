package pebblestore

import "container/heap"

// guest is a visitor who is called or inside. Times are milliseconds.
type guest struct {
	number   int64
	called   bool
	since    int64 // when it was called
	tick     int64 // the tick at which; 0: there are none
	until    int64 // when the claim window or the pass ends
	renewals int64
	// told is the end that is on disk: no earlier than any that was told.
	told int64
	// move is the last one whose batch changed what is told of the guest.
	move  uint64
	place int
}

// actives are all guests, ordered by when they end.
type actives struct {
	by   map[int64]*guest
	ends ends
}

func (a *actives) len() int64 { return int64(len(a.ends)) }

func (a *actives) add(g *guest) {
	if a.by == nil {
		a.by = map[int64]*guest{}
	}
	a.by[g.number] = g
	heap.Push(&a.ends, g)
}

func (a *actives) remove(g *guest) {
	delete(a.by, g.number)
	heap.Remove(&a.ends, g.place)
}

// setUntil changes when a guest ends.
func (a *actives) setUntil(g *guest, until int64) {
	if g.until != until {
		g.until = until
		heap.Fix(&a.ends, g.place)
	}
}

// first returns the guest that ends first; nil if there is none.
func (a *actives) first() *guest {
	if len(a.ends) == 0 {
		return nil
	}
	return a.ends[0]
}

// ends is a heap.
type ends []*guest

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
	g := x.(*guest)
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
