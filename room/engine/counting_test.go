package engine_test

import (
	"context"
	"sync/atomic"

	"github.com/sluice-project/sluice/room"
)

// countingStore counts some calls of another store, and fails others.
type countingStore struct {
	room.Store
	keys, rooms, expired atomic.Int64
	clear                error
}

func (s *countingStore) Keys(ctx context.Context) ([]room.SigningKey, error) {
	s.keys.Add(1)
	return s.Store.Keys(ctx)
}

func (s *countingStore) Rooms(ctx context.Context) ([]room.Record, error) {
	s.rooms.Add(1)
	return s.Store.Rooms(ctx)
}

func (s *countingStore) Expire(ctx context.Context, terms room.Terms) (room.Due, error) {
	s.expired.Add(1)
	return s.Store.Expire(ctx, terms)
}

func (s *countingStore) Clear(ctx context.Context, terms room.Terms) error {
	if s.clear != nil {
		return s.clear
	}
	return s.Store.Clear(ctx, terms)
}
