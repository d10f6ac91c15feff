package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// spans is nil if nothing is traced.
	spans *spans

	group *lifecycle.Group
	pools map[string]*pool
	// Each loop sleeps until its signal, or its interval, wakes it.
	fetch, dispatch, watch, aggregate, outbox signal
	schedule                                  signal
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
		schedule: newSignal(), admitted: newBroadcast(), metrics: newMetrics(),
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
		e.pools[name] = newPool(e, name, mux.runner(name, config))
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
	e.group.Go("scheduler", e.scheduler)
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
	if err = e.checkSpec(&spec); err != nil {
		return action, false, err
	}
	if spec, err = spec.Normalize(); err != nil {
		return action, false, err
	}
	return e.create(ctx, spec)
}

// checkSpec refuses what this engine cannot do.
func (e *Engine) checkSpec(spec *Spec) error {
	if e.publisher == nil && len(spec.Events) > 0 {
		return &SpecError{"events", "no events are published here: leave it out"}
	}
	_, err := ParseAggregates(spec.Aggregate, e.custom)
	return err
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
	action, err := e.apply(ctx, id, move)
	if errors.Is(err, ErrNoChange) {
		err = nil
	}
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

// FoundRate returns the rate, in attempts per second, that was found of a target
// which is set to Auto; 0 if it is not.
func (e *Engine) FoundRate(ctx context.Context, target string) (float64, error) {
	b, err := e.store.Backlog(ctx)
	return b.Found[target], err
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
