package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// Engine runs actions: it puts the store, the policies and the loops together.
// It is a [lifecycle.Service]. Its methods may be called before Start and while
// it runs; what they store is run once it has started.
type Engine struct {
	store   Store
	config  Config
	log     *slog.Logger
	custom  map[string]Aggregator
	metrics *metrics
	// publisher is nil if nothing is published.
	publisher Publisher

	group *lifecycle.Group
	pools map[string]*pool
	// Each loop sleeps until its signal, or its interval, wakes it.
	fetch, dispatch, watch, aggregate, outbox signal
	admitted                                  broadcast
	// jobs is the context of all handlers; endJobs ends it when the grace of a
	// shutdown is over.
	jobs    context.Context
	endJobs context.CancelFunc

	catalog  catalog
	fairness fairnessWatch
	pace     pace
}

// Option changes an engine that is made by New.
type Option func(*Engine)

// WithLogger sets where the engine logs; the default is slog.Default.
func WithLogger(log *slog.Logger) Option { return func(e *Engine) { e.log = log } }

// WithAggregator adds a MapReduce of the caller's, to be named in
// Spec.Aggregate.
func WithAggregator(name string, aggregator Aggregator) Option {
	return func(e *Engine) { e.custom[name] = aggregator }
}

// New returns an engine that runs the jobs in a store with the handlers of a
// mux. Config is the one the store was opened with; it is checked here.
func New(store Store, mux *Mux, config Config, options ...Option) (*Engine, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		store: store, config: config, log: slog.Default(), custom: map[string]Aggregator{},
		group: lifecycle.NewGroup(context.Background()), pools: map[string]*pool{},
		fetch: newSignal(), dispatch: newSignal(), watch: newSignal(), aggregate: newSignal(), outbox: newSignal(),
		admitted: newBroadcast(), metrics: newMetrics(),
		fairness: newFairnessWatch(config.Window),
	}
	e.jobs, e.endJobs = context.WithCancel(context.Background())
	for _, option := range options {
		option(e)
	}
	most := int64(0)
	if e.publisher != nil {
		most = MaxOutbox
	}
	if err := store.KeepEvents(context.Background(), most); err != nil {
		return nil, fmt.Errorf("keep events: %w", err)
	}
	e.catalog = catalog{engine: e, known: map[uint64]*known{}}
	for _, name := range mux.Types() {
		e.pools[name] = newPool(e, name, mux.handler(name))
	}
	return e, nil
}

// Name implements lifecycle.Service.
func (e *Engine) Name() string { return "bulk" }

// Start implements lifecycle.Service.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.applyTypes(ctx); err != nil {
		return err
	}
	e.group.Go("fetcher", e.fetcher)
	e.group.Go("dispatcher", e.dispatcher)
	e.group.Go("watcher", e.watcher)
	e.group.Go("aggregator", e.aggregator)
	if e.publisher != nil {
		e.group.Go("publisher", e.publish)
	}
	for _, p := range e.pools {
		p.start(e.group)
	}
	return nil
}

// Stop implements lifecycle.Service: it leases nothing more, waits for the jobs
// in flight, and hands back those that are not done when ctx or the configured
// grace ends. Handlers whose context has ended get a moment more; one that does
// not return even then is left behind, and named in the error.
func (e *Engine) Stop(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, max(0, e.config.ShutdownGrace))
	defer cancel()
	var wait sync.WaitGroup
	for _, p := range e.pools {
		wait.Go(func() { p.drain(grace) })
	}
	wait.Wait()
	e.endJobs()
	for _, p := range e.pools {
		wait.Go(p.handBack)
	}
	wait.Wait()
	// A handler that does not return cannot be ended, only left.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), handBackTime)
	defer cancel()
	return e.group.Stop(ctx)
}

// Failed implements lifecycle.Service.
func (e *Engine) Failed() <-chan struct{} { return e.group.Failed() }

// Err implements lifecycle.Service.
func (e *Engine) Err() error { return e.group.Err() }

// Create makes an action, in status CREATED. With an id that exists, the same
// body returns the action as it is and another one is an *ExistsError. A field
// that is wrong is a *SpecError.
func (e *Engine) Create(ctx context.Context, spec Spec) (action Action, created bool, err error) {
	if e.publisher == nil && len(spec.Events) > 0 {
		return action, false, &SpecError{"events", "no events are published here: leave it out"}
	}
	if spec, err = spec.Normalize(); err != nil {
		return action, false, err
	}
	if _, err = ParseAggregates(spec.Aggregate, e.custom); err != nil {
		return action, false, err
	}
	action, created, err = e.store.Create(ctx, spec)
	e.outbox.wake()
	return action, created, err
}

// MaxPayloadBytes bounds the payload of one job.
const MaxPayloadBytes = 1 << 20

// Append adds jobs to an action that is not sealed; see Store.Append. When it
// returns, the jobs are durable.
func (e *Engine) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	for i, p := range payloads {
		if len(p) > MaxPayloadBytes {
			return 0, fmt.Errorf("job %d of the upload has %d bytes: a payload has at most %d", i, len(p), MaxPayloadBytes)
		}
	}
	received, err = e.store.Append(ctx, id, offset, payloads)
	e.metrics.appended(err, len(payloads))
	return received, err
}

// Seal says how many jobs were uploaded; the action enters the fair queue. If
// they are not as many as were received, the error is a *MoveError.
func (e *Engine) Seal(ctx context.Context, id string, total int64) (Action, error) {
	return e.move(ctx, id, Move{Kind: Seal, Total: total})
}

