package pebblestore

import "cmp"

// spot is where a visitor stands in a line: by its draw if that is not
// negative, and else by its number.
type spot struct{ draw, number int64 }

// compareSpots is negative if a is before b.
func compareSpots(a, b spot) int {
	switch {
	case a.draw >= 0 && b.draw < 0:
		return -1
	case a.draw < 0 && b.draw >= 0:
		return 1
	}
	return cmp.Or(cmp.Compare(a.draw, b.draw), cmp.Compare(a.number, b.number))
}

// noDraw is the draw of a visitor whose place is its number's.
const noDraw = -1

// line holds who waits and who is called, in order: those whose place was drawn, then
// the others by their number. Whoever is in line counts for the ranks of those
// behind; who may be called is marked apart from that.
type line struct {
	drawn   drawn
	numbers index
}

func (l *line) len() int64 { return l.drawn.len() + l.numbers.len() }

// add puts a visitor in, who may be called.
func (l *line) add(s spot) {
	if s.draw >= 0 {
		l.drawn.add(s.draw, s.number)
	} else {
		l.numbers.add(s.number)
	}
}

func (l *line) remove(s spot) {
	if s.draw >= 0 {
		l.drawn.remove(s.draw, s.number)
	} else {
		l.numbers.remove(s.number)
	}
}

func (l *line) setMay(s spot, may bool) {
	if s.draw >= 0 {
		l.drawn.setMay(s.draw, s.number, may)
	} else {
		l.numbers.setMay(s.number, may)
	}
}

// rank returns how many are before a visitor.
func (l *line) rank(s spot) int64 {
	if s.draw >= 0 {
		return l.drawn.rank(s.draw, s.number)
	}
	return l.drawn.len() + l.numbers.rank(s.number)
}

// first returns the number of the first visitor who may be called.
func (l *line) first() (number int64, found bool) {
	if number, found := l.drawn.first(); found {
		return number, true
	}
	return l.numbers.first()
}
