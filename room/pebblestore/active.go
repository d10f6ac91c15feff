package pebblestore

import (
	"cmp"

	"github.com/sluice-project/sluice/internal/ranks"
)

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
	ends ranks.Heap[*activeVisitor]
}

func newActives() actives {
	return actives{map[int64]*activeVisitor{}, ranks.New(func(g, o *activeVisitor) bool {
		return cmp.Or(cmp.Compare(g.until, o.until), cmp.Compare(g.number, o.number)) < 0
	}, func(g *activeVisitor) *int { return &g.place })}
}

func (a *actives) len() int64 { return int64(a.ends.Len()) }

func (a *actives) add(g *activeVisitor) {
	a.by[g.number] = g
	a.ends.Set(g)
}

func (a *actives) remove(g *activeVisitor) {
	delete(a.by, g.number)
	a.ends.Remove(g)
}

// setUntil changes when an active visitor ends.
func (a *actives) setUntil(g *activeVisitor, until int64) {
	if g.until != until {
		g.until = until
		a.ends.Set(g)
	}
}

// first returns the active visitor that ends first; nil if there is none.
func (a *actives) first() *activeVisitor { return a.ends.First() }
