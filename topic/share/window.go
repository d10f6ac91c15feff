package share

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"
)

// Limits bound what members do with a window.
type Limits struct {
	// Lock is how long a record is acquired for.
	Lock time.Duration
	// Deliveries is how often a record is delivered at most.
	Deliveries int16
	// Records bounds the records from the start of a window to its end.
	Records int
	// Backoff is how long a record that was released waits until it is available again: twice as long
	// with each delivery, up to BackoffMax. 0: not at all. A BackoffMax below Backoff counts as Backoff.
	Backoff, BackoffMax time.Duration
	// DeadLetters reports whether records that are rejected, or whose deliveries are exhausted, are dead until
	// Bury. Otherwise they are settled at once.
	DeadLetters bool
}

// backoff returns how long a record waits after that many deliveries.
func (l *Limits) backoff(count int16) time.Duration {
	wait, most := l.Backoff, max(l.Backoff, l.BackoffMax)
	for ; count > 1 && wait < most; count-- {
		wait *= 2
	}
	return min(wait, most)
}

// Errors of acknowledgements.
var (
	// ErrState reports that a record is not acquired by the member, or not any more.
	ErrState = errors.New("record is not acquired by the member")
	// ErrInvalid reports a malformed acknowledgement.
	ErrInvalid = errors.New("invalid acknowledgement")
)

type state uint8

const (
	available state = iota
	waiting         // available from a time on
	acquired
	rejected  // dead
	exhausted // dead
	settled
	absent
)

func (s state) dead() bool { return s == rejected || s == exhausted }

// Window is what a share group knows of a partition. Its methods are not safe for concurrent use.
type Window struct {
	limits Limits
	start  int64
	// runs cover the offsets from start to the end, in order and without gaps. Neighbours differ.
	runs []run
	// records counts the offsets in runs that are not absent.
	records int
	counts  Counts
}

// run is a sequence of offsets with all the same state.
type run struct {
	first, last int64
	state       state
	// count is how often the records were acquired; 0 once they are settled or absent.
	count int16
	// member has acquired the records.
	member string
	// until is when the lock ends, or when waiting records are available.
	until time.Time
}

// Counts count records by what has become of them.
type Counts struct {
	// Delivered counts deliveries. Expired counts locks that have ended, Exhausted the records
	// that are not delivered any more because of their number of deliveries.
	Delivered, Accepted, Released, Rejected, Expired, Exhausted int
}

// Span is a batch of records in a partition, from its first offset to its last.
type Span struct{ First, Last int64 }

// Delivery is a sequence of records that a member has acquired.
type Delivery struct {
	First, Last int64
	// Count is how often they were delivered, with this time.
	Count int16
}

// New returns an empty window: the first record to deliver is that at start, or the next one.
func New(start int64, limits Limits) *Window { return &Window{limits: limits, start: start} }

// Start returns the offset before which all records are settled or absent.
func (w *Window) Start() int64 { return w.start }

// End returns the offset from which on no record was looked at.
func (w *Window) End() int64 {
	if n := len(w.runs); n > 0 {
		return w.runs[n-1].last + 1
	}
	return w.start
}

// TakeCounts returns what was counted since the last call.
func (w *Window) TakeCounts() Counts {
	counts := w.counts
	w.counts = Counts{}
	return counts
}

// SetLimits changes what members may do from now on. Records that are dead are settled if there are no dead
// letters any more.
func (w *Window) SetLimits(limits Limits) {
	w.limits = limits
	if !limits.DeadLetters {
		w.Bury(w.start, w.End()-1)
	}
}

// Wanted returns the first offset that a member may acquire; false if there is none: the records
// are acquired or wait, and the window is full.
func (w *Window) Wanted() (offset int64, wanted bool) {
	for i := range w.runs {
		if w.runs[i].state == available {
			return w.runs[i].first, true
		}
	}
	return w.End(), w.records < w.limits.Records
}

// Locked returns when the first lock ends; zero if no record is acquired.
func (w *Window) Locked() (until time.Time) {
	for i := range w.runs {
		if r := &w.runs[i]; r.state == acquired && (until.IsZero() || r.until.Before(until)) {
			until = r.until
		}
	}
	return until
}

// Next returns when a lock ends, or a waiting record is available, next; zero if nothing is acquired or waits.
func (w *Window) Next() (at time.Time) {
	for i := range w.runs {
		if r := &w.runs[i]; !r.until.IsZero() && (at.IsZero() || r.until.Before(at)) {
			at = r.until
		}
	}
	return at
}

