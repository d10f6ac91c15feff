package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/aggregate"
	"github.com/sluice-project/sluice/bulk/keys"
	"github.com/sluice-project/sluice/lifecycle"
)

// Engine runs actions: it connects the store, the policies and the loops. It is a
// [lifecycle.Service]. Its methods may be called before Start and while it runs;
// actions that were created before run once it has started.
type Engine struct {
	store   bulk.Store
	config  bulk.Config
	log     *slog.Logger
	custom  map[string]aggregate.MapReduce
	metrics *metrics
	// publisher is nil if nothing is published.
	publisher Publisher
	// spans is nil if nothing is traced.
	spans *spans
	// namedTargets refuses targets without a URLPrefix.
	namedTargets bool
	// targets are the settings of targets, as they were last read.
	targets atomic.Pointer[map[string]bulk.TargetLimits]

	group *lifecycle.Group
	pools map[string]*pool
	// Each loop sleeps until its signal or its interval wakes it.
	fetch, dispatch, watch, aggregate, outbox lifecycle.Signal
	schedule                                  lifecycle.Signal
	admitted                                  lifecycle.Broadcast
	// jobs is the context of all handlers; endJobs ends it when the grace of a
	// shutdown is over.
	jobs    context.Context
	endJobs context.CancelFunc

	// costs and loads are what was measured: of job types, by name, and of targets.
	costs sync.Map
	loads loads
	lent  lent

	leaseKey  bulk.LeaseKey
	catalog   catalog
	streams   streams
	watched   watched
	fairness  fairnessWatch
	estimator estimator
	agenda    agenda
}

// Option is an option of New.
type Option func(*Engine)

// WithLogger sets the engine's logger. Default: slog.Default.
func WithLogger(log *slog.Logger) Option { return func(e *Engine) { e.log = log } }

// WithAggregator adds a MapReduce of the caller's under a name for Spec.Aggregate.
func WithAggregator(name string, aggregator aggregate.MapReduce) Option {
	return func(e *Engine) { e.custom[name] = aggregator }
}

// WithoutInlineTargets refuses actions whose target has no TargetLimits.URLPrefix, so that
// those who create actions cannot choose where requests go. Default: an action may name any URL.
func WithoutInlineTargets() Option { return func(e *Engine) { e.namedTargets = true } }

// New returns an engine that runs the jobs of a store with the handlers of a mux.
// Config must be the one that the store was opened with. New validates it.
func New(store bulk.Store, mux *bulk.Mux, config bulk.Config, options ...Option) (*Engine, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		store: store, config: config, log: slog.Default(), custom: map[string]aggregate.MapReduce{},
		group: lifecycle.NewGroup(context.Background()), pools: map[string]*pool{},
		fetch: lifecycle.NewSignal(), dispatch: lifecycle.NewSignal(), watch: lifecycle.NewSignal(), aggregate: lifecycle.NewSignal(), outbox: lifecycle.NewSignal(),
		schedule: lifecycle.NewSignal(),
		fairness: newFairnessWatch(config.Window),
		loads:    loads{of: map[string]*load{}},
		lent:     newLent(),
	}
	e.metrics = newMetrics(&e.loads, newQuotas(store, config))
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
	secret, err := store.Secret(context.Background())
	if err != nil {
		return nil, fmt.Errorf("read the store's secret: %w", err)
	}
	if e.leaseKey, err = bulk.NewLeaseKey(secret); err != nil {
		return nil, fmt.Errorf("derive the key of leases: %w", err)
	}
	e.streams = streams{engine: e, of: map[alike]*intake{}, tenants: map[string]waitingJobs{}}
	e.agenda = newAgenda()
	e.catalog = catalog{engine: e, known: map[uint64]*catalogEntry{}}
	for _, name := range mux.Types() {
		e.pools[name] = newPool(e, name, mux.Runner(name, config))
	}
	return e, nil
}

// Name implements lifecycle.Service.
func (e *Engine) Name() string { return "bulk" }

// Start implements lifecycle.Service.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.applySettings(ctx); err != nil {
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

