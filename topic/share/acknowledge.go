package share

import (
	"fmt"
	"time"
)

// Kind is what a member says of a record, by the protocol's numbers.
type Kind int8

// The kinds of acknowledgements.
const (
	// Gap: there is no record at the offset.
	Gap Kind = iota
	// Accept: the record is done.
	Accept
	// Release: the record is to be delivered again.
	Release
	// Reject: the record cannot be processed, and is not delivered again.
	Reject
	// Renew: the member goes on; the lock begins again.
	Renew
)

// Acknowledgement is what a member says of a sequence of records.
type Acknowledgement struct {
	First, Last int64
	// Kinds has one kind for all of them, or one for each.
	Kinds []Kind
}

// validate checks acknowledgements without the window.
func validate(all []Acknowledgement) error {
	next := int64(0)
	for _, a := range all {
		switch n := int64(len(a.Kinds)); {
		case a.First < next || a.Last < a.First:
			return fmt.Errorf("%w: %d to %d; want offsets in order", ErrInvalid, a.First, a.Last)
		case n != 1 && n != a.Last-a.First+1:
			return fmt.Errorf("%w: %d kinds for %d to %d; want one, or one for each", ErrInvalid, n, a.First, a.Last)
		}
		for _, kind := range a.Kinds {
			if kind < Gap || kind > Renew {
				return fmt.Errorf("%w: kind %d; want 0 to 4", ErrInvalid, kind)
			}
		}
		next = a.Last + 1
	}
	return nil
}

// Acknowledge settles, releases or renews records that a member has acquired: all of them, or
// none if there is an error: ErrInvalid; ErrState if one of them is not acquired by the member.
func (w *Window) Acknowledge(now time.Time, member string, all []Acknowledgement) error {
	if err := validate(all); err != nil {
		return err
	}
	w.Expire(now)
	for _, a := range all {
		if err := w.holds(member, a); err != nil {
			return err
		}
	}
	for _, a := range all {
		for i := 0; i < len(a.Kinds); {
			end := i + 1
			for end < len(a.Kinds) && a.Kinds[end] == a.Kinds[i] {
				end++
			}
			first, last := a.First+int64(i), a.First+int64(end)-1
			if len(a.Kinds) == 1 {
				last = a.Last
			}
			w.acknowledge(now, first, last, a.Kinds[i])
			i = end
		}
	}
	w.normalize()
	return nil
}

// holds returns an ErrState unless a member has acquired all of some records.
func (w *Window) holds(member string, a Acknowledgement) error {
	if a.First < w.start || a.Last >= w.End() {
		return fmt.Errorf("%w: %d to %d; those in flight are %d to %d", ErrState, a.First, a.Last, w.start, w.End()-1)
	}
	for i := w.find(a.First); i < len(w.runs) && w.runs[i].first <= a.Last; i++ {
		if r := &w.runs[i]; r.state != acquired || r.member != member {
			return fmt.Errorf("%w: %d to %d", ErrState, max(r.first, a.First), min(r.last, a.Last))
		}
	}
	return nil
}

func (w *Window) acknowledge(now time.Time, first, last int64, kind Kind) {
	w.each(first, last, func(r *run) {
		n := r.length()
		switch kind {
		case Gap:
			*r = run{first: r.first, last: r.last, state: absent}
			w.records -= n
		case Accept:
			*r = run{first: r.first, last: r.last, state: settled}
			w.counts.Accepted += n
		case Reject:
			w.fail(r, rejected)
			w.counts.Rejected += n
		case Release:
			w.counts.Released += w.release(now, r)
		case Renew:
			r.until = now.Add(w.limits.Lock)
		}
	})
}
