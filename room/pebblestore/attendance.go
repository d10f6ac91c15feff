package pebblestore

import "container/heap"

// sheet is the attendance of 128 neighbours: none who waits has asked before
// earliest. Asking does not touch the sheet, so earliest may be too early; whoever
// looks at the sheet when it seems due finds out who has really been silent.
type sheet struct {
	first    int64 // the number of its first visitor
	earliest int64
	place    int // in the line of sheets, from 1; 0: nobody on it waits
}

// attendance is the line of the sheets on which somebody waits, ordered by earliest.
type attendance struct{ sheets sheets }

// note sees to it that a sheet is in the line, and not later than somebody asked.
func (a *attendance) note(s *sheet, number, asked int64) {
	switch {
	case s.place == 0:
		s.first, s.earliest = number&^(sheetSize-1), asked
		heap.Push(&a.sheets, s)
	case asked < s.earliest:
		s.earliest = asked
		heap.Fix(&a.sheets, s.place-1)
	}
}

// first returns the sheet that is due first; nil if nobody waits.
func (a *attendance) first() *sheet {
	if len(a.sheets) == 0 {
		return nil
	}
	return a.sheets[0]
}

// move puts a sheet where its new earliest belongs.
func (a *attendance) move(s *sheet, earliest int64) {
	s.earliest = earliest
	heap.Fix(&a.sheets, s.place-1)
}

// drop takes a sheet out of the line, if it is there.
func (a *attendance) drop(s *sheet) {
	if s.place > 0 {
		heap.Remove(&a.sheets, s.place-1)
	}
}

// sheets is a heap.
type sheets []*sheet

func (h sheets) Len() int           { return len(h) }
func (h sheets) Less(i, j int) bool { return h[i].earliest < h[j].earliest }
func (h sheets) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push is for the heap.
func (h *sheets) Push(x any) {
	s := x.(*sheet)
	*h = append(*h, s)
	s.place = len(*h)
}

// Pop is for the heap.
func (h *sheets) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.place = 0
	return s
}
