package engine

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

// Engine serves rooms: it puts the store, the policies and the loops together. It
// is a [lifecycle.Service]. Its methods are safe for concurrent use, before Start too;
// deadlines act only while it runs. Several engines may share one store: they are one
// service then.
type Engine struct {
	store   room.Store
	config  room.Config
	log     *slog.Logger
	metrics *metrics
	spans   *spans
	// publisher is nil if nothing is published here. KeepsEvents reports whether events are
	// kept: for the own publisher, or for another instance's.
	publisher   Publisher
	keepsEvents atomic.Bool
	// tokens has nil if keys of visitors need no token.
	tokens atomic.Pointer[TokenKeys]

	// id is this instance's among those on the store. Begun is when the engine was made.
	id    string
	begun time.Time

	group   *lifecycle.Group
	clock   *storeClock
	catalog *catalog
	keys    *keyHolder
	joins   *joinLimiter
	solved  *solvedPuzzles
	// sweeper is the ownership of sweeping the rooms. Engines with a publisher have one, and those
	// without have another.
	sweeper *ownership
	// expirations bounds the concurrent calls of Expire.
	expirations chan struct{}
	// making is held by calls that create a room for an owner with a quota.
	making chan struct{}
	// started reports whether rooms in use get an expiration.
	started atomic.Bool
}

// Option changes an engine that is made by New.
type Option func(*Engine)

// WithLogger sets where the engine logs; the default is slog.Default.
func WithLogger(log *slog.Logger) Option { return func(e *Engine) { e.log = log } }

// WithPublisher makes the engine publish an event of everything that happens to a
// visitor. Events wait in the store's outbox until the publisher has taken them, over
// restarts too. The default is none. An engine without a publisher keeps events for the others on
// its store while one of them has a publisher: from at most 3 s after the first such engine has
// started, to a day after the last one was there.
func WithPublisher(p Publisher) Option { return func(e *Engine) { e.publisher = p } }

// maxExpirations is how many calls of Expire run at once.
const maxExpirations = 16

// New returns an engine that serves the rooms of a store, or an error if config is
// invalid.
func New(store room.Store, config room.Config, options ...Option) (*Engine, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		store: store, config: config, log: slog.Default(), id: rand.Text(), begun: time.Now(),
		group: lifecycle.NewGroup(context.Background()), clock: new(storeClock),
		keys: newKeyHolder(store), joins: newJoinLimiter(maxClients), solved: newSolvedPuzzles(maxSolved),
		making: make(chan struct{}, 1), expirations: make(chan struct{}, maxExpirations),
	}
	for _, option := range options {
		option(e)
	}
	sweeper := "sweeper"
	if e.publisher != nil {
		sweeper = "publishing sweeper" // only a sweep from here finds events of rooms that are used elsewhere
		e.keepsEvents.Store(true)
	}
	e.sweeper = newOwnership(store, sweeper, e.id)
	e.catalog = newCatalog(store, e.clock, e.id, e.log)
	e.metrics = newMetrics(e.catalog)
	return e, nil
}

// Name implements lifecycle.Service.
func (e *Engine) Name() string { return "room" }

// Start implements lifecycle.Service. It reads the rooms and the keys, and creates the
// first key.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.catalog.refresh(ctx); err != nil {
		return err
	}
	if _, err := e.keys.ring(ctx); err != nil {
		return err
	}
	if err := e.agreeOnEvents(ctx); err != nil {
		return err
	}
	e.started.Store(true)
	e.group.Go("rooms", e.refreshRooms)
	e.group.Go("keys", e.refreshKeys)
	e.group.Go("ownerships", e.holdOwnerships)
	e.group.Go("sweeper", e.sweep)
	if e.publisher != nil {
		e.group.Go("publisher", e.publish)
	}
	return nil
}

// Stop implements lifecycle.Service. Visitors keep their places; methods work after Stop
// as long as the store is open.
func (e *Engine) Stop(ctx context.Context) error { return e.group.Stop(ctx) }

// Failed implements lifecycle.Service.
func (e *Engine) Failed() <-chan struct{} { return e.group.Failed() }

// Err implements lifecycle.Service.
func (e *Engine) Err() error { return e.group.Err() }

// outbox returns how many events a room may keep.
func (e *Engine) outbox() int64 {
	if !e.keepsEvents.Load() {
		return 0
	}
	return e.config.Outbox
}
