package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// NewJob is one job to enqueue by itself: see Engine.Enqueue. Tenant, Type, Target, Class, Key, Cost,
// MaxAttempts, Timeout, RunAt and KeepResults are as in a Spec.
type NewJob struct {
	Tenant string
	Type   string
	Target *bulk.Target
	// Payload has at most MaxPayloadBytes. For webhooks and remote workers it is JSON.
	Payload     []byte
	Class       bulk.Class
	Key         string
	Cost        int64
	MaxAttempts int
	Timeout     time.Duration
	KeepResults bool
	// RunAt is at most MaxAhead from now.
	RunAt time.Time
	// Unique, if not empty, is a text of at most MaxUniqueBytes: while a job with the same one,
	// tenant, type and target is kept, another one is not enqueued, whatever its Key.
	Unique string
	// UniqueFor, if not 0, limits that to windows of this length, at most MaxAhead. They begin
	// at multiples of it since 1970, so two jobs may follow each other closely at the end of
	// one.
	UniqueFor time.Duration
}

const (
	// MaxAhead bounds how far ahead NewJob.RunAt is, and NewJob.UniqueFor.
	MaxAhead = 10 * 366 * 24 * time.Hour
	// MaxUniqueBytes bounds NewJob.Unique.
	MaxUniqueBytes = 256
)

// Enqueued says where an enqueued job is.
type Enqueued struct {
	// Action is the id of the job's action, Index its place there.
	Action string
	Index  int64
	// Duplicate reports whether the job was not enqueued, as there was one with its Unique. The
	// other fields are those of that one.
	Duplicate bool
}

// ID returns the job's id.
func (e Enqueued) ID() string { return bulk.JobID(e.Action, e.Index) }

// ErrBusy is the error of Enqueue when too many jobs wait to be stored. The job was not
// enqueued; try again a moment later.
var ErrBusy = errors.New("too many jobs wait to be stored")

// Enqueue adds one job, which can start at once. When it returns, the job is durable.
//
// Jobs that are alike (tenant, type or target, class, key, cost, attempts, timeout and
// whether results are kept) and are enqueued
// in the same window of Config.StreamWindow share one action: a stream, which is sealed when
// its window is over. Callers that enqueue at the same time share one write. A job with Unique
// or with a time to run at has an action of its own.
//
// If ctx ends, or the error is ErrUnavailable, the job may have been enqueued nevertheless. A
// repeated call enqueues it again, unless it has Unique. A wrong field is a *SpecError; see
// also Create, ErrBusy, ErrFull and QuotaError.
func (e *Engine) Enqueue(ctx context.Context, job NewJob) (Enqueued, error) {
	now := time.Now()
	if err := job.check(now); err != nil {
		return Enqueued{}, err
	}
	spec := bulk.Spec{
		Tenant: job.Tenant, Type: job.Type, Target: job.Target, Class: job.Class, Key: job.Key, Cost: job.Cost,
		MaxAttempts: job.MaxAttempts, Timeout: job.Timeout, KeepResults: job.KeepResults,
	}
	if job.RunAt.After(now) {
		spec.RunAt = job.RunAt
	}
	err := e.completeTarget(ctx, &spec)
	if err == nil {
		spec, err = spec.Normalize()
	}
	switch {
	case err != nil:
		return Enqueued{}, err
	case job.Unique != "":
		spec.ID = job.uniqueID(&spec, now)
		return e.enqueueAlone(ctx, spec, job.Payload)
	case !spec.RunAt.IsZero():
		return e.enqueueAlone(ctx, spec, job.Payload)
	}
	return e.streams.enqueue(ctx, spec, bytes.Clone(job.Payload))
}

