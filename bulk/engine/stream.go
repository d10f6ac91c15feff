package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// maxIntakes bounds the kinds of jobs that are enqueued concurrently.
	maxIntakes = 10_000
	// maxWaitingJobs and maxWaitingBytes bound the jobs that wait to be stored. A tenant may have
	// as many as it leaves free for others.
	maxWaitingJobs  = 100_000
	maxWaitingBytes = 64 << 20
	// maxBatch and maxBatchBytes bound the jobs that are stored together.
	maxBatch      = 1000
	maxBatchBytes = 1 << 20
	// streamJobs and streamBytes are about how large a stream becomes before the next one of
	// its window follows: a store keeps payloads until the stream has finished.
	streamJobs  = 1_000_000
	streamBytes = 256 << 20
	// maxParts bounds the streams of one window.
	maxParts = 10_000
	// sealMargin is how long a stream stays open when its window is over, for instances whose
	// clocks differ.
	sealMargin = 5 * time.Second
)

// streams stores jobs that are enqueued one at a time. Jobs that are alike go through one
// intake. One caller of an intake leads: it stores the jobs of all callers that wait. When all of
// them have their answers, so that those with another job wait again, the next caller leads: no
// goroutine waits for a timer, and the callers of one write share the next one.
type streams struct {
	engine *Engine

	mu sync.Mutex
	of map[alike]*intake
	// waiting has the jobs that wait, in all intakes, and tenants those of each tenant.
	waiting waitingJobs
	tenants map[string]waitingJobs
}

type waitingJobs struct{ jobs, bytes int }

// alike is what the jobs of one stream have in common.
type alike struct {
	Tenant, Type string
	Target       bulk.Target
	Class        bulk.Class
	Key          string
	Cost         int64
	MaxAttempts  int
	Timeout      time.Duration
	KeepResults  bool
}

// intake stores the jobs of one kind.
type intake struct {
	// busy reports whether a caller leads: it stores jobs, or callers of its write have yet to
	// return. Waiting are the callers whose jobs are not being stored. Both are guarded by streams.mu.
	busy    bool
	waiting []*enqueuer
	// out has how many callers of the write have yet to return. It is set with streams.mu held.
	out atomic.Int64

	// The rest belongs to the caller that leads.
	spec  bulk.Spec
	start time.Time // of the window
	part  int       // which stream of the window is used
	known bool      // it was created, and was open
	bytes int       // of the payloads appended here
}

// enqueuer is a caller of Enqueue.
type enqueuer struct {
	payload []byte
	// turn gets true when the caller is to lead, false when its job was stored or not.
	turn chan bool
	// leads is guarded by streams.mu.
	leads    bool
	enqueued Enqueued
	err      error
}

func (s *streams) enqueue(ctx context.Context, spec bulk.Spec, payload []byte) (Enqueued, error) {
	caller := &enqueuer{payload: payload, turn: make(chan bool, 1)}
	in, err := s.join(spec, caller)
	if err != nil {
		return Enqueued{}, err
	}
	var lead bool
	select {
	case lead = <-caller.turn:
	case <-ctx.Done():
		if s.leave(in, caller) {
			return Enqueued{}, ctx.Err()
		}
		lead = true // others wait for it
	}
	if lead {
		// The stream is no part of the caller's trace, nor ends its storing with the caller.
		s.lead(trace.ContextWithSpanContext(context.WithoutCancel(ctx), trace.SpanContext{}), in)
	}
	s.returned(in)
	return caller.enqueued, caller.err
}

