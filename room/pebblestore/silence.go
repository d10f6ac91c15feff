package pebblestore

import "container/heap"

// bucket is 128 neighbours, none of whom waits and has asked before earliest. Asking does
// not touch the bucket, so earliest may be too early: an Expire that looks at the bucket
// finds the visitors who have really been silent.
type bucket struct {
	first    int64 // the number of its first visitor
	earliest int64
	place    int // in the line of buckets, from 1; 0: nobody on it waits
}

// silenceIndex is a heap of the buckets in which somebody waits, ordered by earliest.
type silenceIndex struct{ buckets buckets }

// note adds a bucket, or moves it forward if somebody in it asked earlier.
func (a *silenceIndex) note(s *bucket, number, asked int64) {
	switch {
	case s.place == 0:
		s.first, s.earliest = number&^(bucketSize-1), asked
		heap.Push(&a.buckets, s)
	case asked < s.earliest:
		s.earliest = asked
		heap.Fix(&a.buckets, s.place-1)
	}
}

// first returns the bucket that is due first; nil if nobody waits.
func (a *silenceIndex) first() *bucket {
	if len(a.buckets) == 0 {
		return nil
	}
	return a.buckets[0]
}

// reschedule moves a bucket to its new earliest.
func (a *silenceIndex) reschedule(s *bucket, earliest int64) {
	s.earliest = earliest
	heap.Fix(&a.buckets, s.place-1)
}

// drop removes a bucket, if it is there.
func (a *silenceIndex) drop(s *bucket) {
	if s.place > 0 {
		heap.Remove(&a.buckets, s.place-1)
	}
}

// buckets is a heap.
type buckets []*bucket

func (h buckets) Len() int           { return len(h) }
func (h buckets) Less(i, j int) bool { return h[i].earliest < h[j].earliest }
func (h buckets) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push is for the heap.
func (h *buckets) Push(x any) {
	s := x.(*bucket)
	*h = append(*h, s)
	s.place = len(*h)
}

// Pop is for the heap.
func (h *buckets) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.place = 0
	return s
}
