package natsstore

import "time"

// SweepAtOnce makes a store remove superseded metadata without waiting.
func SweepAtOnce(s *Store) {
	s.meta.sweep.mu.Lock()
	defer s.meta.sweep.mu.Unlock()
	s.meta.sweep.interval, s.meta.sweep.age = time.Microsecond, 0
}