func (j *NewJob) check(now time.Time) error {
	switch {
	case len(j.Payload) > bulk.MaxPayloadBytes:
		return &bulk.SpecError{Field: "payload", Why: fmt.Sprintf("it has %d bytes: want at most %d", len(j.Payload), bulk.MaxPayloadBytes)}
	case len(j.Unique) > MaxUniqueBytes:
		return &bulk.SpecError{Field: "unique", Why: fmt.Sprintf("it has %d bytes: want at most %d", len(j.Unique), MaxUniqueBytes)}
	case j.UniqueFor < 0 || j.UniqueFor > MaxAhead:
		return &bulk.SpecError{Field: "unique_for_ms", Why: "want 1 ms to 10 years, or 0 for as long as the job is kept"}
	case j.UniqueFor > 0 && j.Unique == "":
		return &bulk.SpecError{Field: "unique_for_ms", Why: "it limits unique: give that too"}
	case j.RunAt.After(now.Add(MaxAhead)):
		return &bulk.SpecError{Field: "run_at", Why: "want a time in the next 10 years"}
	}
	return nil
}

// uniqueID returns the id of the action of a job with Unique.
func (j *NewJob) uniqueID(spec *bulk.Spec, now time.Time) string {
	window := int64(0)
	if j.UniqueFor > 0 {
		window = bulk.WindowIndex(now, j.UniqueFor)
	}
	return "unique-" + digest(spec.Tenant, spec.Type, spec.Target, j.Unique, j.UniqueFor, window)
}

// digest returns 26 letters and digits that stand for the values.
func digest(values ...any) string {
	text, _ := json.Marshal(values) // strings and numbers always have a JSON form
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// enqueueAlone makes an action of one job. If there is one with the id, it completes what an
// interrupted call has left.
func (e *Engine) enqueueAlone(ctx context.Context, spec bulk.Spec, payload []byte) (Enqueued, error) {
	for {
		action, created, err := e.create(ctx, spec)
		var exists *bulk.ExistsError
		if errors.As(err, &exists) { // enqueued with another class, for example: the first counts
			action, err = e.store.Action(ctx, spec.ID)
		}
		switch {
		case errors.Is(err, bulk.ErrNotFound): // it was forgotten in the meantime
			continue
		case err != nil:
			return Enqueued{}, err
		case action.Status == bulk.Canceled && action.EnteredAt.IsZero():
			// An interrupted call has left it, and the watcher has given it up.
			if _, err := e.store.Transition(ctx, action.ID, bulk.Transition{Kind: bulk.Forget}); err != nil && !errors.Is(err, bulk.ErrNotFound) {
				return Enqueued{}, err
			}
			continue
		case action.Status == bulk.Created:
			err = e.fill(ctx, action.ID, payload)
			if _, refused := errors.AsType[*bulk.QuotaError](err); refused {
				err = errors.Join(err, e.discard(ctx, action.ID))
			} else if discarded(err) { // by another call, whose job was refused
				continue
			}
		}
		return Enqueued{Action: action.ID, Duplicate: !created}, err
	}
}

// discard removes an action whose only job was refused, unless another call has filled or removed it.
func (e *Engine) discard(ctx context.Context, id string) error {
	_, err := e.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Cancel, IfEmpty: true})
	if err == nil {
		_, err = e.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Forget})
	}
	if errors.As(err, new(*bulk.TransitionError)) || errors.Is(err, bulk.ErrNotFound) || errors.Is(err, bulk.ErrNoChange) {
		return nil
	}
	return err
}

// discarded reports whether an action was removed while it was filled.
func discarded(err error) bool {
	var refused *bulk.TransitionError
	return errors.Is(err, bulk.ErrNotFound) || errors.As(err, &refused) && refused.From == bulk.Canceled
}

// fill appends the only job of an action, and seals the action, unless another call has
// done so.
func (e *Engine) fill(ctx context.Context, id string, payload []byte) error {
	_, err := e.Append(ctx, id, 0, [][]byte{payload})
	if err == nil {
		_, err = e.Seal(ctx, id, 1)
	}
	var refused *bulk.TransitionError
	if errors.As(err, &refused) && refused.From != bulk.Canceled {
		return nil
	}
	return err
}