// Stop implements lifecycle.Service: it leases no more jobs, waits for those in flight,
// and releases those that are not done when ctx or the configured grace ends. Handlers
// have a second to return after their context has ended; the error names those that do
// not.
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
	// A handler that does not return cannot be stopped, only left.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), handBackTime)
	defer cancel()
	return e.group.Stop(ctx)
}

// Failed implements lifecycle.Service.
func (e *Engine) Failed() <-chan struct{} { return e.group.Failed() }

// Err implements lifecycle.Service.
func (e *Engine) Err() error { return e.group.Err() }

// Create creates an action, in status CREATED. If the id exists with the same body, it
// returns that action; with another body, an *ExistsError. A wrong field is a
// *SpecError, a target that is not for the tenant a *DeniedError.
func (e *Engine) Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error) {
	if err = e.checkSpec(ctx, &spec); err != nil {
		return action, false, err
	}
	if spec, err = spec.Normalize(); err != nil {
		return action, false, err
	}
	return e.create(ctx, spec)
}

// create stores a new action. Links are to other traces.
func (e *Engine) create(ctx context.Context, spec bulk.Spec, links ...trace.Link) (action bulk.Action, created bool, err error) {
	ctx, span := e.spans.create(ctx, &spec, links...)
	action, created, err = e.store.Create(ctx, spec)
	e.spans.created(span, &action, created, err)
	e.outbox.Wake()
	return action, created, err
}

// apply makes a transition, and traces the action if the transition finishes it. It
// returns ErrNoChange if another caller has made it.
func (e *Engine) apply(ctx context.Context, id string, transition bulk.Transition) (bulk.Action, error) {
	action, err := e.store.Transition(ctx, id, transition)
	if err == nil && !action.FinishedAt.IsZero() {
		e.spans.finished(&action)
	}
	return action, err
}

// checkSpec refuses a spec that this engine does not support, and completes its target.
func (e *Engine) checkSpec(ctx context.Context, spec *bulk.Spec) error {
	if spec.Stream {
		return &bulk.SpecError{Field: "stream", Why: "streams are made by enqueueing jobs: leave it out"}
	}
	if e.publisher == nil && len(spec.Events) > 0 {
		return &bulk.SpecError{Field: "events", Why: "no events are published here: leave it out"}
	}
	if _, err := aggregate.Parse(spec.Aggregate, e.custom); err != nil {
		return &bulk.SpecError{Field: "aggregate", Why: err.Error()}
	}
	return e.completeTarget(ctx, spec)
}

// completeTarget gives a spec's target its name and its whole URL, or refuses it.
func (e *Engine) completeTarget(ctx context.Context, spec *bulk.Spec) error {
	if spec.Target == nil {
		return nil
	}
	target := *spec.Target
	if target.Name == "" {
		var err error
		if target, err = target.Normalize(); err != nil {
			return err
		}
	}
	settings, err := e.store.Settings(ctx)
	if err != nil {
		return err
	}
	limits := settings.Targets[target.Name]
	target, err = limits.Admit(spec.Tenant, target, !e.namedTargets)
	spec.Target = &target
	return err
}

// attemptTarget returns the settings of a job's target, or an error if it may no longer be called:
// they may have changed since the action was created.
func (e *Engine) attemptTarget(spec *bulk.Spec) (*bulk.TargetLimits, error) {
	if spec.Target == nil {
		return nil, nil
	}
	limits := (*e.targets.Load())[spec.Target.Name]
	_, err := limits.Admit(spec.Tenant, *spec.Target, !e.namedTargets)
	return &limits, err
}

// Append adds jobs to an action that is not sealed; see Store.Append. When it
// returns, the jobs are durable.
func (e *Engine) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	for i, p := range payloads {
		if len(p) > bulk.MaxPayloadBytes {
			return 0, fmt.Errorf("job %d of the upload has %d bytes: a payload has at most %d", i, len(p), bulk.MaxPayloadBytes)
		}
	}
	received, err = e.store.Append(ctx, id, offset, payloads)
	e.metrics.appended(err, len(payloads))
	return received, err
}

