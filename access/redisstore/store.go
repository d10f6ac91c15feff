package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/rediskv"
)

var (
	// ErrUnavailable means that Redis does not answer, or not now. A write may have taken effect.
	ErrUnavailable = errors.New("access: redis does not answer now")
	errFull        = errors.New("access: redis has no memory left")
	errClosed      = errors.New("access: the store is closed")
)

// DefaultKey is the key of the document.
const DefaultKey = "sluice:access"

//go:embed lua
var sources embed.FS

var writeScript = rediskv.NewScript(sources, rediskv.EvenFull, "write")

// Options configure a Store.
type Options struct {
	// URL has the form that rediskv.ParseURL documents. Required.
	URL string
	// Key is the key of the document. Default DefaultKey.
	Key string
	// CallTimeout bounds one exchange. Default rediskv.DefaultCallTimeout.
	CallTimeout time.Duration
	// Logger gets warnings about risky settings of the server. Default slog.Default().
	Logger *slog.Logger
}

// Store is an access.Store in Redis, and an access.Exchange.
type Store struct {
	db       *rediskv.DB
	key      string
	instance string // no other has the same
}

var _ access.Store = (*Store)(nil)

// Open connects to the server. It fails with ErrUnavailable if none answers.
func Open(ctx context.Context, options Options) (*Store, error) {
	db, err := rediskv.Open(ctx, rediskv.Options{
		URL: options.URL, Logger: options.Logger, CallTimeout: options.CallTimeout,
		Errors: rediskv.Errors{Unavailable: ErrUnavailable, Full: errFull, Closed: errClosed},
	})
	if err != nil {
		return nil, err
	}
	return &Store{db, cmp.Or(options.Key, DefaultKey), rand.Text()}, nil
}

// Close ends all connections.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}

// Read implements access.Store.
func (s *Store) Read(ctx context.Context) (document []byte, version string, err error) {
	fields, err := rediskv.Call(ctx, s.db, func(ctx context.Context) (map[string]string, error) {
		return s.db.Do(ctx, s.db.B().Hgetall().Key(s.key).Build()).AsStrMap()
	})
	if err != nil || len(fields) == 0 {
		return nil, "", err
	}
	return []byte(fields["document"]), fields["version"], nil
}

// Write implements access.Store.
func (s *Store) Write(ctx context.Context, document []byte, version string) (newVersion string, err error) {
	newVersion = access.Version(document)
	written, err := rediskv.Exec(ctx, s.db, writeScript, []string{s.key}, []string{version, newVersion, rueidis.BinaryString(document)}, func(r rueidis.RedisResult) (bool, error) { return r.AsBool() })
	if err == nil && !written {
		err = access.ErrChanged
	}
	return newVersion, err
}
