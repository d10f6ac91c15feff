package bulk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Handler runs one attempt of a job. It returns the job's result, one JSON value or nil,
// for the action's aggregates; or an error. The context ends at the attempt's timeout,
// or when the grace period of a shutdown is over.
//
// An error fails the attempt: the job is retried after a backoff while attempts are
// left. An error that wraps [SkipRetry] fails the job permanently; a [ThrottledError]
// turns it back without using an attempt. A panic is an error.
//
// Jobs run at least once: a handler may be called again for a job that it has finished.
type Handler interface {
	Handle(ctx context.Context, job *Job) (result []byte, err error)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, job *Job) (result []byte, err error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, job *Job) ([]byte, error) { return f(ctx, job) }

// SkipRetry, wrapped by a handler's error, fails the job without retries.
var SkipRetry = errors.New("not to be retried") //nolint:staticcheck // ST1012: the name that users of asynq know.

// ErrUnreachable, wrapped by a handler's error, says that the target did not answer, whatever
// the job: a target that does so again and again is taken for down.
var ErrUnreachable = errors.New("the target does not answer")

// ThrottledError is a handler's error when the target throttles. The job waits for its
// slot, at least RetryAfter, and no attempt is used.
type ThrottledError struct {
	RetryAfter time.Duration
	Reason     string
}

func (e *ThrottledError) Error() string {
	if e.Reason == "" {
		return "throttled"
	}
	return "throttled: " + e.Reason
}

// RetryAfterError is a handler's error with the delay before the next attempt.
type RetryAfterError struct {
	After time.Duration
	Err   error
}

func (e *RetryAfterError) Error() string { return e.Err.Error() }

// Unwrap returns the error that it wraps.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// Middleware wraps a handler.
type Middleware func(Handler) Handler

// Mux maps job types to handlers. Create it with NewMux, and register all handlers
// before the engine starts.
type Mux struct {
	handlers   map[string]registration
	middleware []Middleware
}

// registration is the handler of one type, as it was registered.
type registration struct {
	handler    Handler
	timeout    time.Duration
	retryDelay func(*Job, error) time.Duration
}

// HandlerOption is an option of a registered handler.
type HandlerOption func(*registration)

// WithTimeout bounds one attempt of the type. Default: Config.JobTimeout. The JobTimeout
// of the type in Config.Types, and the Timeout of an action, take precedence. It panics
// if d is not above 0.
func WithTimeout(d time.Duration) HandlerOption {
	if d <= 0 {
		panic(fmt.Sprintf("bulk: timeout %s: want more than 0", d))
	}
	return func(r *registration) { r.timeout = d }
}

// WithRetryDelay sets the delay before a job is retried, from the job and the error of
// the failed attempt; at most 24 h. If it returns 0 or less, the type's backoff applies,
// as it does by default. It is not called for a [ThrottledError], a [RetryAfterError] or
// an error that wraps [SkipRetry]. A panic in it is logged and counts as 0.
func WithRetryDelay(delay func(job *Job, err error) time.Duration) HandlerOption {
	return func(r *registration) { r.retryDelay = delay }
}

// NewMux returns a mux with the type "echo", whose handler returns the payload.
func NewMux() *Mux {
	m := &Mux{handlers: map[string]registration{}}
	m.HandleFunc("echo", func(_ context.Context, job *Job) ([]byte, error) { return job.Payload, nil })
	return m
}

// Handle registers the handler of a type. It panics if the type has a handler or an
// invalid name: both are errors of the program.
func (m *Mux) Handle(jobType string, handler Handler, options ...HandlerOption) {
	if !isID(jobType) {
		panic(fmt.Sprintf("bulk: job type %q: want 1 to 128 of letters, digits and . _ : -", jobType))
	}
	if _, exists := m.handlers[jobType]; exists {
		panic(fmt.Sprintf("bulk: job type %q has a handler already", jobType))
	}
	r := registration{handler: handler}
	for _, option := range options {
		option(&r)
	}
	m.handlers[jobType] = r
}

