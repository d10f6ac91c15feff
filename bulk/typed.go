package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

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
