package main

import (
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Bounds of what a tracker remembers: samples times actions.
const (
	maxSampled   = 1 << 20
	mostSamples  = 512
	leastSamples = 16
)

// tracker follows the actions of a run and remembers what their last state does
// not tell: when each one's first job finished, and how far each one was in
// between.
type tracker struct {
	start   time.Time
	first   []time.Time // zero: no job of the action has finished yet
	samples []sample
	limit   int
	every   int // observations per sample
	seen    int
	rate    rateMeter
}

// sample is how many jobs of each action were done at a time.
type sample struct {
	at   time.Time
	done []int64
}

// newTracker returns a tracker of so many actions that begin to run at start.
func newTracker(start time.Time, actions int) *tracker {
	limit := min(max(maxSampled/max(actions, 1), leastSamples), mostSamples)
	return &tracker{start: start, first: make([]time.Time, actions), limit: limit, every: 1}
}

// Observe takes what a look at the actions showed, always in the same order.
func (t *tracker) Observe(at time.Time, actions []bulk.Action) *moment {
	m := &moment{Elapsed: at.Sub(t.start), Lines: make([]standing, len(actions))}
	done := make([]int64, len(actions))
	for i := range actions {
		m.Lines[i] = standingOf(actions[i].Tenant, &actions[i])
		done[i] = actions[i].Done()
		if done[i] > 0 && t.first[i].IsZero() {
			t.first[i] = at
		}
	}
	m.All = sum("all", m.Lines)
	m.Lines = byJobs(m.Lines)
	m.Rate = t.rate.Read(m.Elapsed, m.All.Done())
	t.sample(at, done)
	return m
}

// sample keeps the observation. When there are too many, every second one is
// dropped, and from then on half as many are taken.
func (t *tracker) sample(at time.Time, done []int64) {
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

// DoneAt estimates how many jobs of each action were done at a time, between
// the two samples around it.
func (t *tracker) DoneAt(at time.Time) []float64 {
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

// Wait is the time from when an action entered the fair queue to its first
// finished job, as exact as the looks were frequent; -1 if none has finished.
func (t *tracker) Wait(i int, a *bulk.Action) time.Duration {
	first := t.first[i]
	if first.IsZero() || a.EnteredAt.IsZero() {
		return -1
	}
	if !a.FinishedAt.IsZero() && a.FinishedAt.Before(first) {
		first = a.FinishedAt
	}
	return max(first.Sub(a.EnteredAt), 0)
}