// join adds a caller to the intake of its kind of jobs.
func (s *streams) join(spec bulk.Spec, caller *enqueuer) (*intake, error) {
	key := alike{
		Tenant: spec.Tenant, Type: spec.Type, Class: spec.Class, Key: spec.Key, Cost: spec.Cost, MaxAttempts: spec.MaxAttempts, Timeout: spec.Timeout,
		KeepResults: spec.KeepResults,
	}
	if spec.Target != nil {
		key.Target = *spec.Target
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[spec.Tenant]
	if of.jobs >= maxWaitingJobs-s.waiting.jobs || of.bytes+len(caller.payload) > maxWaitingBytes-s.waiting.bytes {
		return nil, ErrBusy
	}
	in := s.of[key]
	if in == nil {
		if len(s.of) >= maxIntakes && !s.forgetOne() {
			return nil, ErrBusy
		}
		spec.Stream = true
		in = &intake{spec: spec}
		s.of[key] = in
	}
	s.count(in, 1, len(caller.payload))
	in.waiting = append(in.waiting, caller)
	if !in.busy {
		in.busy = true
		in.callFirst()
	}
	return in, nil
}

// callFirst lets the caller that waits longest lead.
func (in *intake) callFirst() {
	in.waiting[0].leads = true
	in.waiting[0].turn <- true
}

// returned counts a caller of a write as returned. The last one lets the next caller lead, if one waits.
func (s *streams) returned(in *intake) {
	if in.out.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.busy = len(in.waiting) > 0; in.busy {
		in.callFirst()
	}
}

// forgetOne removes an intake that is not in use.
func (s *streams) forgetOne() bool {
	for key, in := range s.of {
		if !in.busy {
			delete(s.of, key)
			return true
		}
	}
	return false
}

// leave removes a caller that no longer waits. It returns false if the caller is to lead.
func (s *streams) leave(in *intake, caller *enqueuer) bool {
	s.mu.Lock()
	leads, at := caller.leads, slices.Index(in.waiting, caller)
	if !leads && at >= 0 {
		in.waiting = slices.Delete(in.waiting, at, at+1)
		s.count(in, -1, -len(caller.payload))
	}
	s.mu.Unlock()
	if !leads && at < 0 { // its job was stored, or is being stored
		s.returned(in)
	}
	return !leads
}

// count changes the counts of the jobs that wait.
func (s *streams) count(in *intake, jobs, bytes int) {
	of := s.tenants[in.spec.Tenant]
	of.jobs, of.bytes = of.jobs+jobs, of.bytes+bytes
	s.waiting.jobs, s.waiting.bytes = s.waiting.jobs+jobs, s.waiting.bytes+bytes
	if s.tenants[in.spec.Tenant] = of; of.jobs == 0 {
		delete(s.tenants, in.spec.Tenant)
	}
}

// lead stores the jobs of the callers that wait, and answers them.
func (s *streams) lead(ctx context.Context, in *intake) {
	s.mu.Lock()
	batch := in.take()
	in.out.Store(int64(len(batch)))
	s.mu.Unlock()
	payloads, bytes := make([][]byte, len(batch)), 0
	for i, caller := range batch {
		payloads[i] = caller.payload
		bytes += len(caller.payload)
	}
	id, first, stored, err := s.append(ctx, in, payloads)
	s.engine.metrics.appended(nil, stored)
	s.engine.metrics.appended(err, len(batch)-stored)
	s.engine.fetch.Wake()
	for i, caller := range batch {
		if i < stored {
			caller.enqueued = Enqueued{Action: id, Index: first + int64(i)}
		} else {
			caller.err = err
		}
	}
	s.mu.Lock()
	s.count(in, -len(batch), -bytes)
	s.mu.Unlock()
	for _, caller := range batch[1:] { // the first leads
		caller.turn <- false
	}
}

// take takes the first callers that wait, as many as are stored together.
func (in *intake) take() []*enqueuer {
	jobs, bytes := 0, 0
	for jobs < len(in.waiting) && jobs < maxBatch && (jobs == 0 || bytes+len(in.waiting[jobs].payload) <= maxBatchBytes) {
		bytes += len(in.waiting[jobs].payload)
		jobs++
	}
	batch := slices.Clone(in.waiting[:jobs])
	in.waiting = slices.Delete(in.waiting, 0, jobs)
	return batch
}

// append appends jobs to the stream of the present window, and returns the stream's id,
// the index of the first job, and how many it stored: fewer than all only with an error. A stream that
// was sealed, or canceled, is followed by the next. Of jobs that exceed a quota of their tenant together,
// half are tried, and so on.
func (s *streams) append(ctx context.Context, in *intake, payloads [][]byte) (id string, first int64, stored int, err error) {
	for n := len(payloads); ; {
		if openErr := s.open(ctx, in); openErr != nil {
			return "", 0, 0, openErr
		}
		received, appendErr := s.engine.store.Append(ctx, in.spec.ID, bulk.AtEnd, payloads[:n])
		var sealed *bulk.TransitionError
		var quota *bulk.QuotaError
		switch {
		case errors.As(appendErr, &sealed) || errors.Is(appendErr, bulk.ErrNotFound):
			in.next()
			continue
		case errors.As(appendErr, &quota) && n > 1:
			n, err = n/2, appendErr
			continue
		case quota != nil && received > 0 && in.part < maxParts/2:
			s.seal(ctx, in)
		}
		if appendErr != nil {
			return "", 0, 0, appendErr
		}
		id := in.spec.ID
		for _, p := range payloads[:n] {
			in.bytes += len(p)
		}
		if received >= streamJobs || in.bytes >= streamBytes {
			s.seal(ctx, in)
		}
		return id, received - int64(n), n, err
	}
}

// seal ends a stream before its window does, as it is large, or as its tenant can have no more stored:
// jobs count until their action ends.
func (s *streams) seal(ctx context.Context, in *intake) {
	if _, err := s.engine.Seal(ctx, in.spec.ID, bulk.AtEnd); err != nil { // the watcher seals it later
		s.engine.log.Warn("seal a stream before the end of its window", "action", in.spec.ID, "error", err)
	}
	in.next()
}

// open makes in.spec.ID the id of an open stream of the present window.
func (s *streams) open(ctx context.Context, in *intake) error {
	start := s.startOf(time.Now())
	if !in.start.Equal(start) {
		in.start, in.part, in.known = start, 0, false
	}
	for !in.known {
		if in.part >= maxParts {
			return fmt.Errorf("%w: its window has %d streams", bulk.ErrFull, maxParts)
		}
		in.spec.ID = streamID(in.spec, start, in.part)
		action, _, err := s.engine.create(ctx, in.spec)
		var exists *bulk.ExistsError
		switch {
		case errors.As(err, &exists) || err == nil && !action.Open:
			in.next()
		case err != nil:
			return err
		default:
			in.known, in.bytes = true, 0
		}
	}
	return nil
}

func (in *intake) next() { in.part, in.known = in.part+1, false }

// streamID returns the id of a stream: the same in all instances. The time comes first, as
// lists may cut the rest. Without a key and a cost it is that of earlier versions.
func streamID(spec bulk.Spec, start time.Time, part int) string {
	kind := []any{spec.Tenant, spec.Type, spec.Target, spec.Class, spec.MaxAttempts, spec.Timeout, spec.KeepResults}
	if spec.Key != "" || spec.Cost != 0 {
		kind = append(kind, spec.Key)
	}
	if spec.Cost != 0 {
		kind = append(kind, spec.Cost)
	}
	id := fmt.Sprintf("stream-%s-%s", start.UTC().Format("20060102T150405Z"), digest(kind...))
	if part > 0 {
		id += fmt.Sprintf(".%d", part+1)
	}
	return id
}

// window returns the length of the windows. A window that is longer than the retention could
// outlive a stream of it, and another one would get the same id.
func (s *streams) window() time.Duration {
	if r := s.engine.config.Retention; r > 0 {
		return min(r, s.engine.config.StreamWindow)
	}
	return s.engine.config.StreamWindow
}

func (s *streams) startOf(t time.Time) time.Time {
	return bulk.WindowStart(bulk.WindowIndex(t, s.window()), s.window())
}

// ends returns when a stream is to be sealed.
func (s *streams) ends(a *bulk.Unfinished) time.Time {
	return s.startOf(a.CreatedAt).Add(s.window() + sealMargin)
}
