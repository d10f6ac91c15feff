package natsstore

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// sweepInterval is how long superseded values wait for others to be removed
	// with them: so a key that changes often is swept once for many changes.
	sweepInterval = time.Second
	// markerAge is how long the marker of a deleted key stays. What it deletes
	// must be gone from the disk before it is, also if power fails.
	markerAge = time.Minute
)

// sweep removes what keys had before, and the markers of deleted ones. If a
// removal fails, opening the store takes it up again.
type sweep struct {
	meta   *meta
	ctx    context.Context
	cancel context.CancelFunc
	// sweepInterval and markerAge; shorter in tests.
	interval, age time.Duration

	// removal is held shared by lists, and alone while a marker is removed.
	removal sync.RWMutex

	running sync.WaitGroup // the timer, while it is armed or runs
	mu      sync.Mutex
	ended   bool
	timer   *time.Timer       // nil while nothing is to do
	old     map[string]uint64 // for each subject, the sequence before which all is removed
	markers []marker          // by age
}

// marker is one that waits for its removal.
type marker struct {
	subject  string
	sequence uint64
	due      time.Time
}

func (s *sweep) init(m *meta) {
	s.meta, s.interval, s.age, s.old = m, sweepInterval, markerAge, map[string]uint64{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// add notes that a message supersedes all before it in its subject.
func (s *sweep) add(subject string, sequence uint64, isMarker bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old[subject] = max(s.old[subject], sequence)
	if isMarker {
		s.markers = append(s.markers, marker{subject, sequence, time.Now().Add(s.age)})
	}
	s.arm(s.interval)
}

// arm makes a sweep run, with mu held.
func (s *sweep) arm(after time.Duration) {
	if s.ended || s.timer != nil {
		return
	}
	s.running.Add(1)
	s.timer = time.AfterFunc(after, s.run)
}

// end stops the sweep, and waits for one that runs.
func (s *sweep) end() {
	s.mu.Lock()
	s.ended = true
	if s.timer != nil && s.timer.Stop() {
		s.running.Done()
	}
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

func (s *sweep) run() {
	defer s.running.Done()
	old, due := s.take()
	for subject, before := range old {
		s.purge(subject, before)
	}
	for _, marker := range due {
		s.removal.Lock()
		s.purge(marker.subject, marker.sequence+1)
		s.removal.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	switch {
	case len(s.old) > 0:
		s.arm(s.interval)
	case len(s.markers) > 0:
		s.arm(max(s.interval, time.Until(s.markers[0].due)))
	}
}

// take takes what is to do now.
func (s *sweep) take() (old map[string]uint64, due []marker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.old = s.old, map[string]uint64{}
	n := 0
	for n < len(s.markers) && time.Until(s.markers[n].due) <= 0 {
		n++
	}
	due, s.markers = s.markers[:n], s.markers[n:]
	return old, due
}

// purge removes a subject's messages before a sequence.
func (s *sweep) purge(subject string, before uint64) {
	ctx, cancel := s.meta.store.bound(s.ctx)
	defer cancel()
	err := s.meta.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(before))
	if err != nil && s.ctx.Err() == nil {
		s.meta.store.options.Logger.Warn("topic store: superseded metadata stays until the next start", "error", err)
	}
}
