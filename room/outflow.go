package room

import (
	"slices"
	"time"
)

// outflow measures how fast a line moves, over about the last minute. It is for one
// goroutine at a time.
type outflow struct {
	// samples are at least a second apart, the oldest first; newest is the last one
	// that was added, which may be closer.
	samples []Status
	newest  Status
	// noLine is the time of the last sample without a line.
	noLine time.Time
}

const (
	outflowSpan    = time.Minute
	outflowStep    = time.Second
	outflowAtLeast = 5 * time.Second
)

// Flow is what a line did within a time.
type Flow struct {
	// Over is how long it was watched; 0: it is not known yet.
	Over time.Duration
	// Called is how many were called, Missed how many of them did not come, and
	// Departed how many left the line otherwise. Inside is by how many more are inside.
	Called, Missed, Departed, Inside int64
}

// PerSecond returns how many are let in per second. It is not known until they were
// watched for 5 s, and somebody was let in.
func (f Flow) PerSecond() (rate float64, ok bool) {
	if f.Over < outflowAtLeast || f.admitted() <= 0 {
		return 0, false
	}
	return float64(f.admitted()) / f.Over.Seconds(), true
}

// admitted are those who were called and came, or may still.
func (f Flow) admitted() int64 { return f.Called - f.Missed }

// freed is how many places became free inside, for others to come: not those that
// were free before, as at the opening.
func (f Flow) freed() int64 { return max(f.admitted()-f.Inside, 0) }

// add notes a room's status, and how many may be inside it (0: any number). Totals that
// fell, and a clock that went back, are those of another room: it begins again.
func (o *outflow) add(s Status, capacity int64) {
	last := o.newest
	if s.Now.Before(last.Now) || s.Admitted < last.Admitted || s.Missed < last.Missed || s.Departed < last.Departed {
		o.samples, o.noLine = o.samples[:0], time.Time{}
	}
	if s.Waiting == 0 || s.Inside < capacity {
		o.noLine = s.Now
	}
	o.newest = s
	if n := len(o.samples); n == 0 || s.Now.Sub(o.samples[n-1].Now) >= outflowStep {
		o.samples = append(o.samples, s)
	}
	old := 0
	for s.Now.Sub(o.samples[old].Now) > outflowSpan {
		old++
	}
	o.samples = append(o.samples[:0], o.samples[old:]...)
}

// rate returns what happened in the last minute, or since the first sample.
func (o *outflow) rate() Flow { return o.since(time.Time{}) }

// line returns the same of the time since there is a line in front of a full room. How
// fast places become free cannot be told from the time before it: of a minute that was
// quiet, paused or before the opening.
func (o *outflow) line() Flow { return o.since(o.noLine) }

func (o *outflow) since(begin time.Time) Flow {
	from := slices.IndexFunc(o.samples, func(s Status) bool { return !s.Now.Before(begin) })
	if from < 0 {
		return Flow{}
	}
	first, last := o.samples[from], o.newest
	return Flow{
		Over:   last.Now.Sub(first.Now),
		Called: last.Admitted - first.Admitted, Missed: last.Missed - first.Missed,
		Departed: last.Departed - first.Departed, Inside: last.Inside - first.Inside,
	}
}