// Fill adds what a read has found: all offsets from one that was wanted up to next, with records
// in these batches, in order, and only there. As many are added as the window may have. Batches that
// lie partly before the wanted offset count from there.
func (w *Window) Fill(from, next int64, batches []Span) {
	at := from
	for _, b := range append(slices.Clone(batches), Span{next, next}) {
		w.setAbsent(at, b.First-1)
		if at = max(at, b.First); b.First == next {
			break
		}
		if end := w.End(); b.Last >= end && at <= end {
			room := int64(w.limits.Records - w.records)
			last := min(b.Last, end+room-1)
			w.add(run{first: end, last: last, state: available})
			if last < b.Last {
				break // full
			}
		}
		at = b.Last + 1
	}
	w.normalize()
}

// setAbsent records that offsets have no record to deliver. Those that are acquired stay so: the
// member that has them says what they are.
func (w *Window) setAbsent(first, last int64) {
	if last < first {
		return
	}
	if end := w.End(); first < end {
		w.each(first, min(last, end-1), func(r *run) {
			if r.state <= waiting {
				w.records -= int(r.last - r.first + 1)
				*r = run{first: r.first, last: r.last, state: absent}
			}
		})
	}
	w.add(run{first: max(first, w.End()), last: last, state: absent})
}

// add adds a run at the end, unless it is empty.
func (w *Window) add(r run) {
	if r.last < r.first {
		return
	}
	if r.state != absent {
		w.records += int(r.last - r.first + 1)
	}
	w.runs = append(w.runs, r)
}

// Acquire gives a member records of these batches that are available, until the lock ends: at least
// one if there is one, and no more batches once there are most records. With strict, it gives no
// more than that, and splits a batch. A member that gets part of a batch otherwise gets
// the rest of it too, so that its data is not sent again for that.
func (w *Window) Acquire(now time.Time, member string, batches []Span, most int, strict bool) (deliveries []Delivery) {
	got, until := int64(0), now.Add(w.limits.Lock)
	for _, b := range batches {
		if got >= int64(most) {
			break
		}
		first, last := max(b.First, w.start), min(b.Last, w.End()-1)
		for at := first; at <= last && (!strict || got < int64(most)); {
			r := w.runs[w.find(at)]
			end := min(r.last, last)
			if r.state == available {
				if strict {
					end = min(end, at+int64(most)-got-1)
				}
				w.each(at, end, func(r *run) { r.state, r.count, r.member, r.until = acquired, r.count+1, member, until })
				deliveries = deliver(deliveries, Delivery{First: at, Last: end, Count: r.count + 1})
				got += end - at + 1
			}
			at = end + 1
		}
	}
	w.counts.Delivered += int(got)
	w.normalize()
	return deliveries
}

// deliver adds a delivery, which is one with the last if it continues that.
func deliver(all []Delivery, d Delivery) []Delivery {
	if n := len(all); n > 0 && all[n-1].Last+1 == d.First && all[n-1].Count == d.Count {
		all[n-1].Last = d.Last
		return all
	}
	return append(all, d)
}

// Release makes all records that a member has acquired available to others.
func (w *Window) Release(now time.Time, member string) (released bool) {
	for i := range w.runs {
		if r := &w.runs[i]; r.state == acquired && r.member == member {
			w.counts.Released += w.release(now, r)
			released = true
		}
	}
	w.normalize()
	return released
}

// Expire ends the locks and the waits whose time is over.
func (w *Window) Expire(now time.Time) {
	for i := range w.runs {
		r := &w.runs[i]
		if r.state == acquired && !r.until.After(now) {
			w.counts.Expired += w.release(r.until, r)
		}
		if r.state == waiting && !r.until.After(now) {
			r.state, r.until = available, time.Time{}
		}
	}
	w.normalize()
}

// release ends the acquisition of a run, and returns its number of records.
func (w *Window) release(now time.Time, r *run) int {
	r.state, r.member, r.until = available, "", time.Time{}
	switch wait := w.limits.backoff(r.count); {
	case r.count >= w.limits.Deliveries:
		w.counts.Exhausted += r.length()
		w.fail(r, exhausted)
	case wait > 0:
		r.state, r.until = waiting, now.Add(wait)
	}
	return r.length()
}

