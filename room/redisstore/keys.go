package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Keys is room.Store's.
func (s *Store) Keys(ctx context.Context) ([]room.SigningKey, error) {
	texts, err := call(ctx, s, func(ctx context.Context) ([]string, error) {
		return s.db.Do(ctx, s.db.B().Lrange().Key(s.indexKey("keys")).Start(0).Stop(-1).Build()).AsStrSlice()
	})
	if err != nil {
		return nil, err
	}
	keys := make([]room.SigningKey, len(texts))
	for i, text := range texts {
		if json.Unmarshal([]byte(text), &keys[i]) != nil {
			return nil, errors.New("redis: a signing key is not JSON") // what Unmarshal says could tell of the secret
		}
	}
	return keys, nil
}

// PutKeys is room.Store's.
func (s *Store) PutKeys(ctx context.Context, keys []room.SigningKey, seen string) error {
	args := []string{seen}
	for i := range keys {
		text, err := json.Marshal(&keys[i])
		if err != nil {
			return err
		}
		args = append(args, string(text))
	}
	conflict, err := exec(ctx, s, keysPutScript, []string{s.indexKey("keys")}, args, asInt)
	if err == nil && conflict == 1 {
		err = room.ErrConflict
	}
	return err
}

// Lease gives a name to one holder at a time: true if nobody has it or the holder has
// it already, until ttl from now. With a ttl of 0 the holder gives it back.
func (s *Store) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	has, err := exec(ctx, s, leaseScript, []string{s.prefix + "lease:{" + name + "}"},
		[]string{s.clock(), holder, number(ttl.Milliseconds())}, asInt)
	return has == 1, err
}
