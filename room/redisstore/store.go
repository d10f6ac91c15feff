package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/rediskv"
	"github.com/sluice-project/sluice/room"
)

// DefaultPrefix begins the names of all keys.
const DefaultPrefix = "sluice:"

// sweepTimeout is how long Open goes on with removals that did not end.
const sweepTimeout = 10 * time.Second

// Options say where Redis is, and how it is used.
type Options struct {
	// URL is as rediskv.ParseURL describes it. Required.
	URL string
	// Prefix begins the names of all keys. Default DefaultPrefix. It must not hold "{".
	Prefix string
	// Logger is told of what is risky about the server. Default slog.Default.
	Logger *slog.Logger
	// ClockOffset is added to the server's clock, so that tests need not wait for it.
	ClockOffset func() time.Duration
}

// Store is a room.Store on Redis or Valkey.
type Store struct {
	db     *rediskv.DB
	prefix string
	logger *slog.Logger
	offset func() time.Duration
}

var _ room.Store = (*Store)(nil)

// Open connects to the server, and refuses one that is too old or may evict keys. It
// fails with room.ErrUnavailable if no server answers.
func Open(ctx context.Context, options Options) (*Store, error) {
	if strings.Contains(options.Prefix, "{") {
		return nil, fmt.Errorf("the prefix %q holds \"{\": Redis Cluster would take it for a hash tag", options.Prefix)
	}
	db, err := rediskv.Open(ctx, rediskv.Options{
		URL: options.URL, Logger: options.Logger,
		Errors: rediskv.Errors{Unavailable: room.ErrUnavailable, Full: room.ErrFull, Closed: room.ErrClosed},
	})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, prefix: options.Prefix, logger: options.Logger, offset: options.ClockOffset}
	if s.prefix == "" {
		s.prefix = DefaultPrefix
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if s.offset == nil {
		s.offset = func() time.Duration { return 0 }
	}
	s.finishRemovals(ctx)
	return s, nil
}

// Close is room.Store's. What was answered is as durable as the server makes it.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}

// Now is room.Store's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	parts, err := call(ctx, s, func(ctx context.Context) ([]int64, error) {
		return s.db.Do(ctx, s.db.B().Time().Build()).AsIntSlice()
	})
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) != 2 {
		return time.Time{}, fmt.Errorf("redis: TIME answers %d numbers", len(parts))
	}
	return time.UnixMilli(parts[0]*1000 + parts[1]/1000).Add(s.offset().Truncate(time.Millisecond)), nil
}

// call makes one exchange with Redis.
func call[T any](ctx context.Context, s *Store, exchange func(ctx context.Context) (T, error)) (T, error) {
	return rediskv.Call(ctx, s.db, exchange)
}

// clock is the argument that moves the server's clock.
func (s *Store) clock() string { return number(s.offset().Milliseconds()) }

func number(n int64) string { return strconv.FormatInt(n, 10) }

// millis is a time as scripts have it; 0 for the zero time.
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

// timeOf is a time of a script; 0 is the zero time.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// finishRemovals goes on with rooms whose removal was cut short. What it does not come
// to takes memory only, and is gone on with by the next RemoveRoom or Open.
func (s *Store) finishRemovals(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	if err := s.sweep(ctx); err != nil {
		s.logger.Warn("what removed rooms held could not be removed yet", slog.Any("error", err))
	}
}
