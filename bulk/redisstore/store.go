package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/rediskv"
)

const (
	// DefaultPrefix is the default prefix of the names of all keys.
	DefaultPrefix = "sluice:"
	// MaxShards is the maximum of shards of a store.
	MaxShards = 256
	// ClusterShards is the default number of shards on Redis Cluster.
	ClusterShards = 16
	// MaxJobs is the maximum of jobs of one action.
	MaxJobs = 1 << 24
	// numberBase is the modulus that gives the shard of a number. It must never change.
	numberBase = 1024
	// FormatVersion is the version of the stored data.
	FormatVersion = 1
)

// Options are the options of Open.
type Options struct {
	// URL is as rediskv.ParseURL describes it. Required.
	URL string
	// Prefix is the prefix of the names of all keys. Default DefaultPrefix. It must not
	// contain "{".
	Prefix string
	// Shards is the number of shards, which is fixed when the store is first opened. 0 means
	// the store's number or, for a new store, ClusterShards on Redis Cluster and else 1.
	Shards int
	// Instance names this instance. Jobs that an earlier instance of the same name had in
	// flight in its process are returned at once. If it is empty, they return when their
	// leases expire.
	Instance string
	// Bulk is the config of the engine.
	Bulk bulk.Config
	// Logger receives warnings about risky settings of the server. Default: slog.Default.
	Logger *slog.Logger
	// CallTimeout bounds one exchange with the server. Default 2 s.
	CallTimeout time.Duration
}

// Store is a bulk.Store on Redis or Valkey.
type Store struct {
	db     *rediskv.DB
	config bulk.Config
	logger *slog.Logger

	hub          string
	shards       []string
	windowMillis string
	holder       string // the publisher of events: this instance
	secret       string // of the store, in base64
	id           string // identifies the store, in the ids of events
	owner        int64  // identifies this instance in its leases

	mirror   mirror
	settings settingsCache
	silences silences
	wholes   wholes
	specs    specs
	ready    readyHints
	publish  publishing
	late     atomic.Int64 // see delay
	// dispatches counts the calls of Dispatch.
	dispatches atomic.Uint64
	moved      moved

	// importing allows opening the store while the import that began at begun has not ended.
	importing bool
	begun     string
	most      atomic.Int64 // the maximum of kept events
	remaking  sync.Mutex

	// now and exchange are replaced by tests: for virtual time, and to run exchanges with
	// Redis outside of it.
	now      func() (time.Time, bool)
	exchange func(func())
	outside  func(context.Context) context.Context
}

var _ bulk.Store = (*Store)(nil)

// Open connects to the server and creates the store if it is new. It refuses a server that is
// too old or may evict keys, and a number of shards or a length of the window that differs
// from the store's. It fails with bulk.ErrUnavailable if no server answers, and with an
// *UnfinishedImportError while an import has not ended.
func Open(ctx context.Context, options Options) (*Store, error) {
	s, err := connect(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx, options); err != nil {
		s.db.Close()
		return nil, err
	}
	return s, nil
}

func connect(ctx context.Context, options Options) (*Store, error) {
	options.Bulk = options.Bulk.WithDefaults()
	if strings.Contains(options.Prefix, "{") {
		return nil, fmt.Errorf("the prefix %q holds \"{\": Redis Cluster would take it for a hash tag", options.Prefix)
	}
	if options.Shards < 0 || options.Shards > MaxShards {
		return nil, fmt.Errorf("%d shards: want 1 to %d, or 0 for what the store has", options.Shards, MaxShards)
	}
	if options.Bulk.Window%time.Millisecond != 0 {
		return nil, fmt.Errorf("a window of %v: want whole milliseconds", options.Bulk.Window)
	}
	db, err := rediskv.Open(ctx, rediskv.Options{
		URL: options.URL, Logger: options.Logger, CallTimeout: options.CallTimeout,
		Errors: rediskv.Errors{Unavailable: bulk.ErrUnavailable, Full: bulk.ErrFull, Closed: bulk.ErrClosed},
	})
	if err != nil {
		return nil, err
	}
	return newStore(db, options), nil
}

func newStore(db *rediskv.DB, options Options) *Store {
	s := &Store{
		db: db, config: options.Bulk, logger: options.Logger,
		silences:     newSilences(),
		windowMillis: number(options.Bulk.Window.Milliseconds()),
		holder:       options.Instance,
		now:          func() (time.Time, bool) { return time.Time{}, false },
		exchange:     func(f func()) { f() },
		outside:      func(ctx context.Context) context.Context { return ctx },
	}
	s.settings.values.shortest = options.Bulk.Window
	s.logger = cmp.Or(s.logger, slog.Default())
	if s.holder == "" {
		s.holder = rand.Text()
	}
	prefix := options.Prefix
	prefix = cmp.Or(prefix, DefaultPrefix)
	s.hub = prefix + "bulk:{hub}:"
	return s
}

func (s *Store) open(ctx context.Context, options Options) error {
	shards, err := s.adoptConfig(ctx, options.Shards)
	if err != nil {
		return err
	}
	for i := range shards {
		s.shards = append(s.shards, strings.Replace(s.hub, "{hub}", "{"+strconv.Itoa(i)+"}", 1))
		if err := s.setup(ctx, s.shards[i]); err != nil {
			return err
		}
	}
	s.mirror.shards = make([]shardMirror, shards)
	s.mirror.fair, s.mirror.held, s.mirror.priorities = bulk.NewFairQueue(), map[bulk.Holder]int64{}, map[string]int64{}
	s.ready.of = make([]map[string]int64, shards)
	if err := s.adoptRate(ctx); err != nil {
		return err
	}
	if options.Instance == "" {
		return nil
	}
	return s.reclaim(ctx, options.Instance)
}