// HandleFunc registers a function as the handler of a type.
func (m *Mux) HandleFunc(jobType string, f HandlerFunc, options ...HandlerOption) {
	m.Handle(jobType, f, options...)
}

// Use adds middleware around every handler. The first added is the outermost.
func (m *Mux) Use(middleware ...Middleware) { m.middleware = append(m.middleware, middleware...) }

// Types returns the types that have a handler, sorted.
func (m *Mux) Types() []string {
	return slices.Sorted(maps.Keys(m.handlers))
}

// Runner returns the runner of a type, with its middleware. Config must have defaults.
func (m *Mux) Runner(jobType string, config Config) Runner {
	r := m.handlers[jobType]
	for _, wrap := range slices.Backward(m.middleware) {
		r.handler = wrap(r.handler)
	}
	timeout := config.Types[jobType].JobTimeout
	timeout = cmp.Or(timeout, r.timeout)
	timeout = cmp.Or(timeout, config.JobTimeout)
	return Runner{handler: r.handler, timeout: timeout, retryDelay: r.retryDelay}
}

// Args is the payload of the jobs of one type, as a Go type: a struct that encodes as the
// uploaded JSON. JobType returns the name of the type. It is called on the zero value, so
// it must be the same for all values.
//
//	type Charge struct {
//		Customer string `json:"customer"`
//	}
//
//	func (Charge) JobType() string { return "order:charge" }
type Args interface{ JobType() string }

// TypedJob is a job with its payload decoded.
type TypedJob[T Args] struct {
	*Job
	// Args is the payload, decoded for each attempt.
	Args T
}

// Worker runs the jobs whose payload is a T. Work makes one attempt; the rules of a
// [Handler] apply to it and its errors. The result is encoded as JSON, for the action's
// aggregates; nil is none.
type Worker[T Args] interface {
	Work(ctx context.Context, job *TypedJob[T]) (result any, err error)
}

// WorkFunc is a function as a Worker.
type WorkFunc[T Args] func(ctx context.Context, job *TypedJob[T]) (result any, err error)

// Work calls f.
func (f WorkFunc[T]) Work(ctx context.Context, job *TypedJob[T]) (any, error) { return f(ctx, job) }

// AddWorker registers a worker in a mux, as the handler of T's job type; see
// [Mux.Handle] and [NewHandler].
func AddWorker[T Args](mux *Mux, worker Worker[T], options ...HandlerOption) {
	mux.Handle(JobType[T](), NewHandler(worker), options...)
}

// AddWorkFunc registers a function in a mux, as the handler of T's job type.
func AddWorkFunc[T Args](mux *Mux, f WorkFunc[T], options ...HandlerOption) {
	AddWorker(mux, f, options...)
}

// NewHandler returns a worker as a Handler. A payload that cannot be decoded, or a result
// that cannot be encoded, fails the job permanently. Fields of the payload that T does
// not have are ignored.
func NewHandler[T Args](worker Worker[T]) Handler {
	return HandlerFunc(func(ctx context.Context, job *Job) ([]byte, error) {
		typed := TypedJob[T]{Job: job}
		if err := json.Unmarshal(job.Payload, &typed.Args); err != nil {
			return nil, fmt.Errorf("the payload is not a %v: %w: %w", reflect.TypeFor[T](), err, SkipRetry)
		}
		result, err := worker.Work(ctx, &typed)
		if err != nil || result == nil {
			return nil, err
		}
		encoded, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("the job is done, but its result cannot be encoded: %w: %w", err, SkipRetry)
		}
		return encoded, nil
	})
}

// JobType returns the job type of T; "" if T is an interface.
func JobType[T Args]() string {
	var zero T
	switch of := reflect.TypeFor[T](); of.Kind() {
	case reflect.Interface:
		return ""
	case reflect.Pointer: // its method may have the value as its receiver
		zero = reflect.New(of.Elem()).Interface().(T)
	}
	return zero.JobType()
}
