package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/room"
)

// FormatVersion is the version of what is stored, as docs/formats/room-redis.md describes it.
const FormatVersion = 1

// DefaultPrefix begins the names of all keys.
const DefaultPrefix = "sluice:"

// sweepTimeout bounds how long Open continues removals that were cut short.
const sweepTimeout = 10 * time.Second

// Options are the store's settings.
type Options struct {
	// URL is as rediskv.ParseURL describes it. Required.
	URL string
	// Prefix begins the names of all keys. Default DefaultPrefix. It must not contain
	// "{".
	Prefix string
	// Logger gets warnings about risky settings of the server. Default slog.Default.
	Logger *slog.Logger
	// ClockOffset is added to the server's clock, so that tests need not wait.
	ClockOffset func() time.Duration
	// CallTimeout bounds one exchange with the server. Default 2 s.
	CallTimeout time.Duration
}

// Store is a room.Store on Redis or Valkey.
type Store struct {
	db     *rediskv.DB
	prefix string
	logger *slog.Logger
	offset func() time.Duration
	// Visitors who enter or ask one by one do so together.
	entering *gather[room.Terms, room.Arrival, entered]
	asking   *gather[asking, room.Bearer, room.Place]
}

var _ room.Store = (*Store)(nil)

// Open connects to the server, and refuses one that is too old or may evict keys, and data of another FormatVersion. It
// returns room.ErrUnavailable if no server answers.
func Open(ctx context.Context, options Options) (*Store, error) {
	if strings.Contains(options.Prefix, "{") {
		return nil, fmt.Errorf("the prefix %q holds \"{\": Redis Cluster would take it for a hash tag", options.Prefix)
	}
	db, err := rediskv.Open(ctx, rediskv.Options{
		URL: options.URL, Logger: options.Logger, CallTimeout: options.CallTimeout,
		Errors: rediskv.Errors{Unavailable: room.ErrUnavailable, Full: room.ErrFull, Closed: room.ErrClosed},
	})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, prefix: options.Prefix, logger: options.Logger, offset: options.ClockOffset}
	s.prefix = cmp.Or(s.prefix, DefaultPrefix)
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if s.offset == nil {
		s.offset = func() time.Duration { return 0 }
	}
	if err := s.checkFormat(ctx); err != nil {
		s.db.Close()
		return nil, err
	}
	s.entering, s.asking = newGather(s.enterAll), newGather(s.askAll)
	s.finishRemovals(ctx)
	return s, nil
}

// checkFormat refuses data of another format. Versions before the number stored none, which is the first. The number is stored
// as soon as Redis takes it: one that is full or cannot write its files is opened too.
func (s *Store) checkFormat(ctx context.Context) error {
	key, own := s.indexKey("format"), strconv.Itoa(FormatVersion)
	found, err := ask(ctx, s, s.db.B().Get().Key(key).Build(), asText)
	switch {
	case err != nil:
		return err
	case found == "":
		if _, err := ask(ctx, s, s.db.B().Set().Key(key).Value(own).Nx().Build(), asText); err != nil {
			s.logger.Warn("the number of the format of rooms could not be stored yet", slog.Any("error", err))
		}
	case found != own:
		return fmt.Errorf("what is stored at %s is format %q: this version of sluice reads %s, use the one that wrote it", key, found, own)
	}
	return nil
}

// Close implements room.Store. Acknowledged operations are as durable as the server makes them.
func (s *Store) Close() error {
	s.db.Close() // which ends calls in progress
	s.entering.close()
	s.asking.close()
	return nil
}

// Examine returns what an operator should change at the servers; nil: nothing.
func (s *Store) Examine(ctx context.Context) error { return s.db.Examine(ctx) }

// Now implements room.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	parts, err := ask(ctx, s, s.db.B().Time().Build(), rueidis.RedisResult.AsIntSlice)
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) != 2 {
		return time.Time{}, fmt.Errorf("redis: TIME answers %d numbers", len(parts))
	}
	return time.UnixMilli(parts[0]*1000 + parts[1]/1000).Add(s.offset().Truncate(time.Millisecond)), nil
}

// ask makes an exchange of one command.
func ask[T any](ctx context.Context, s *Store, command rueidis.Completed, read func(rueidis.RedisResult) (T, error)) (T, error) {
	return rediskv.Call(ctx, s.db, func(ctx context.Context) (T, error) { return read(s.db.Do(ctx, command)) })
}

// clock returns the argument that shifts the server's clock.
func (s *Store) clock() string { return number(s.offset().Milliseconds()) }

func number(n int64) string { return strconv.FormatInt(n, 10) }

// millis returns a time for a script; 0 for the zero time.
func millis(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return number(t.UnixMilli())
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// timeOf returns a time of a script; the zero time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// finishRemovals continues the removals of rooms that were cut short. The rest only takes
// memory, and is left to the next RemoveRoom or Open.
func (s *Store) finishRemovals(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	if err := s.sweep(ctx); err != nil {
		s.logger.Warn("what removed rooms held could not be removed yet", slog.Any("error", err))
	}
}

// Keys implements room.Store.
func (s *Store) Keys(ctx context.Context) ([]room.SigningKey, error) {
	texts, err := ask(ctx, s, s.db.B().Lrange().Key(s.indexKey("keys")).Start(0).Stop(-1).Build(), rueidis.RedisResult.AsStrSlice)
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

// PutKeys implements room.Store.
func (s *Store) PutKeys(ctx context.Context, keys []room.SigningKey, seen string) error {
	args := []string{seen}
	for i := range keys {
		text, err := json.Marshal(&keys[i])
		if err != nil {
			return err
		}
		args = append(args, string(text))
	}
	conflict, err := rediskv.Exec(ctx, s.db, keysPutScript, []string{s.indexKey("keys")}, args, asInt)
	if err == nil && conflict == 1 {
		err = room.ErrConflict
	}
	return err
}

// Own implements room.Store.
func (s *Store) Own(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	has, err := rediskv.Exec(ctx, s.db, ownershipScript, []string{s.prefix + "lease:{" + name + "}"},
		[]string{s.clock(), holder, number(ttl.Milliseconds())}, asInt)
	return has == 1, err
}