// fail makes a run dead, or settles it if there are no dead letters.
func (w *Window) fail(r *run, why state) {
	count := r.count
	if !w.limits.DeadLetters {
		why, count = settled, 0
	}
	*r = run{first: r.first, last: r.last, state: why, count: count}
}

func (r *run) length() int { return int(r.last - r.first + 1) }

// Clip moves the window into the offsets that a partition has: records before start are gone, and
// none is at end or after it.
func (w *Window) Clip(start, end int64) {
	if w.start > end || w.End() > end {
		*w = Window{limits: w.limits, start: max(min(w.start, end), start), counts: w.counts}
		return
	}
	if w.start >= start {
		return
	}
	w.split(start)
	for len(w.runs) > 0 && w.runs[0].first < start {
		w.dropFirst()
	}
	w.start = start
	w.normalize()
}

// Dead is a sequence of records that are not delivered any more and have no dead letters yet.
type Dead struct {
	First, Last int64
	// Count is how often they were delivered. Rejected reports whether a member has rejected them; otherwise
	// their deliveries are exhausted.
	Count    int16
	Rejected bool
}

// Dead returns the first records that are dead, at most most.
func (w *Window) Dead(most int) (all []Dead) {
	left := int64(most)
	for i := 0; i < len(w.runs) && left > 0; i++ {
		if r := &w.runs[i]; r.state.dead() {
			d := Dead{First: r.first, Last: min(r.last, r.first+left-1), Count: r.count, Rejected: r.state == rejected}
			all, left = append(all, d), left-(d.Last-d.First+1)
		}
	}
	return all
}

// Bury settles the dead records from first to last: they have their dead letters.
func (w *Window) Bury(first, last int64) {
	w.each(first, last, func(r *run) {
		if r.state.dead() {
			*r = run{first: r.first, last: r.last, state: settled}
		}
	})
	w.normalize()
}

// Check returns an error if the window does not keep what it promises; for tests.
func (w *Window) Check() error {
	next, records := w.start, 0
	for i, r := range w.runs {
		if r.first != next || r.last < r.first || (r.state == acquired) != (r.member != "") ||
			(r.state == acquired || r.state == waiting) == r.until.IsZero() || r.state.dead() && !w.limits.DeadLetters {
			return fmt.Errorf("run %d is %+v, after offset %d", i, r, next-1)
		}
		if r.state != absent {
			records += r.length()
		}
		next = r.last + 1
	}
	if records != w.records || records > w.limits.Records {
		return fmt.Errorf("%d records, counted as %d; want at most %d", records, w.records, w.limits.Records)
	}
	return nil
}

// find returns the index of the run that has an offset of the window.
func (w *Window) find(offset int64) int {
	return sort.Search(len(w.runs), func(i int) bool { return w.runs[i].last >= offset })
}

// split makes a run begin at an offset, if a run has it.
func (w *Window) split(offset int64) {
	i := w.find(offset)
	if i == len(w.runs) || w.runs[i].first >= offset {
		return
	}
	head := w.runs[i]
	head.last = offset - 1
	w.runs[i].first = offset
	w.runs = slices.Insert(w.runs, i, head)
}

// each calls change with the runs of some offsets of the window, which begin and end there.
func (w *Window) each(first, last int64, change func(r *run)) {
	if last < first {
		return
	}
	w.split(first)
	w.split(last + 1)
	for i := w.find(first); i < len(w.runs) && w.runs[i].first <= last; i++ {
		change(&w.runs[i])
	}
}

// normalize moves the start, and makes one run of neighbours that do not differ.
func (w *Window) normalize() {
	for len(w.runs) > 0 && w.runs[0].state >= settled {
		w.start = w.runs[0].last + 1
		w.dropFirst()
	}
	kept := 0
	for i := range w.runs {
		if kept > 0 && w.runs[kept-1].same(&w.runs[i]) {
			w.runs[kept-1].last = w.runs[i].last
			continue
		}
		w.runs[kept] = w.runs[i]
		kept++
	}
	clear(w.runs[kept:])
	w.runs = w.runs[:kept]
}

func (w *Window) dropFirst() {
	if w.runs[0].state != absent {
		w.records -= w.runs[0].length()
	}
	w.runs = slices.Delete(w.runs, 0, 1)
}

func (r *run) same(other *run) bool {
	return r.state == other.state && r.count == other.count && r.member == other.member && r.until.Equal(other.until)
}
