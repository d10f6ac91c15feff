package pebblestore

import "github.com/sluice-project/sluice/internal/ranks"

// bucket is 128 neighbours, none of whom waits and has asked before earliest. Asking does
// not touch the bucket, so earliest may be too early: an Expire that looks at the bucket
// finds the visitors who have really been silent.
type bucket struct {
	first    int64 // the number of its first visitor
	earliest int64
	place    int // in the line of buckets; 0: nobody on it waits
}

// silenceIndex is a heap of the buckets in which somebody waits, ordered by earliest.
type silenceIndex struct{ buckets ranks.Heap[*bucket] }

func newSilenceIndex() silenceIndex {
	return silenceIndex{ranks.New(func(s, o *bucket) bool { return s.earliest < o.earliest }, func(s *bucket) *int { return &s.place })}
}

// note adds a bucket, or moves it forward if somebody in it asked earlier.
func (a *silenceIndex) note(s *bucket, number, asked int64) {
	switch {
	case s.place == 0:
		s.first, s.earliest = number&^(bucketSize-1), asked
		a.buckets.Set(s)
	case asked < s.earliest:
		s.earliest = asked
		a.buckets.Set(s)
	}
}

// first returns the bucket that is due first; nil if nobody waits.
func (a *silenceIndex) first() *bucket { return a.buckets.First() }

// reschedule moves a bucket to its new earliest.
func (a *silenceIndex) reschedule(s *bucket, earliest int64) {
	s.earliest = earliest
	a.buckets.Set(s)
}

// drop removes a bucket, if it is there.
func (a *silenceIndex) drop(s *bucket) { a.buckets.Remove(s) }
