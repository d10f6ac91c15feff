package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/bulk"
)

// wholes has the hub and the shards whose keys are known to be on one master of a cluster. While a
// slot moves, Redis refuses scripts (see rediskv.Absent). But a failover ends that, and may leave
// the keys on two masters: so after each failure, and at first, the keys are looked for.
type wholes struct {
	mu sync.Mutex
	of map[string]bool
}

// baseOf returns the beginning of a key's name: that of the hub or of a shard.
func baseOf(key string) string {
	tag := strings.Index(key, "{") // the prefix has none
	return key[:tag+strings.Index(key[tag:], "}")+len("}:")]
}

// checkWhole fails with bulk.ErrUnavailable if keys of a shard or of the hub may be missing where
// they are looked for.
func (s *Store) checkWhole(ctx context.Context, base string) error {
	s.wholes.mu.Lock()
	whole := s.wholes.of[base]
	s.wholes.mu.Unlock()
	if whole {
		return nil
	}
	if err := s.db.Whole(ctx, base, false); err != nil {
		return err
	}
	s.wholes.mu.Lock()
	defer s.wholes.mu.Unlock()
	if s.wholes.of == nil {
		s.wholes.of = map[string]bool{}
	}
	s.wholes.of[base] = true
	return nil
}

// failed records how a call ended: after one without an answer, nothing is known.
func (s *Store) failed(base string, err error) {
	if errors.Is(err, bulk.ErrUnavailable) {
		s.wholes.mu.Lock()
		defer s.wholes.mu.Unlock()
		delete(s.wholes.of, base)
	}
}
