package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge"
)

// Engine is what the edge needs of bulk's engine. bulk.Store and bulk.Action say what
// each method promises.
type Engine interface {
	Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error)
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (bulk.Action, error)
	Enqueue(ctx context.Context, job engine.NewJob) (engine.Enqueued, error)
	Action(ctx context.Context, id string) (bulk.Action, error)
	Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error)
	Pause(ctx context.Context, id string) (bulk.Action, error)
	Resume(ctx context.Context, id string) (bulk.Action, error)
	Cancel(ctx context.Context, id string) (bulk.Action, error)
	// Change does the same with all actions that match, some at a time.
	Change(ctx context.Context, change engine.Change) (engine.Changed, error)
	// Watch calls f at once and then on every change, checked at each interval, until
	// the action is final, f fails or ctx ends.
	Watch(ctx context.Context, id string, interval time.Duration, f func(bulk.Action) error) error
	// EstimatedFinish is zero if it is unknown.
	EstimatedFinish(id string) time.Time

	// Why explains where a job is; bulk.FirstJob is the first that has not ended.
	Why(ctx context.Context, id string, index int64) (engine.Explanation, error)
	// Workforces are by type.
	Workforces(ctx context.Context) ([]engine.Workforce, error)

	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
	// Replay makes a new action of dead letters of a finished one.
	Replay(ctx context.Context, id string, only bulk.FailureFilter) (bulk.Action, error)

	// Lease waits up to wait for the first job.
	Lease(ctx context.Context, request bulk.LeaseRequest, wait time.Duration) ([]bulk.Job, error)
	// LeaseKey has the tokens of leases.
	LeaseKey() bulk.LeaseKey
	// Settle returns a verdict for each report, in their order.
	Settle(ctx context.Context, reports []engine.Report) ([]bulk.Verdict, error)

	// PutSchedule reports whether the schedule is new.
	PutSchedule(ctx context.Context, schedule bulk.Schedule) (stored bulk.Schedule, created bool, err error)
	Schedule(ctx context.Context, name string) (bulk.Schedule, error)
	Schedules(ctx context.Context) ([]bulk.Schedule, error)
	RemoveSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name string) (bulk.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (bulk.Schedule, error)
	// RunNow returns the action of the run.
	RunNow(ctx context.Context, name string) (bulk.Action, error)

	Settings(ctx context.Context) (bulk.Settings, error)
	Set(ctx context.Context, change bulk.SettingsChange) error
	// StoredOf is what counts in the quotas of tenants.
	StoredOf(ctx context.Context, tenants []string) (map[string]bulk.Stored, error)
	// FoundRate is the rate that was found for a target whose rate is auto.
	FoundRate(ctx context.Context, target string) (float64, error)
	// FoundLoad is what was found out about a target of webhooks.
	FoundLoad(target string) engine.FoundLoad
	// HeldBack is how many pending jobs wait because their target is down.
	HeldBack(action *bulk.Action) int64
}

// Option changes what Register adds.
type Option func(*server)

// WithLogger sets where faults of the server are logged, each kind at most once a
// second. Default: slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.logger = logger } }

// WithConfig sets the engine's config, which applies where no setting is stored.
// Default: the defaults of bulk.Config.
func WithConfig(config bulk.Config) Option {
	return func(s *server) { s.config = config.WithDefaults() }
}

// WithUploadMemory sets the most bytes of all chunks of jobs that have arrived in part or wait to be stored; at least
// MaxChunk. Default: 256 MiB.
func WithUploadMemory(bytes int64) Option {
	return func(s *server) { s.memory = newUploadMemory(int(max(bytes, MaxChunk))) }
}

// server has what the operations share.
type server struct {
	engine  Engine
	part    *edge.Part
	config  bulk.Config
	logger  *slog.Logger
	tracer  trace.Tracer
	memory  *uploadMemory
	uploads *gate
	watches *gate
	// explained bounds the jobs that are explained.
	explained *gate
}

// New returns an API of bulk alone, as Register adds it.
func New(engine Engine, options ...Option) http.Handler {
	to := edge.New()
	Register(to, engine, options...)
	return to
}

// Register adds the operations of bulk to an API. They need no shutdown, but a watch
// ends and a lease request stops waiting only when the context of its request ends:
// a server that drains ends the context that it gives to requests.
func Register(to *edge.API, engine Engine, options ...Option) {
	s := &server{
		engine:  scoped{engine},
		config:  bulk.Config{}.WithDefaults(),
		logger:  slog.Default(),
		memory:  newUploadMemory(defaultUploadMemory),
		uploads: newGate(MaxUploads, uploadWait),
		watches: newGate(maxWatches, 0),

		explained: newGate(maxExplained, explainWait),
	}
	for _, option := range options {
		option(s)
	}
	settings := edge.PartOptions{
		Logger: s.logger, Explain: explain,
		Refuse: func(err error) *edge.Error { return refuse("", err) },
	}
	if s.tracer != nil {
		settings.Middlewares = huma.Middlewares{s.trace}
	}
	s.part = to.Part("bulk", settings)
	s.registerActions()
	s.registerJobs()
	s.registerEnqueue()
	s.registerWhy()
	s.registerWaits()
	s.registerWatch()
	s.registerLeases()
	s.registerDeadLetters()
	s.registerSettings()
	s.registerSchedules()
}

// object is an input or an output that has nothing but a JSON object.
type object[T any] struct{ Body T }

// register adds an operation that needs no more than an id, a route and a summary.
func register[I, O any](s *server, id, route, summary string, handler func(context.Context, *I) (*O, error)) {
	edge.Register(s.part, edge.Operation{ID: id, Route: route, Summary: summary}, handler)
}