// Seal ends the upload of an action, which then enters the fair queue. If total is not
// the number of jobs received, the error is a *TransitionError.
func (e *Engine) Seal(ctx context.Context, id string, total int64) (bulk.Action, error) {
	return e.transition(ctx, id, bulk.Transition{Kind: bulk.Seal, Total: total})
}

// Pause starts no further job of an action; those in flight continue.
func (e *Engine) Pause(ctx context.Context, id string) (bulk.Action, error) {
	return e.transition(ctx, id, bulk.Transition{Kind: bulk.Pause})
}

// Resume continues a paused action.
func (e *Engine) Resume(ctx context.Context, id string) (bulk.Action, error) {
	return e.transition(ctx, id, bulk.Transition{Kind: bulk.Resume})
}

// Cancel ends an action: no further job starts. The contexts of handlers that run its jobs
// end, at once here, and at other instances when they extend the leases. Jobs that finish
// nevertheless are counted as they end.
func (e *Engine) Cancel(ctx context.Context, id string) (bulk.Action, error) {
	action, err := e.transition(ctx, id, bulk.Transition{Kind: bulk.Cancel})
	if err == nil {
		for _, p := range e.pools {
			p.endRuns(func(_ bulk.LeaseID, spec *bulk.Spec) bool { return spec.ID == id })
		}
	}
	return action, err
}

func (e *Engine) transition(ctx context.Context, id string, transition bulk.Transition) (bulk.Action, error) {
	action, err := e.apply(ctx, id, transition)
	if errors.Is(err, bulk.ErrNoChange) {
		err = nil
	}
	e.outbox.Wake()
	e.watch.Wake()
	e.fetch.Wake()
	return action, err
}

// Action returns one action, or ErrNotFound.
func (e *Engine) Action(ctx context.Context, id string) (bulk.Action, error) {
	return e.store.Action(ctx, id)
}

// Actions returns the actions that match.
func (e *Engine) Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error) {
	return e.store.Actions(ctx, filter)
}

// DeadLetters returns up to limit dead letters of an action, from an index on; see
// Store.DeadLetters.
func (e *Engine) DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	return e.store.DeadLetters(ctx, id, from, limit)
}

// Watch calls f with the action at once, and then whenever the action has changed. It
// returns when the action has finished, ctx ends, or f returns an error. The action is
// read once in each interval `every`, the shortest of all that watch it, however many
// they are.
func (e *Engine) Watch(ctx context.Context, id string, every time.Duration, f func(bulk.Action) error) error {
	w, need := e.watched.join(id)
	defer e.watched.leave(id, w)
	var last visible
	for first := true; ; first = false {
		read, err := w.read(ctx, need, func() (bulk.Action, error) { return e.store.Action(ctx, id) })
		if err != nil {
			return err
		}
		action := read.action
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
		last, need = now, read.number+1
		if err := w.rest(ctx, need, time.Until(read.began.Add(every))); err != nil {
			return err
		}
	}
}

// watched has the actions that are watched, by id.
type watched struct {
	mu sync.Mutex
	of map[string]*watchedAction
}

// watchedAction is read by its watchers: whoever needs a read first makes it, for all.
type watchedAction struct {
	mu       sync.Mutex
	watchers int // guarded by watched.mu
	// begun counts the reads, and reading reports whether the last has not ended.
	begun   uint64
	reading bool
	last    sharedRead
	ended   lifecycle.Broadcast
}

// sharedRead is a read that has ended.
type sharedRead struct {
	number uint64
	began  time.Time
	action bulk.Action
	err    error
}

// join adds a watcher, and returns the number of the first read that begins after it.
func (w *watched) join(id string) (*watchedAction, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.of[id]
	if a == nil {
		a = &watchedAction{}
		if w.of == nil {
			w.of = map[string]*watchedAction{}
		}
		w.of[id] = a
	}
	a.watchers++
	a.mu.Lock()
	defer a.mu.Unlock()
	return a, a.begun + 1
}

func (w *watched) leave(id string, a *watchedAction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.watchers--; a.watchers == 0 {
		delete(w.of, id)
	}
}

