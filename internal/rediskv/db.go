package rediskv

import (
	"cmp"
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

// DefaultCallTimeout is how long one exchange with Redis may take, connecting included.
const DefaultCallTimeout = 2 * time.Second

// Errors are the store's sentinel errors for failed calls.
type Errors struct {
	// Unavailable: no answer, or a transient error. The call may have taken effect.
	Unavailable error
	// Full: the server has no memory left to accept more.
	Full error
	// Closed: the DB was closed.
	Closed error
}

// Options configure a DB.
type Options struct {
	// URL has the form that ParseURL documents. Required.
	URL string
	// Errors are required.
	Errors Errors
	// Logger gets warnings about risky settings of the server. Default slog.Default.
	Logger *slog.Logger
	// CallTimeout bounds one exchange. Default DefaultCallTimeout.
	CallTimeout time.Duration
}

// DB is a connection to a server, or to all nodes of a cluster.
type DB struct {
	rueidis.Client
	options rueidis.ClientOption
	errors  Errors
	logger  *slog.Logger
	timeout time.Duration // of one exchange
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
	db := &DB{errors: options.Errors, logger: options.Logger, timeout: cmp.Or(options.CallTimeout, DefaultCallTimeout)}
	clientOptions.Dialer.Timeout, clientOptions.ConnWriteTimeout = db.timeout, db.timeout
	clientOptions.Sentinel.Dialer.Timeout = db.timeout
	clientOptions.RetryDelay = retryDelay
	clientOptions.AlwaysPipelining = true // or the first calls of a connection would not heed that their context is canceled
	db.options = clientOptions
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

// Close ends all connections. Calls in flight end with Errors.Closed.
func (db *DB) Close() {
	db.closing.Do(func() {
		db.closed.Store(true)
		db.Client.Close()
	})
}

// Call makes one exchange with Redis, in bounded time, and returns its failure as one
// of the errors of db.
func Call[T any](ctx context.Context, db *DB, exchange func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if db.closed.Load() {
		return none, db.errors.Closed
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	bounded, cancel := context.WithTimeout(ctx, db.timeout)
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

// retryable are the first words of transient errors: the server starts, fails over,
// migrates slots, runs a long script, or cannot write to its disk or its replicas.
var retryable = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF", "NOMASTERLINK",
}

// wrap turns an error of Redis into one of the errors of db. The end of the caller's
// context is returned unchanged.
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
	// No connection, a broken connection, or no answer in time.
	return fmt.Errorf("%w: %w", db.errors.Unavailable, err)
}
