package report

import (
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// StandingOf returns the counts of an action. The total of an action that is still being uploaded
// is the number of received jobs.
func StandingOf(name string, a *bulk.Action) term.Standing {
	s := term.Standing{
		Name: name, Total: max(a.Total, a.Received),
		Succeeded: a.Succeeded, Failed: a.Failed, Canceled: a.Canceled,
		InFlight: a.InFlight, NonReady: a.NonReadyTotal(),
		Throttled: a.Throttled, Retried: a.Retried,
	}
	switch {
	case a.Status == bulk.Failed, a.Status == bulk.Canceled, a.Status == bulk.Created:
		s.Note = string(a.Status)
	case a.Paused:
		s.Note = "PAUSED"
	}
	return s
}

// Bounds of a tracker's memory: samples times actions.
const (
	maxSampled   = 1 << 20
	mostSamples  = 512
	leastSamples = 16
)

// Tracker follows the actions of a run and remembers what their last state lacks: when each one's
// first job finished, and its progress over time.
type Tracker struct {
	start   time.Time
	first   []time.Time // zero: no job of the action has finished yet
	samples []sample
	limit   int
	every   int // observations per sample
	seen    int
	rate    term.RateMeter
}

// sample is the number of finished jobs of each action at a time.
type sample struct {
	at   time.Time
	done []int64
}

// NewTracker returns a tracker of actions that begin to run at start.
func NewTracker(start time.Time, actions int) *Tracker {
	limit := min(max(maxSampled/max(actions, 1), leastSamples), mostSamples)
	return &Tracker{start: start, first: make([]time.Time, actions), limit: limit, every: 1}
}

// Observe adds a state of the actions, always in the same order.
func (t *Tracker) Observe(at time.Time, actions []bulk.Action) *term.Moment {
	m := &term.Moment{Elapsed: at.Sub(t.start), Lines: make([]term.Standing, len(actions))}
	done := make([]int64, len(actions))
	for i := range actions {
		m.Lines[i] = StandingOf(actions[i].Tenant, &actions[i])
		done[i] = actions[i].Done()
		if done[i] > 0 && t.first[i].IsZero() {
			t.first[i] = at
		}
	}
	m.All = term.Sum("all", m.Lines)
	m.Lines = term.ByJobs(m.Lines)
	m.Rate = t.rate.Read(m.Elapsed, m.All.Done())
	t.sample(at, done)
	return m
}

// sample stores the observation. When there are too many samples, every second one is dropped, and
// from then on half as many are taken.
func (t *Tracker) sample(at time.Time, done []int64) {
	t.seen++
	if t.seen%t.every != 0 {
		return
	}
	t.samples = append(t.samples, sample{at, done})
	if len(t.samples) < t.limit {
		return
	}
	kept := t.samples[:0]
	for i := 1; i < len(t.samples); i += 2 {
		kept = append(kept, t.samples[i])
	}
	clear(t.samples[len(kept):])
	t.samples = kept
	t.every *= 2
}

// DoneAt estimates how many jobs of each action were done at a time, interpolated between two
// samples.
func (t *Tracker) DoneAt(at time.Time) []float64 {
	result := make([]float64, len(t.first))
	after, _ := slices.BinarySearchFunc(t.samples, at, func(s sample, at time.Time) int { return s.at.Compare(at) })
	before := sample{at: t.start, done: make([]int64, len(t.first))}
	if after > 0 {
		before = t.samples[after-1]
	}
	next := before
	if after < len(t.samples) {
		next = t.samples[after]
	}
	part := 0.0
	if span := next.at.Sub(before.at); span > 0 {
		part = float64(at.Sub(before.at)) / float64(span)
	}
	for i := range result {
		result[i] = float64(before.done[i]) + part*float64(next.done[i]-before.done[i])
	}
	return result
}

// Wait returns the time from the moment when an action entered the fair queue to its first finished
// job, as exact as the polls were frequent; -1 if none has finished.
func (t *Tracker) Wait(i int, a *bulk.Action) time.Duration {
	first := t.first[i]
	if first.IsZero() || a.EnteredAt.IsZero() {
		return -1
	}
	if !a.FinishedAt.IsZero() && a.FinishedAt.Before(first) {
		first = a.FinishedAt
	}
	return max(first.Sub(a.EnteredAt), 0)
}
