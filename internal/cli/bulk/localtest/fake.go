package localtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
)

// RawResult encodes the values of a result as the store does.
func RawResult(values map[string]any) map[string]json.RawMessage {
	result := map[string]json.RawMessage{}
	for name, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		result[name] = raw
	}
	return result
}

// CountAndSum returns the result of an action of echoed jobs with the aggregates count, sum:amount
// and avg:amount.
func CountAndSum(a *bulk.Action, payloads [][]byte) map[string]any {
	sum := new(big.Rat)
	for _, payload := range payloads {
		var row struct{ Amount string }
		if err := json.Unmarshal(payload, &row); err != nil {
			panic(err)
		}
		value, ok := new(big.Rat).SetString(row.Amount)
		if !ok {
			panic(row.Amount)
		}
		sum.Add(sum, value)
	}
	return map[string]any{"count": a.Succeeded, "sum:amount": sum.FloatString(2), "avg:amount": "1.5"}
}

// Fake simulates running jobs: each second it finishes a number of them, divided evenly among the
// actions. Every failEvery-th job of an action fails.
type Fake struct {
	perSecond float64
	FailEvery int64
	// Throttles is how many attempts a target throttles, per finished job.
	Throttles float64
	// Result returns an action's result when it ends.
	Result func(a *bulk.Action, payloads [][]byte) map[string]any
	// CreateError and AppendError are returned by those methods.
	CreateError, AppendError error
	Index                    float64
	Windows                  int
	Stored                   bulk.Settings
	Broken                   chan struct{}

	Mu       sync.Mutex
	All      []*bulk.Action
	Payloads map[string][][]byte
	Biggest  int // the largest batch appended
	last     time.Time
	budget   float64
	Waits    bool // for Start
	Stopped  bool
	Closed   bool
}

func New(perSecond float64) *Fake {
	return &Fake{perSecond: perSecond, Payloads: map[string][][]byte{}, Broken: make(chan struct{})}
}

func (f *Fake) Open(string, bulk.Config, webhook.Options) (local.Engine, error) { return f, nil }

func (f *Fake) Create(_ context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	spec, err := spec.Normalize()
	if err = cmp.Or(err, f.CreateError); err != nil {
		return bulk.Action{}, false, err
	}
	if spec.ID == "" {
		spec.ID = "a-" + spec.Tenant
	}
	a := &bulk.Action{Spec: spec, Status: bulk.Created, CreatedAt: time.Now()}
	f.All = append(f.All, a)
	return *a, true, nil
}

func (f *Fake) find(id string) (*bulk.Action, error) {
	for _, a := range f.All {
		if a.ID == id {
			return a, nil
		}
	}
	return nil, bulk.ErrNotFound
}

func (f *Fake) Append(_ context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	a, err := f.find(id)
	if err = cmp.Or(err, f.AppendError); err != nil {
		return 0, err
	}
	if offset != a.Received {
		return 0, &bulk.OffsetError{Received: a.Received}
	}
	for _, payload := range payloads {
		f.Payloads[id] = append(f.Payloads[id], slices.Clone(payload))
	}
	f.Biggest = max(f.Biggest, len(payloads))
	a.Received += int64(len(payloads))
	a.Pending = a.Received
	return a.Received, nil
}

func (f *Fake) Move(id string, move bulk.Transition) (bulk.Action, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
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

func (f *Fake) Seal(_ context.Context, id string, total int64) (bulk.Action, error) {
	return f.Move(id, bulk.Transition{Kind: bulk.Seal, Total: total})
}

func (f *Fake) Cancel(_ context.Context, id string) (bulk.Action, error) {
	return f.Move(id, bulk.Transition{Kind: bulk.Cancel})
}

func (f *Fake) Action(_ context.Context, id string) (bulk.Action, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.advance(time.Now())
	a, err := f.find(id)
	if err != nil {
		return bulk.Action{}, err
	}
	return *a, nil
}

func (f *Fake) Actions(_ context.Context, filter bulk.ActionFilter) ([]bulk.Action, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.advance(time.Now())
	var list []bulk.Action
	for _, a := range f.All {
		if !filter.Unfinished || !a.Status.Final() {
			list = append(list, *a)
		}
	}
	return list, nil
}

// advance finishes the jobs of the time since the last call.
func (f *Fake) advance(now time.Time) {
	if f.Stopped || f.Waits {
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
		for _, a := range f.All {
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

func (f *Fake) finishOne(a *bulk.Action, now time.Time) {
	a.Status = bulk.Running
	a.Pending--
	if f.FailEvery > 0 && (a.Done()+1)%f.FailEvery == 0 {
		a.Failed++
		a.Retried += 3
	} else {
		a.Succeeded++
	}
	a.Throttled = int64(f.Throttles * float64(a.Done()))
	a.InFlight = min(a.Pending, 2)
	if a.Done() < a.Total {
		return
	}
	a.Status = bulk.Aggregating
	move := bulk.Transition{Kind: bulk.Complete}
	if f.Result != nil {
		move.Result = RawResult(f.Result(a, f.Payloads[a.ID]))
	}
	finished, err := a.Apply(move, now)
	if err != nil {
		panic(err)
	}
	*a = finished
}

func (f *Fake) DeadLetters(_ context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.advance(time.Now())
	a, err := f.find(id)
	if err != nil {
		return nil, err
	}
	var letters []bulk.DeadLetter
	for index := from; index < a.Done() && len(letters) < limit; index++ {
		if f.FailEvery > 0 && (index+1)%f.FailEvery == 0 {
			message := "target example.com:443 answered 500 Internal Server Error"
			if (index+1)%(2*f.FailEvery) == 0 {
				message = "422: the address\nis not valid"
			}
			letters = append(letters, bulk.DeadLetter{
				Action: id, Index: index, Payload: f.Payloads[id][index], Error: message, Attempts: 4,
				FailedAt: a.CreatedAt,
			})
		}
	}
	return letters, nil
}

func (f *Fake) Start(context.Context) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Waits = false
	for _, a := range f.All {
		if a.Status == bulk.Created {
			return fmt.Errorf("action %s is not sealed: it would start late", a.ID)
		}
	}
	return nil
}

func (f *Fake) Settings(context.Context) (bulk.Settings, error) { return f.Stored, nil }

func (f *Fake) Fairness() engine.Fairness { return engine.Fairness{Jain: f.Index, Windows: f.Windows} }

func (f *Fake) Failed() <-chan struct{} { return f.Broken }

func (f *Fake) Err() error { return errors.New("the store is broken") }

func (f *Fake) Stop(context.Context) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Stopped = true
	for _, a := range f.All {
		a.InFlight = 0
	}
	return nil
}

func (f *Fake) Close() error {
	if f.Closed {
		return fmt.Errorf("closed twice")
	}
	f.Closed = true
	return nil
}
