package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
)

// Inserter is where Insert creates an action: an Engine of this process, or a server,
// through the Inserter of package client.
type Inserter interface {
	// Create creates an action, or returns the one with that id and the same body. If
	// an Inserter cannot tell which, created is false.
	Create(ctx context.Context, spec Spec) (action Action, created bool, err error)
	// Append adds jobs to an action; see Store.Append.
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	// Seal ends the upload: the action has total jobs, and runs.
	Seal(ctx context.Context, id string, total int64) (Action, error)
}

// insertJobs and insertBytes bound the jobs that Insert holds in memory and appends at once.
// One payload may exceed the bytes.
const (
	insertJobs  = 1000
	insertBytes = 1 << 20
)

// Insert creates an action of these jobs, and seals it. The Type of the spec may be
// empty: it is T's.
//
// A call that was interrupted can be repeated, with the same Spec, including its ID, and
// the same jobs: it appends the jobs that are missing, and returns an action that is
// sealed as it is. So a program that may be killed should set the ID. The action that is
// returned with an error has its ID if it was created.
//
// Insert returns the errors of the Inserter, an error about a job that cannot be encoded
// or is larger than MaxPayloadBytes, and a *TransitionError if the action was canceled.
// Jobs of an action that is not sealed do not run.
func Insert[T Args](ctx context.Context, into Inserter, spec Spec, jobs ...T) (Action, error) {
	return InsertMany(ctx, into, spec, slices.Values(jobs))
}

// InsertMany is Insert for jobs that do not fit in memory: it holds at most 1,000 of
// them, and 2 MiB.
func InsertMany[T Args](ctx context.Context, into Inserter, spec Spec, jobs iter.Seq[T]) (Action, error) {
	return InsertFrom(ctx, into, spec, func(yield func(T, error) bool) {
		for job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	})
}

// InsertFrom is InsertMany for a source that may fail, such as the rows of a query. An
// error of the source is returned, and leaves the action unsealed.
func InsertFrom[T Args](ctx context.Context, into Inserter, spec Spec, jobs iter.Seq2[T, error]) (Action, error) {
	if name := JobType[T](); spec.Type == "" {
		spec.Type = name
	} else if spec.Type != name {
		return Action{}, &SpecError{"type", fmt.Sprintf("%q, but these jobs are of type %q: leave it out", spec.Type, name)}
	}
	action, _, err := into.Create(ctx, spec)
	switch {
	case err != nil:
		return action, err
	case action.Status == Canceled:
		return action, &TransitionError{ID: action.ID, From: Canceled, Why: "a canceled action takes no jobs: choose another id"}
	case action.Status != Created:
		return action, nil
	}
	in := insertion{into: into, id: action.ID, received: action.Received}
	for job, err := range jobs {
		if err != nil {
			return action, fmt.Errorf("the source of action %q, after %d jobs: %w", in.id, in.position, err)
		}
		if err := in.add(ctx, job); err != nil {
			return action, err
		}
	}
	if err := in.send(ctx); err != nil {
		return action, err
	}
	if in.received > in.position {
		return action, fmt.Errorf("action %q has %d jobs already, but these are only %d: they are not the same", in.id, in.received, in.position)
	}
	sealed, err := into.Seal(ctx, in.id, in.position)
	if err != nil {
		return action, err
	}
	return sealed, nil
}

// insertion is an action that is being filled.
type insertion struct {
	into Inserter
	id   string
	// position counts the jobs read from the source, received those that the action has.
	position, received int64
	// payloads end at position.
	payloads [][]byte
	size     int
}

// add adds one job, and sends a batch when it is full.
func (in *insertion) add(ctx context.Context, job any) error {
	if in.position < in.received {
		in.position++
		return nil
	}
	payload, err := json.Marshal(job)
	if err == nil && len(payload) > MaxPayloadBytes {
		err = fmt.Errorf("%d bytes: a payload has at most %d", len(payload), MaxPayloadBytes)
	}
	if err != nil {
		return fmt.Errorf("job %d of action %q: %w", in.position, in.id, err)
	}
	in.payloads = append(in.payloads, payload)
	in.size += len(payload)
	in.position++
	if len(in.payloads) < insertJobs && in.size < insertBytes {
		return nil
	}
	return in.send(ctx)
}

// send appends the jobs that were added.
func (in *insertion) send(ctx context.Context) error {
	if ctx.Err() != nil { // the source may have ended early for the same reason
		return context.Cause(ctx)
	}
	if len(in.payloads) == 0 {
		return nil
	}
	received, err := in.into.Append(ctx, in.id, in.position-int64(len(in.payloads)), in.payloads)
	if err != nil {
		return err
	}
	in.received = max(received, in.position)
	in.payloads, in.size = in.payloads[:0], 0
	return nil
}