// Pause stops an action's jobs from being started; those in flight go on.
func (e *Engine) Pause(ctx context.Context, id string) (Action, error) {
	return e.move(ctx, id, Move{Kind: Pause})
}

// Resume goes on with a paused action.
func (e *Engine) Resume(ctx context.Context, id string) (Action, error) {
	return e.move(ctx, id, Move{Kind: Resume})
}

// Cancel ends an action: no job is started any more. Those in flight may finish
// and are counted.
func (e *Engine) Cancel(ctx context.Context, id string) (Action, error) {
	return e.move(ctx, id, Move{Kind: Cancel})
}

func (e *Engine) move(ctx context.Context, id string, move Move) (Action, error) {
	action, err := e.store.Move(ctx, id, move)
	e.outbox.wake()
	e.watch.wake()
	e.fetch.wake()
	return action, err
}

// Action returns one action, or ErrNotFound.
func (e *Engine) Action(ctx context.Context, id string) (Action, error) {
	return e.store.Action(ctx, id)
}

// Actions returns the actions that match.
func (e *Engine) Actions(ctx context.Context, filter ActionFilter) ([]Action, error) {
	return e.store.Actions(ctx, filter)
}

// DeadLetters returns up to limit dead letters of an action from an index on.
func (e *Engine) DeadLetters(ctx context.Context, id string, from int64, limit int) ([]DeadLetter, error) {
	return e.store.DeadLetters(ctx, id, from, limit)
}

// Watch calls f with the action at once and then whenever it has changed, which
// it looks for at the interval `every`; after the action has finished, or when
// ctx ends, it returns. An error of f ends it too.
func (e *Engine) Watch(ctx context.Context, id string, every time.Duration, f func(Action) error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last visible
	for first := true; ; first = false {
		action, err := e.store.Action(ctx, id)
		if err != nil {
			return err
		}
		finished := !action.FinishedAt.IsZero()
		now := visible{action.Status, action.Paused, action.Replays, action.Counts}
		if first || finished || now != last {
			if err := f(action); err != nil {
				return err
			}
		}
		if finished {
			return nil
		}
		last = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// visible is what of an action a watcher is told of.
type visible struct {
	status  Status
	paused  bool
	replays int
	counts  Counts
}

// EstimatedFinish tells when an action will have finished if it goes on as it
// did in the last seconds; zero if that cannot be told.
func (e *Engine) EstimatedFinish(id string) time.Time { return e.pace.finish(id, time.Now()) }

// Settings returns the settings that were stored.
func (e *Engine) Settings(ctx context.Context) (Settings, error) { return e.store.Settings(ctx) }

// Set stores a setting. It holds at once; the workers of a type are more or
// fewer as soon as those that are too many have finished their job. A value that
// is out of range is a *SettingError.
func (e *Engine) Set(ctx context.Context, change SettingsChange) error {
	if err := change.Validate(); err != nil {
		return err
	}
	if err := e.store.Set(ctx, change); err != nil {
		return err
	}
	e.fetch.wake()
	return e.applyTypes(ctx)
}

func (e *Engine) applyTypes(ctx context.Context) error {
	settings, err := e.store.Settings(ctx)
	if err != nil {
		return err
	}
	for name, p := range e.pools {
		workers := settings.Types[name].Concurrency
		orDefault(&workers, e.config.For(name).Workers)
		p.resize(workers)
	}
	return nil
}

// Fairness tells how evenly the backlogged tenants were served so far.
func (e *Engine) Fairness() Fairness { return e.fairness.result() }

// retriable tells whether a loop should go on after an error of the store.
func retriable(err error) bool {
	return err != nil && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrClosed)
}

// signal wakes one loop; waking it twice wakes it once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// broadcast wakes everybody who waits.
type broadcast struct {
	mu *sync.Mutex
	c  chan struct{}
}

func newBroadcast() broadcast { return broadcast{mu: new(sync.Mutex), c: make(chan struct{})} }

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}

// sleep waits for the signal, at most d; false when ctx has ended.
func sleep(ctx context.Context, s signal, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// catalog knows the actions whose jobs are in flight, by the store's number.
type catalog struct {
	engine *Engine
	mu     sync.RWMutex
	known  map[uint64]*known
}

type known struct {
	spec       *Spec
	aggregates *Aggregates
}

// of returns what is known of an action; spec may be nil if it must be asked for.
func (c *catalog) of(ctx context.Context, number uint64, spec *Spec) (*known, error) {
	c.mu.RLock()
	k := c.known[number]
	c.mu.RUnlock()
	if k != nil {
		return k, nil
	}
	if spec == nil {
		actions, err := c.engine.store.Actions(ctx, ActionFilter{Number: number})
		if err != nil || len(actions) == 0 {
			return nil, err
		}
		spec = &actions[0].Spec
	}
	aggregates, err := ParseAggregates(spec.Aggregate, c.engine.custom)
	if err != nil {
		return nil, fmt.Errorf("action %q: %w", spec.ID, err)
	}
	k = &known{spec: spec, aggregates: aggregates}
	c.mu.Lock()
	c.known[number] = k
	c.mu.Unlock()
	return k, nil
}

// forget drops what is not needed for the actions of these ids.
func (c *catalog) forget(unfinished map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ uint64, k *known) bool { return !unfinished[k.spec.ID] })
}
