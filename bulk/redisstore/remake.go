package redisstore

import (
	"context"

	"github.com/redis/rueidis"
)

// remake makes the store again where a server has lost all that it kept: an empty one, or
// an empty shard. Settings that are lost are not set again, but the config's; those that
// are there, the new shard is told. It does nothing while another remakes.
func (s *Store) remake(ctx context.Context) error {
	if !s.remaking.TryLock() {
		return nil
	}
	defer s.remaking.Unlock()
	s.logger.Error("redis has lost what it kept of bulk, or a part of it: that begins anew, empty")
	_, err := do(ctx, s, func(ctx context.Context) (struct{}, error) {
		var commands rueidis.Commands
		for _, d := range s.fixed(len(s.shards)) {
			commands = append(commands, s.db.B().Hsetnx().Key(s.hub+"config").Field(d[0]).Value(d[1]).Build())
		}
		for _, answer := range s.db.DoMulti(ctx, commands...) {
			if err := answer.Error(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	for _, base := range s.shards {
		if _, err := exec(ctx, s, setupScript, base, nil, asInt); err != nil {
			return err
		}
	}
	if err := s.KeepEvents(ctx, s.most.Load()); err != nil {
		return err
	}
	if err := s.loadSettings(ctx); err != nil {
		return err
	}
	return s.set(ctx, settingRate, max(0, s.config.RequestsPerSecond))
}
