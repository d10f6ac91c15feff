package engine

import (
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

// outflow measures how fast a line advances, over about the last minute. It is for one
// goroutine at a time.
type outflow struct {
	// samples are at least a second apart, the oldest first; newest is the last sample,
	// which may be closer.
	samples []room.Status
	newest  room.Status
	// noLine is the time of the last sample without a line.
	noLine time.Time
}

const (
	outflowSpan    = time.Minute
	outflowStep    = time.Second
	outflowAtLeast = 5 * time.Second
)

// Flow counts what happened to a line within a time.
type Flow struct {
	// Over is how long the line was watched; 0: nothing is known yet.
	Over time.Duration
	// Entered counts the visitors who joined, Called counts calls, NoShows the called
	// visitors who did not claim, and Departed those who left the line otherwise. Inside is
	// the increase of the visitors inside.
	Entered, Called, NoShows, Departed, Inside int64
}

// PerSecond returns how many visitors are let in per second. It is not known until the
// line was watched for 5 s, and somebody was let in.
func (f Flow) PerSecond() (rate float64, ok bool) {
	if f.Over < outflowAtLeast || f.admitted() <= 0 {
		return 0, false
	}
	return float64(f.admitted()) / f.Over.Seconds(), true
}

// admitted returns how many were called and claimed, or still may.
func (f Flow) admitted() int64 { return f.Called - f.NoShows }

// freed returns how many slots became free, not counting those that were free before, as
// at the opening.
func (f Flow) freed() int64 { return max(f.admitted()-f.Inside, 0) }

// add records a room's status, and its capacity (0: unbounded). If totals fell or the clock
// went back, it is another room, and measuring starts again.
func (o *outflow) add(s room.Status, capacity int64) {
	last := o.newest
	if s.Now.Before(last.Now) || s.Admitted < last.Admitted || s.NoShows < last.NoShows || s.Departed < last.Departed {
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

// rate returns the flow of the last minute, or since the first sample.
func (o *outflow) rate() Flow { return o.since(time.Time{}) }

// line returns the flow since there is a line in front of a full room. Earlier times, when
// the room was quiet, paused or not open, do not show how fast slots become free.
func (o *outflow) line() Flow { return o.since(o.noLine) }

func (o *outflow) since(begin time.Time) Flow {
	from := slices.IndexFunc(o.samples, func(s room.Status) bool { return !s.Now.Before(begin) })
	if from < 0 {
		return Flow{}
	}
	first, last := o.samples[from], o.newest
	return Flow{
		Over:    last.Now.Sub(first.Now),
		Entered: last.Entered - first.Entered,
		Called:  last.Admitted - first.Admitted, NoShows: last.NoShows - first.NoShows,
		Departed: last.Departed - first.Departed, Inside: last.Inside - first.Inside,
	}
}
