package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is a queue as a sorted list.
type naive struct {
	positions []position
	may       map[int64]bool
}

func (n *naive) add(s position) {
	at, _ := slices.BinarySearchFunc(n.positions, s, comparePositions)
	n.positions = slices.Insert(n.positions, at, s)
	n.may[s.number] = true
}

func (n *naive) first() (int64, bool) {
	for _, s := range n.positions {
		if n.may[s.number] {
			return s.number, true
		}
	}
	return 0, false
}

// A line answers as a sorted list does, for any operations: numbers have gaps of whole leaves,
// draws are often the same.
func TestLineIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l line
		model := naive{may: map[int64]bool{}}
		next := rapid.Int64Range(1, 3*leafSize).Draw(t, "begin")
		draws := rapid.SampledFrom([]int64{3, 1 << 52}).Draw(t, "draws")
		some := func(t *rapid.T) position {
			if len(model.positions) == 0 {
				return position{noDraw, next, 0} // it does not exist, so nothing happens
			}
			return model.positions[rapid.IntRange(0, len(model.positions)-1).Draw(t, "who")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				s := position{noDraw, next, 0}
				if rapid.Bool().Draw(t, "drawn") {
					s.draw = rapid.Int64Range(0, draws).Draw(t, "draw")
				}
				next += rapid.SampledFrom([]int64{1, 1, 1, 63, 64, leafSize - 1, leafSize, 5 * leafSize}).Draw(t, "gap")
				l.add(s)
				model.add(s)
			},
			"leave": func(t *rapid.T) {
				s := some(t)
				l.remove(s)
				delete(model.may, s.number)
				model.positions = slices.DeleteFunc(model.positions, func(other position) bool { return other == s })
			},
			"skip or take back": func(t *rapid.T) {
				s, may := some(t), rapid.Bool().Draw(t, "may")
				l.setMay(s, may)
				if len(model.positions) > 0 {
					model.may[s.number] = may
				}
			},
			"": func(t *rapid.T) { compareLine(t, &l, &model) },
		})
	})
}

func compareLine(t *rapid.T, l *line, model *naive) {
	if got := l.drawn.len() + l.numbers.len(); got != int64(len(model.positions)) {
		t.Fatalf("%d in line, want %d", got, len(model.positions))
	}
	for rank, s := range model.positions {
		if got := l.rank(s); got != int64(rank) {
			t.Fatalf("%+v has %d before it, want %d", s, got, rank)
		}
	}
	number, found := l.first()
	if want, wanted := model.first(); number != want || found != wanted {
		t.Fatalf("first is %d, %v; want %d, %v", number, found, want, wanted)
	}
}

// Blocks of a drawn line split, become empty, and stay sorted with thousands of entries.
func TestDrawnLineOfThousands(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var grown, loaded drawn
	var entries []drawnVisitor
	for number := range int64(5_000) {
		l := newLot(random.Int64N(2_000), number+1)
		entries = append(entries, l)
		grown.add(l.draw, l.number())
	}
	loaded.load(slices.Clone(entries))
	slices.SortFunc(entries, compareLots)
	for _, d := range []*drawn{&grown, &loaded} {
		for rank, l := range entries {
			if got := d.rank(l.draw, l.number()); got != int64(rank) {
				t.Fatalf("%+v has %d before it, want %d", l, got, rank)
			}
		}
		for rank, l := range entries {
			if number, _ := d.first(); number != l.number() {
				t.Fatalf("after %d have gone, the first is %d, want %d", rank, number, l.number())
			}
			d.remove(l.draw, l.number())
		}
		if _, found := d.first(); found || d.len() != 0 || len(d.blocks) != 0 {
			t.Fatalf("when all have gone, %d are there, in %d blocks", d.len(), len(d.blocks))
		}
	}
}

// Leaves in front of the line are dropped, so a room does not grow with its age.
func TestIndexForgetsItsFront(t *testing.T) {
	var x index
	for number := int64(1); number < 1000*leafSize; number += 7 {
		x.add(number)
		if old := number - 7*5_000; old > 0 {
			x.remove(old)
		}
	}
	if len(x.leaves) > 64 || len(x.line.tree) != len(x.leaves) {
		t.Errorf("%d leaves and %d sums for a line of 5,000", len(x.leaves), len(x.line.tree))
	}
}

func BenchmarkLine(b *testing.B) {
	const waiting = 1_000_000
	for _, kind := range []string{"numbers", "drawn"} {
		var l line
		random := rand.New(rand.NewPCG(1, 2))
		positions := make([]position, waiting)
		for i := range positions {
			positions[i] = position{noDraw, int64(i + 1), 0}
			if kind == "drawn" {
				positions[i].draw = random.Int64N(1 << 52)
			}
			l.add(positions[i])
		}
		b.Run(fmt.Sprintf("rank/%s", kind), func(b *testing.B) {
			for i := range b.N {
				l.rank(positions[i*7919%waiting])
			}
		})
		b.Run(fmt.Sprintf("leave and come back/%s", kind), func(b *testing.B) {
			for i := range b.N {
				s := positions[i*7919%waiting]
				l.remove(s)
				l.add(s)
			}
		})
		b.Run(fmt.Sprintf("first/%s", kind), func(b *testing.B) {
			for range b.N {
				l.first()
			}
		})
	}
}
