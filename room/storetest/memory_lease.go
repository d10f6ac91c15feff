package storetest

import (
	"context"
	"time"
)

// memoryLease is who holds a name, and until when.
type memoryLease struct {
	holder string
	until  time.Time
}

// Lease is room.Store's.
func (m *Memory) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	return do(ctx, m, func(now time.Time) (bool, error) {
		lease, taken := m.leases[name]
		if taken && lease.holder != holder && lease.until.After(now) {
			return false, nil
		}
		m.leases[name] = memoryLease{holder, now.Add(ttl)}
		return true, nil
	})
}