// adoptConfig checks the fixed settings of the store, and sets them if the store is new.
func (s *Store) adoptConfig(ctx context.Context, shards int) (int, error) {
	fresh := shards
	if fresh == 0 {
		fresh = 1
		if s.db.Mode() == rueidis.ClientModeCluster {
			fresh = ClusterShards
		}
	}
	s.id = strings.ToLower(rand.Text()[:15])
	s.secret = newSecret()
	if err := s.fix(ctx, fresh); err != nil {
		return 0, err
	}
	found, err := ask(ctx, s, s.db.B().Hgetall().Key(s.hub+"config").Build(), asMap)
	if err != nil {
		return 0, err
	}
	s.id, s.begun, s.secret = found["id"], found["import_begun"], found["secret"]
	if state := found["import_state"]; !s.importing && (state == importStaging || state == importEntering) {
		return 0, &UnfinishedImportError{From: found["import_from"], Begun: s.begun}
	}
	s.adoptMoved(found)
	has, err := strconv.Atoi(found["shards"])
	switch {
	case found["format"] != strconv.Itoa(FormatVersion):
		return 0, fmt.Errorf("what is stored at %s has format %q: this version of sluice reads %d, use the one that wrote it", s.hub, found["format"], FormatVersion)
	case err != nil || has < 1 || has > MaxShards:
		return 0, fmt.Errorf("what is stored at %s has %q shards", s.hub, found["shards"])
	case shards != 0 && shards != has:
		return 0, fmt.Errorf("the store has %d shards, which is fixed when it is made: %d cannot be had; leave the setting out, or use another prefix", has, shards)
	case found["window_ms"] != s.windowMillis:
		return 0, fmt.Errorf("the store counts in windows of %s ms, not of %s: all instances must have one bulk.window; "+
			"to change it, stop them all and HDEL %sconfig window_ms", found["window_ms"], s.windowMillis, s.hub)
	}
	return has, nil
}

// fix stores the settings that are fixed when a store is first opened, unless it has them.
func (s *Store) fix(ctx context.Context, shards int) error {
	var commands rueidis.Commands
	for _, d := range [][2]string{
		{"format", strconv.Itoa(FormatVersion)}, {"shards", strconv.Itoa(shards)}, {"window_ms", s.windowMillis}, {"id", s.id}, {"secret", s.secret},
	} {
		commands = append(commands, s.db.B().Hsetnx().Key(s.hub+"config").Field(d[0]).Value(d[1]).Build())
	}
	return s.send(ctx, commands)
}

// newSecret returns a secret for a store, as it is kept.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	return base64.StdEncoding.EncodeToString(secret)
}

// Secret implements bulk.Store.
func (s *Store) Secret(ctx context.Context) ([]byte, error) {
	text, err := ask(ctx, s, s.db.B().Hget().Key(s.hub+"config").Field("secret").Build(), asText)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(text)
}

// reclaim returns the jobs that the instance of that name had in flight in its process.
func (s *Store) reclaim(ctx context.Context, instance string) error {
	next, err := ask(ctx, s, s.db.B().Hincrby().Key(s.hub+"instances").Field("").Increment(1).Build(), asInt)
	if err != nil {
		return err
	}
	s.owner, err = do(ctx, s, func(ctx context.Context) (int64, error) {
		answers := s.db.DoMulti(ctx,
			s.db.B().Hsetnx().Key(s.hub+"instances").Field(instance).Value(number(next%65_535+1)).Build(),
			s.db.B().Hget().Key(s.hub+"instances").Field(instance).Build())
		return answers[1].AsInt64()
	})
	if err != nil {
		return err
	}
	for shard := range s.shards {
		for cursor, first := "0", true; first || cursor != "0"; first = false {
			cursor, err = onShard(ctx, s, reclaimScript, shard, asText,
				number(s.owner), number(int64(s.config.MaxCrashes)), cursor)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Close implements bulk.Store. Acknowledged operations are as durable as the server makes
// them.
func (s *Store) Close() error {
	s.silences.mu.Lock()
	s.silences.end() // no question begins after this
	s.silences.mu.Unlock()
	s.exchange(s.db.Close)
	s.silences.asking.Wait()
	return nil
}

// clock returns the time for scripts; "" is the server's.
func (s *Store) clock() string {
	if now, set := s.now(); set {
		return number(now.UnixMilli())
	}
	return ""
}

// shardOf returns the shard of a tenant's actions.
func (s *Store) shardOf(tenant string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(tenant)) // it never fails
	return int(hash.Sum32() % uint32(len(s.shards)))
}

// shardOfNumber returns the shard of an action by its number; -1 if there is none.
func (s *Store) shardOfNumber(n uint64) int {
	if shard := int(n % numberBase); shard < len(s.shards) && n >= numberBase {
		return shard
	}
	return -1
}

// timeOf converts a time of a script; 0 is the zero time.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// specs caches the specs of actions, by number: they never change.
type specs struct {
	mu sync.Mutex
	of map[uint64]*bulk.Spec
}

// maxSpecs bounds the cached specs.
const maxSpecs = 20_000

func (c *specs) get(n uint64) *bulk.Spec {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[n]
}

func (c *specs) put(n uint64, spec *bulk.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxSpecs {
		c.of = map[uint64]*bulk.Spec{}
	}
	c.of[n] = spec
}
