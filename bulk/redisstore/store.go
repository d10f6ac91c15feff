package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/sluice-project/sluice/rediskv"
)

const (
	// DefaultPrefix begins the names of all keys.
	DefaultPrefix = "sluice:"
	// MaxShards is the most shards of a store.
	MaxShards = 256
	// ClusterShards is how many shards a store on Redis Cluster has, unless told.
	ClusterShards = 16
	// MaxJobs is the most jobs of one action.
	MaxJobs = 1 << 24
	// numberBase is by what a number is divided to give its shard: it must never change.
	numberBase = 1024
	// FormatVersion is the version of what is stored.
	FormatVersion = 1
)

// Options say where Redis is, and how it is used.
type Options struct {
	// URL is as rediskv.ParseURL describes it. Required.
	URL string
	// Prefix begins the names of all keys. Default DefaultPrefix. It must not hold "{".
	Prefix string
	// Shards is how many shards the store has; it is fixed when it is first opened.
	// 0 is what it has, or, when it is new, ClusterShards on Redis Cluster and else 1.
	Shards int
	// Instance names this instance: the jobs that a former one of that name had in
	// flight in its process are returned at once. Empty: they return when their leases
	// run out.
	Instance string
	// Bulk is the config of the engine.
	Bulk bulk.Config
	// Logger is told of what is risky about the server. Default slog.Default.
	Logger *slog.Logger
}

// Store is a bulk.Store on Redis or Valkey.
type Store struct {
	db     *rediskv.DB
	config bulk.Config
	logger *slog.Logger

	hub          string
	shards       []string
	windowMillis string
	holder       string // who publishes events: this instance
	id           string // names the store, for the ids of events
	owner        int64  // of the leases of this instance

	mirror   mirror
	settings settingsCache
	specs    specs
	ready    readyHints
	publish  publishing
	// dispatches counts the calls of Dispatch.
	dispatches atomic.Uint64
	moved      moved

	// importing lets the store be opened while an import has not ended, which began at
	// begun.
	importing bool
	begun     string
	most      atomic.Int64 // events that are kept
	remaking  sync.Mutex

	// now and exchange are replaced by tests: in virtual time, and so that what talks to
	// Redis is outside of it.
	now      func() (time.Time, bool)
	exchange func(func())
	outside  func(context.Context) context.Context
}

var _ bulk.Store = (*Store)(nil)

// Open connects to the server and makes the store there if it is new. It refuses a
// server that is too old or may evict keys, and another number of shards or length of
// window than the store has. It fails with bulk.ErrUnavailable if no server answers, and
// with an *UnfinishedImportError while what another store had is being taken over.
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
		URL: options.URL, Logger: options.Logger,
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
		windowMillis: number(options.Bulk.Window.Milliseconds()),
		holder:       options.Instance,
		now:          func() (time.Time, bool) { return time.Time{}, false },
		exchange:     func(f func()) { f() },
		outside:      func(ctx context.Context) context.Context { return ctx },
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if s.holder == "" {
		s.holder = rand.Text()
	}
	prefix := options.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
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
		if _, err := exec(ctx, s, setupScript, s.shards[i], nil, asInt); err != nil {
			return err
		}
	}
	s.mirror.shards = make([]shardMirror, shards)
	s.ready.of = make([]map[string]int64, shards)
	if err := s.adoptRate(ctx); err != nil {
		return err
	}
	if options.Instance == "" {
		return nil
	}
	return s.reclaim(ctx, options.Instance)
}

// adoptConfig checks what was fixed when the store was first opened, and fixes it if
// this is the first time.
func (s *Store) adoptConfig(ctx context.Context, shards int) (int, error) {
	fresh := shards
	if fresh == 0 {
		fresh = 1
		if s.db.Mode() == rueidis.ClientModeCluster {
			fresh = ClusterShards
		}
	}
	s.id = strings.ToLower(rand.Text()[:15])
	defaults := s.fixed(fresh)
	var found map[string]string
	_, err := do(ctx, s, func(ctx context.Context) (struct{}, error) {
		var commands rueidis.Commands
		for _, d := range defaults {
			commands = append(commands, s.db.B().Hsetnx().Key(s.hub+"config").Field(d[0]).Value(d[1]).Build())
		}
		commands = append(commands, s.db.B().Hgetall().Key(s.hub+"config").Build())
		answers := s.db.DoMulti(ctx, commands...)
		var err error
		for _, a := range answers {
			err = errors.Join(err, a.Error())
		}
		if err != nil {
			return struct{}{}, answers[0].Error()
		}
		found, err = answers[len(answers)-1].AsStrMap()
		return struct{}{}, err
	})
	if err != nil {
		return 0, err
	}
	s.id, s.begun = found["id"], found["import_begun"]
	if state := found["import_state"]; !s.importing && (state == importStaging || state == importEntering) {
		return 0, &UnfinishedImportError{From: found["import_from"], Begun: s.begun}
	}
	s.adoptMoved(found)
	has, err := strconv.Atoi(found["shards"])
	switch {
	case found["format"] != strconv.Itoa(FormatVersion):
		return 0, fmt.Errorf("what is stored at %s has format %q: this version of sluice reads %d", s.hub, found["format"], FormatVersion)
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

// fixed is what is fixed when a store is first opened.
func (s *Store) fixed(shards int) [][2]string {
	return [][2]string{
		{"format", strconv.Itoa(FormatVersion)}, {"shards", strconv.Itoa(shards)}, {"window_ms", s.windowMillis}, {"id", s.id},
	}
}

// reclaim returns what the instance of that name had in flight in its process.
func (s *Store) reclaim(ctx context.Context, instance string) error {
	next, err := do(ctx, s, func(ctx context.Context) (int64, error) {
		return s.db.Do(ctx, s.db.B().Hincrby().Key(s.hub+"instances").Field("").Increment(1).Build()).AsInt64()
	})
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

// Close implements bulk.Store. What was answered is as durable as the server makes it.
func (s *Store) Close() error {
	s.exchange(s.db.Close)
	return nil
}

// clock is what scripts take for the time; "" is the server's.
func (s *Store) clock() string {
	if now, set := s.now(); set {
		return number(now.UnixMilli())
	}
	return ""
}

// shardOf is where a tenant's actions are.
func (s *Store) shardOf(tenant string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(tenant)) // it cannot fail
	return int(hash.Sum32() % uint32(len(s.shards)))
}

// shardOfNumber is where the action of a number is; -1 if no shard has it.
func (s *Store) shardOfNumber(n uint64) int {
	if shard := int(n % numberBase); shard < len(s.shards) && n >= numberBase {
		return shard
	}
	return -1
}

// timeOf is a time of a script; 0 is the zero time.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// specs has the specs of actions, by number: they never change.
type specs struct {
	mu sync.Mutex
	of map[uint64]*bulk.Spec
}

// maxSpecs bounds the specs that are remembered.
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
