package pebblestore

import "cmp"

// position is a place in the line of a lane: by the draw if that is not negative, otherwise by the
// number.
type position struct {
	draw, number int64
	lane         uint8
}

// comparePositions returns a negative number if a is before b in their lane.
func comparePositions(a, b position) int {
	switch {
	case a.draw >= 0 && b.draw < 0:
		return -1
	case a.draw < 0 && b.draw >= 0:
		return 1
	}
	return cmp.Or(cmp.Compare(a.draw, b.draw), cmp.Compare(a.number, b.number))
}

// noDraw is the draw of a visitor who is ordered by number.
const noDraw = -1

// line holds the visitors who wait or are called, in order: those with a draw, then the
// others by number. A visitor in line counts for the ranks of those behind; whether it
// may be called is marked separately.
type line struct {
	drawn   drawn
	numbers index
}

// add adds a visitor, who may be called.
func (l *line) add(s position) {
	if s.draw >= 0 {
		l.drawn.add(s.draw, s.number)
	} else {
		l.numbers.add(s.number)
	}
}

func (l *line) remove(s position) {
	if s.draw >= 0 {
		l.drawn.remove(s.draw, s.number)
	} else {
		l.numbers.remove(s.number)
	}
}

func (l *line) setMay(s position, may bool) {
	if s.draw >= 0 {
		l.drawn.setMay(s.draw, s.number, may)
	} else {
		l.numbers.setMay(s.number, may)
	}
}

// rank returns how many are before a visitor.
func (l *line) rank(s position) int64 {
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
