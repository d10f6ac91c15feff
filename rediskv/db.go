package rediskv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// CallTimeout is how long one exchange with Redis may take, connecting included.
const CallTimeout = 2 * time.Second

// Errors are the store's own words for what can happen to a call.
type Errors struct {
	// Unavailable: no answer, or one that ends when the server is well again. The call
	// may have happened.
	Unavailable error
	// Full: the server has no memory left to accept more.
	Full error
	// Closed: the DB was closed.
	Closed error
}

// Options say where Redis is, and how it is used.
type Options struct {
	// URL is as ParseURL describes it. Required.
	URL string
	// Errors are required.
	Errors Errors
	// Logger is told of what is risky about the server. Default slog.Default.
	Logger *slog.Logger
}

// DB is a connection to a server, or to all nodes of a cluster.
type DB struct {
	rueidis.Client
	errors  Errors
	logger  *slog.Logger
	closed  atomic.Bool
	closing sync.Once
}

// Open connects, and refuses a server that is too old or may evict keys. It fails with
// Errors.Unavailable if no server answers.
func Open(ctx context.Context, options Options) (*DB, error) {
	clientOptions, err := ParseURL(options.URL)
	if err != nil {
		return nil, err
	}
	db := &DB{errors: options.Errors, logger: options.Logger}
	if db.logger == nil {
		db.logger = slog.Default()
	}
	if db.Client, err = rueidis.NewClient(clientOptions); err != nil {
		return nil, db.wrap(ctx, err)
	}
	if err := db.check(ctx); err != nil {
		db.Client.Close()
		return nil, err
	}
	return db, nil
}

// Close ends all connections. Calls that are under way end with Errors.Closed.
func (db *DB) Close() {
	db.closing.Do(func() {
		db.closed.Store(true)
		db.Client.Close()
	})
}

// Call makes one exchange with Redis, in bounded time, and says what its failure is.
func Call[T any](ctx context.Context, db *DB, exchange func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if db.closed.Load() {
		return none, db.errors.Closed
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	result, err := exchange(bounded)
	if err != nil {
		if db.closed.Load() {
			return none, db.errors.Closed
		}
		return none, db.wrap(ctx, err)
	}
	return result, nil
}

// retryable are the first words of errors that end when the server is well again:
// while it starts, fails over, moves slots, runs a script of somebody's for long, or
// cannot write to its disk or its replicas.
var retryable = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF", "NOMASTERLINK",
}

// wrap says what an error of Redis means to the caller. The caller's own end is passed
// on as it is.
func (db *DB) wrap(ctx context.Context, err error) error {
	if answer, ok := rueidis.IsRedisErr(err); ok {
		text := answer.Error()
		word, _, _ := strings.Cut(text, " ")
		switch {
		case slices.Contains(retryable, word):
			return fmt.Errorf("%w: redis says %s", db.errors.Unavailable, text)
		case word == "OOM":
			return fmt.Errorf("%w: redis says %s", db.errors.Full, text)
		}
		return fmt.Errorf("redis says %s", text)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	// No answer: no connection, one that broke, or one on which nothing came in time.
	return fmt.Errorf("%w: %w", db.errors.Unavailable, err)
}
