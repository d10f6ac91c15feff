package natsstore

import "sync"

// signals are those who want to know that something may have changed.
type signals struct {
	mu  sync.Mutex
	all map[*func()]bool
}

// add lets signal be called, until the returned function is.
func (s *signals) add(signal func()) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*func()]bool{}
	}
	s.all[&signal] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, &signal)
	}
}

// fire calls all.
func (s *signals) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for signal := range s.all {
		(*signal)()
	}
}
