package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// fakeRunner runs jobs on paper: each second it finishes so many, divided evenly
// among the actions. Every failEvery-th job of an action fails.
type fakeRunner struct {
	perSecond float64
	failEvery int64
	// throttles is how many attempts a target turns back, per finished job.
	throttles float64
	// result makes an action's result when it ends.
	result func(a *bulk.Action, payloads [][]byte) map[string]any
	// createError, appendError are returned by those methods.
	createError, appendError error
	jain                     float64
	windows                  int
	settings                 bulk.Settings
	failed                   chan struct{}

	mu       sync.Mutex
	actions  []*bulk.Action
	payloads map[string][][]byte
	biggest  int // the largest batch appended
	last     time.Time
	budget   float64
	waits    bool // for Start
	stopped  bool
	closed   bool
}

func newFakeRunner(perSecond float64) *fakeRunner {
	return &fakeRunner{perSecond: perSecond, payloads: map[string][][]byte{}, failed: make(chan struct{})}
}

func (f *fakeRunner) open(string, bulk.Config) (runner, error) { return f, nil }

func (f *fakeRunner) Create(_ context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	spec, err := spec.Normalize()
	if err = cmp.Or(err, f.createError); err != nil {
		return bulk.Action{}, false, err
	}
	if spec.ID == "" {
		spec.ID = "a-" + spec.Tenant
	}
	a := &bulk.Action{Spec: spec, Status: bulk.Created, CreatedAt: time.Now()}
	f.actions = append(f.actions, a)
	return *a, true, nil
}

func (f *fakeRunner) find(id string) (*bulk.Action, error) {
	for _, a := range f.actions {
		if a.ID == id {
			return a, nil
		}
	}
	return nil, bulk.ErrNotFound
}

func (f *fakeRunner) Append(_ context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.find(id)
	if err = cmp.Or(err, f.appendError); err != nil {
		return 0, err
	}
	if offset != a.Received {
		return 0, &bulk.OffsetError{Received: a.Received}
	}
	for _, payload := range payloads {
		f.payloads[id] = append(f.payloads[id], slices.Clone(payload))
	}
	f.biggest = max(f.biggest, len(payloads))
	a.Received += int64(len(payloads))
	a.Pending = a.Received
	return a.Received, nil
}

func (f *fakeRunner) move(id string, move bulk.Move) (bulk.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.find(id)
	if err != nil {
		return bulk.Action{}, err
	}
	if move.Kind == bulk.Cancel {
		a.Canceled, a.Pending, a.InFlight = a.Pending, 0, 0
	}
	*a, err = a.Apply(move, time.Now())
	return *a, err
}

func (f *fakeRunner) Seal(_ context.Context, id string, total int64) (bulk.Action, error) {
	return f.move(id, bulk.Move{Kind: bulk.Seal, Total: total})
}

func (f *fakeRunner) Cancel(_ context.Context, id string) (bulk.Action, error) {
	return f.move(id, bulk.Move{Kind: bulk.Cancel})
}

func (f *fakeRunner) Action(_ context.Context, id string) (bulk.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(time.Now())
	a, err := f.find(id)
	if err != nil {
		return bulk.Action{}, err
	}
	return *a, nil
}

func (f *fakeRunner) Actions(_ context.Context, filter bulk.ActionFilter) ([]bulk.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(time.Now())
	var list []bulk.Action
	for _, a := range f.actions {
		if !filter.Unfinished || !a.Status.Final() {
			list = append(list, *a)
		}
	}
	return list, nil
}

// advance finishes what the time since the last call allows.
func (f *fakeRunner) advance(now time.Time) {
	if f.stopped || f.waits {
		return
	}
	if f.last.IsZero() {
		f.last = now
		return
	}
	f.budget += f.perSecond * now.Sub(f.last).Seconds()
	f.last = now
	for ; f.budget >= 1; f.budget-- {
		var next *bulk.Action
		for _, a := range f.actions {
			if a.Status != bulk.Dispatched && a.Status != bulk.Running {
				continue
			}
			if next == nil || cmp.Or(cmp.Compare(a.Done(), next.Done()), cmp.Compare(a.Tenant, next.Tenant)) < 0 {
				next = a
			}
		}
		if next == nil {
			return
		}
		f.finishOne(next, now)
	}
}

func (f *fakeRunner) finishOne(a *bulk.Action, now time.Time) {
	a.Status = bulk.Running
	a.Pending--
	if f.failEvery > 0 && (a.Done()+1)%f.failEvery == 0 {
		a.Failed++
		a.Retried += 3
	} else {
		a.Succeeded++
	}
	a.Throttled = int64(f.throttles * float64(a.Done()))
	a.InFlight = min(a.Pending, 2)
	if a.Done() < a.Total {
		return
	}
	a.Status = bulk.Aggregating
	move := bulk.Move{Kind: bulk.Complete}
	if f.result != nil {
		move.Result = rawResult(f.result(a, f.payloads[a.ID]))
	}
	finished, err := a.Apply(move, now)
	if err != nil {
		panic(err)
	}
	*a = finished
}

func (f *fakeRunner) DeadLetters(_ context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(time.Now())
	a, err := f.find(id)
	if err != nil {
		return nil, err
	}
	var letters []bulk.DeadLetter
	for index := from; index < a.Done() && len(letters) < limit; index++ {
		if f.failEvery > 0 && (index+1)%f.failEvery == 0 {
			message := "500 Internal Server Error"
			if (index+1)%(2*f.failEvery) == 0 {
				message = "422: the address\nis not valid"
			}
			letters = append(letters, bulk.DeadLetter{
				Action: id, Index: index, Payload: f.payloads[id][index], Error: message, Attempts: 4,
			})
		}
	}
	return letters, nil
}

func (f *fakeRunner) Start(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits = false
	for _, a := range f.actions {
		if a.Status == bulk.Created {
			return fmt.Errorf("action %s is not sealed: it would start late", a.ID)
		}
	}
	return nil
}

func (f *fakeRunner) Settings(context.Context) (bulk.Settings, error) { return f.settings, nil }
func (f *fakeRunner) Jain() (float64, int)                            { return f.jain, f.windows }
func (f *fakeRunner) Failed() <-chan struct{}                         { return f.failed }
func (f *fakeRunner) Err() error                                      { return errors.New("the store is broken") }

func (f *fakeRunner) Stop(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, a := range f.actions {
		a.InFlight = 0
	}
	return nil
}

func (f *fakeRunner) Close() error {
	if f.closed {
		return fmt.Errorf("closed twice")
	}
	f.closed = true
	return nil
}
