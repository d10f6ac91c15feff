package pebblestore

import (
	"context"
	"time"
)

// lease is who holds a name, and until when.
type lease struct {
	holder string
	until  time.Time
}

// Lease implements room.Store. Leases are in memory alone: whoever held one died
// with the process.
func (s *Store) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	now := moment(s.clock.now())
	s.leasesMu.Lock()
	defer s.leasesMu.Unlock()
	if held, taken := s.leases[name]; taken && held.holder != holder && held.until.After(now) {
		return false, nil
	}
	if ttl <= 0 {
		delete(s.leases, name)
		return true, nil
	}
	s.leases[name] = lease{holder, now.Add(ttl)}
	return true, nil
}