// read returns the read with the number `need` or a later one. If nobody else makes it, it
// makes it. A read that ended with its watcher's context does not count.
func (a *watchedAction) read(ctx context.Context, need uint64, read func() (bulk.Action, error)) (sharedRead, error) {
	for {
		ended := a.ended.Wait()
		a.mu.Lock()
		if a.last.number >= need {
			defer a.mu.Unlock()
			return a.last, a.last.err
		}
		if !a.reading {
			a.reading = true
			a.begun++
			made := sharedRead{number: a.begun, began: time.Now()}
			a.mu.Unlock()
			made.action, made.err = read()
			a.mu.Lock()
			a.reading = false
			if ctx.Err() == nil {
				a.last = made
			}
			a.mu.Unlock()
			a.ended.Wake()
			if made.err != nil || ctx.Err() != nil {
				return made, cmp.Or(made.err, ctx.Err())
			}
			return made, nil
		}
		a.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return sharedRead{}, ctx.Err()
		}
	}
}

// rest waits for d, or until another watcher has made the read with that number.
func (a *watchedAction) rest(ctx context.Context, number uint64, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		ended := a.ended.Wait()
		a.mu.Lock()
		made := a.last.number >= number
		a.mu.Unlock()
		if made {
			return nil
		}
		select {
		case <-ended:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// visible is the part of an action whose changes Watch reports.
type visible struct {
	status  bulk.Status
	paused  bool
	replays int
	counts  bulk.Counts
}

// EstimatedFinish returns when an action will finish at its rate of the last seconds;
// zero if there is no estimate.
func (e *Engine) EstimatedFinish(id string) time.Time { return e.estimator.finish(id, time.Now()) }

// Settings returns the stored settings.
func (e *Engine) Settings(ctx context.Context) (bulk.Settings, error) { return e.store.Settings(ctx) }

// ValidateSettings returns a *SettingError if a change is not one that Set stores.
func ValidateSettings(change bulk.SettingsChange) error {
	err := change.Validate()
	if err == nil && change.Tenant != nil {
		_, err = keys.Compile(change.Tenant.Keys)
	}
	return err
}

// Set stores a setting, which applies at once; surplus workers of a type finish their
// job first. A value out of range is a *SettingError.
func (e *Engine) Set(ctx context.Context, change bulk.SettingsChange) error {
	if err := ValidateSettings(change); err != nil {
		return err
	}
	if err := e.store.Set(ctx, change); err != nil {
		return err
	}
	e.fetch.Wake()
	e.dispatch.Wake()
	if change.Target == nil && change.Type == nil {
		return nil // no loop keeps the others
	}
	return e.applySettings(ctx)
}

// FoundRate returns the rate, in attempts per second, that was found for a target set
// to Auto; 0 for other targets.
func (e *Engine) FoundRate(ctx context.Context, target string) (rate float64, err error) {
	err = e.store.Fetch(ctx, func(b *bulk.Backlog) { rate = b.Found[target] })
	return rate, err
}

// StoredOf returns what counts in the quotas of tenants; see bulk.Store.
func (e *Engine) StoredOf(ctx context.Context, tenants []string) (map[string]bulk.Stored, error) {
	return e.store.StoredOf(ctx, tenants)
}

// applySettings applies what the loops need of the settings.
func (e *Engine) applySettings(ctx context.Context) error {
	settings, err := e.store.Settings(ctx)
	if err != nil {
		return err
	}
	e.targets.Store(&settings.Targets)
	for name, p := range e.pools {
		workers := settings.Types[name].Concurrency
		workers = cmp.Or(workers, e.config.For(name).Workers)
		p.resize(workers)
	}
	return nil
}

// Fairness returns how evenly backlogged tenants were served so far.
func (e *Engine) Fairness() Fairness { return e.fairness.result() }

// retriable reports whether a loop should continue after an error of the store.
func retriable(err error) bool {
	return err != nil && !errors.Is(err, bulk.ErrBroken) && !errors.Is(err, bulk.ErrClosed)
}

var _ bulk.Inserter = (*Engine)(nil)
