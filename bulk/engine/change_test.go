package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// manyActions is a store of unfinished actions, whose transitions take some time.
type manyActions struct {
	bulk.Store
	count int
	took  time.Duration
	// refuse returns the error of a transition.
	refuse func(id string) error
}

func (m *manyActions) KeepEvents(context.Context, int64) error { return nil }
func (m *manyActions) Secret(context.Context) ([]byte, error)  { return make([]byte, 32), nil }
func idOf(i int) string                                        { return fmt.Sprintf("a%06d", i) }
func (m *manyActions) action(i int) bulk.Action {
	spec := bulk.Spec{ID: idOf(i), Tenant: "acme", Type: "echo"}
	return bulk.Action{Spec: spec, Status: bulk.Running, Counts: bulk.Counts{Received: 2}}
}

func (m *manyActions) Actions(_ context.Context, f bulk.ActionFilter) (page []bulk.Action, err error) {
	first := 0
	if f.After != "" {
		if _, err := fmt.Sscanf(f.After, "a%d", &first); err != nil {
			return nil, err
		}
		first++
	}
	for i := first; i < m.count && len(page) < f.Limit; i++ {
		page = append(page, m.action(i))
	}
	return page, nil
}

func (m *manyActions) Transition(_ context.Context, id string, _ bulk.Transition) (bulk.Action, error) {
	if m.took > 0 { // timers of length zero crash the race detector in virtual time (golang.org/issue/78156)
		<-time.After(m.took)
	}
	return bulk.Action{}, m.refuse(id)
}

func (m *manyActions) engine(t *testing.T) *engine.Engine {
	t.Helper()
	if m.refuse == nil {
		m.refuse = func(string) error { return nil }
	}
	e, err := engine.New(m, bulk.NewMux(), bulk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAChangeIsBounded: one call looks at 10,000 actions, changes 1,000, and begins no more after
// five seconds; its next calls see to the rest.
func TestAChangeIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		store  manyActions
		change engine.Change
		// calls are needed for all; most is the most changes of one.
		calls, changed, most int
	}{
		"looked at": {manyActions{count: 25_000}, engine.Change{Tenant: "nobody"}, 3, 0, 0},
		"changed":   {manyActions{count: 2500}, engine.Change{Tenant: "acme"}, 3, 2500, 1000},
		"limited":   {manyActions{count: 25}, engine.Change{All: true, Limit: 7}, 4, 25, 7},
		"time":      {manyActions{count: 200, took: time.Second}, engine.Change{All: true}, 3, 200, 6 * 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := test.store.engine(t)
				test.change.Do = engine.DoPause
				calls, changed := 0, 0
				for calls == 0 || test.change.After != "" {
					got, err := e.Change(t.Context(), test.change)
					if err != nil || got.Changed > test.most {
						t.Fatalf("%+v, %v", got, err)
					}
					if got.Jobs != 2*int64(got.Changed) {
						t.Errorf("%+v, want two jobs for each action", got)
					}
					calls, changed, test.change.After = calls+1, changed+got.Changed, got.Next
				}
				if calls != test.calls || changed != test.changed {
					t.Errorf("%d changed in %d calls, want %d in %d", changed, calls, test.changed, test.calls)
				}
			})
		})
	}
}

// TestAChangeThatFails: what one action refuses is counted, and a store that fails ends the call.
func TestAChangeThatFails(t *testing.T) {
	refusals := map[string]error{
		idOf(1): &bulk.TransitionError{ID: idOf(1)}, idOf(3): bulk.ErrNotFound, idOf(4): &bulk.DeniedError{},
	}
	m := manyActions{count: 6, refuse: func(id string) error { return refusals[id] }}
	got, err := m.engine(t).Change(t.Context(), engine.Change{Do: engine.DoPause, All: true})
	if want := (engine.Changed{Matched: 6, Changed: 3, Jobs: 6}); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	refusals[idOf(2)] = bulk.ErrFull
	if _, err := m.engine(t).Change(t.Context(), engine.Change{Do: engine.DoPause, All: true}); !errors.Is(err, bulk.ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
}
