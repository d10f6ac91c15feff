package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/sluice-project/sluice/bulk"
)

// moved maps the numbers that actions had in the imported store, which their leases contain,
// to numbers here. All numbers here are above those.
type moved struct {
	highest, offset uint64

	mu sync.Mutex
	to map[uint64]uint64
}

// adoptMoved reads the range of imported numbers from the config, if an import has ended.
func (s *Store) adoptMoved(config map[string]string) {
	if config["import_state"] != importDone {
		return
	}
	s.moved.highest, _ = strconv.ParseUint(config["import_known"], 10, 64) // the script wrote both as numbers
	s.moved.offset, _ = strconv.ParseUint(config["import_offset"], 10, 64)
}

// present returns the number here of an action that a lease names; 0 if there is none.
func (s *Store) present(ctx context.Context, n uint64) (uint64, error) {
	if n > s.moved.highest || n == 0 {
		return n, nil
	}
	s.moved.mu.Lock()
	to := s.moved.to[n]
	s.moved.mu.Unlock()
	if to > 0 {
		return to, nil
	}
	sequence := number(int64(n + s.moved.offset))
	texts, err := ask(ctx, s, s.db.B().Zrangebyscore().Key(s.hub+"order").Min(sequence).Max(sequence).Build(), asTexts)
	if err != nil || len(texts) == 0 {
		return 0, err
	}
	if to, err = strconv.ParseUint(texts[0], 10, 64); err != nil {
		return 0, err
	}
	s.moved.mu.Lock()
	defer s.moved.mu.Unlock()
	if s.moved.to == nil || len(s.moved.to) >= maxSpecs {
		s.moved.to = map[uint64]uint64{}
	}
	s.moved.to[n] = to
	return to, nil
}

// presentLeases replaces the imported numbers in leases by the numbers here.
func (s *Store) presentLeases(ctx context.Context, settlements []bulk.Settlement) ([]bulk.Settlement, error) {
	cloned := false
	for i := range settlements {
		n, err := s.present(ctx, settlements[i].Lease.Action)
		if err != nil {
			return nil, err
		}
		if n == settlements[i].Lease.Action {
			continue
		}
		if !cloned {
			settlements, cloned = slices.Clone(settlements), true
		}
		settlements[i].Lease.Action = n
	}
	return settlements, nil
}
