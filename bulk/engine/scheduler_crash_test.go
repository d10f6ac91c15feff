package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// brittle is the store of a process that dies at its n-th write, before or after it: later
// calls have no effect.
type brittle struct {
	bulk.Store
	mu     sync.Mutex
	writes int
	dies   int
	after  bool
	dead   bool
}

var errDead = errors.New("the process has died")

// write makes a write, or dies.
func (b *brittle) write(f func() error) error {
	b.mu.Lock()
	if b.dead {
		b.mu.Unlock()
		return errDead
	}
	b.writes++
	dies := b.writes == b.dies
	b.dead = dies
	b.mu.Unlock()
	if dies && !b.after {
		return errDead
	}
	err := f()
	if dies {
		return errDead
	}
	return err
}

func (b *brittle) PutSchedule(ctx context.Context, s bulk.Schedule) (stored bulk.Schedule, err error) {
	err = b.write(func() error { stored, err = b.Store.PutSchedule(ctx, s); return err })
	return stored, err
}

func (b *brittle) RemoveSchedule(ctx context.Context, name string) error {
	return b.write(func() error { return b.Store.RemoveSchedule(ctx, name) })
}

func (b *brittle) Create(ctx context.Context, spec bulk.Spec) (a bulk.Action, created bool, err error) {
	err = b.write(func() error { a, created, err = b.Store.Create(ctx, spec); return err })
	return a, created, err
}

func (b *brittle) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	err = b.write(func() error { received, err = b.Store.Append(ctx, id, offset, payloads); return err })
	return received, err
}

func (b *brittle) Transition(ctx context.Context, id string, transition bulk.Transition) (a bulk.Action, err error) {
	if transition.Kind != bulk.Seal {
		return b.Store.Transition(ctx, id, transition)
	}
	err = b.write(func() error { a, err = b.Store.Transition(ctx, id, transition); return err })
	return a, err
}

// instance returns one more engine on the store, without workers.
func (r *rig) instance(store bulk.Store) *engine.Engine {
	r.t.Helper()
	e, err := engine.New(store, bulk.NewMux(), r.config, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	return e
}

func stop(t *testing.T, e *engine.Engine) {
	t.Helper()
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestScheduleOverCrashes checks that each run starts once, complete, if a process dies at
// any write of the run, before or after it, and another continues.
func TestScheduleOverCrashes(t *testing.T) {
	const writes = 5 // put, create, append, seal, put
	for dies := 1; dies <= 2*writes+1; dies++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(dies, " ", after), func(t *testing.T) {
				inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
					stop(t, r.Engine.Engine)
					b := &brittle{Store: r.Store()}
					e := r.instance(b)
					s := every("s", "* * * * *")
					s.Overlap = bulk.OverlapAllow // This engine has no workers.
					if _, _, err := e.PutSchedule(t.Context(), s); err != nil {
						t.Fatal(err)
					}
					b.mu.Lock()
					b.writes, b.dies, b.after = 0, dies, after
					b.mu.Unlock()
					pass(2*time.Minute + 10*time.Second)
					if b.dead != (dies <= 2*writes) {
						t.Fatalf("%d writes, dead %v: the %d-th is not what this test thinks", b.writes, b.dead, dies)
					}
					stop(t, e)
					r.Restart(t, sends(nil))
					pass(10 * time.Second)
					want := "20000101T000100Z 20000101T000200Z"
					if dies == 1 && !after {
						want = "20000101T000200Z" // The first run had not begun, so it was missed, and the second is the latest.
					}
					r.expectRuns(want)
					if s := r.scheduled("s"); !s.Pending.IsZero() || s.LastAction != "s:20000101T000200Z" {
						t.Errorf("afterwards: %+v", s)
					}
				})
			})
		}
	}
}

// TestScheduleChangedAfterCrash checks that a run left behind by a crash uses the schedule's
// fields of its beginning, even if the schedule is replaced or removed in the meantime.
func TestScheduleChangedAfterCrash(t *testing.T) {
	for dies := 2; dies <= 5; dies++ {
		for _, remove := range []bool{false, true} {
			t.Run(fmt.Sprint(dies, " ", remove), func(t *testing.T) {
				inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
					stop(t, r.Engine.Engine)
					b := &brittle{Store: r.Store(), dies: dies + 1}
					e := r.instance(b)
					if _, _, err := e.PutSchedule(t.Context(), every("s", "* * * * *")); err != nil {
						t.Fatal(err)
					}
					pass(time.Minute + time.Second)
					stop(t, e)
					next, err := engine.New(r.Store(), bulk.NewMux(), r.config) // not started
					if err != nil {
						t.Fatal(err)
					}
					if remove {
						err = next.RemoveSchedule(t.Context(), "s")
					} else {
						other := every("s", "* * * * *")
						other.Spec.Tenant, other.Jobs = "other", other.Jobs[:1]
						_, _, err = next.PutSchedule(t.Context(), other)
					}
					if err != nil {
						t.Fatal(err)
					}
					r.expectRuns("20000101T000100Z")
					if a := r.action("s:20000101T000100Z"); a.Tenant != "tenant" || a.Status == bulk.Created {
						t.Errorf("the run is of %s, %s; want that which was asked for when it began", a.Tenant, a.Status)
					}
					if all, err := r.Store().Schedules(t.Context()); err != nil || (len(all) == 0) != remove {
						t.Errorf("%d schedules, %v", len(all), err)
					}
					r.Restart(t, sends(nil))
				})
			})
		}
	}
}

// TestRemovalAfterCrash checks that an instance completes the removal that another began.
func TestRemovalAfterCrash(t *testing.T) {
	for dies := 1; dies <= 2; dies++ {
		for _, after := range []bool{false, true} {
			inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
				r.putSchedule(every("s", "* * * * *"))
				b := &brittle{Store: r.Store(), dies: dies, after: after}
				e, err := engine.New(b, bulk.NewMux(), r.config)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.RemoveSchedule(t.Context(), "s"); !errors.Is(err, errDead) {
					t.Fatal(err)
				}
				begun := dies > 1 || after
				if _, err := r.Schedule(t.Context(), "s"); errors.Is(err, bulk.ErrNoSchedule) != begun {
					t.Errorf("died at write %d: %v", dies, err)
				}
				pass(10 * time.Second)
				if all, err := r.Store().Schedules(t.Context()); err != nil || (len(all) == 0) != begun {
					t.Errorf("died at write %d: %d schedules, %v", dies, len(all), err)
				}
			})
		}
	}
}

// TestScheduleOnManyInstances checks that several instances start each run once, while some
// die.
func TestScheduleOnManyInstances(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		for n := range 5 {
			s := every(fmt.Sprint("s", n), "* * * * *")
			s.Overlap = bulk.OverlapAllow
			r.putSchedule(s)
		}
		var others []*engine.Engine
		for n := range 4 {
			others = append(others, r.instance(&brittle{Store: r.Store(), dies: 7 + 30*n, after: n%2 == 0}))
		}
		pass(10*time.Minute + 10*time.Second)
		for _, e := range others {
			stop(t, e)
		}
		actions, err := r.Store().Actions(t.Context(), bulk.ActionFilter{Status: bulk.Completed})
		if err != nil || len(actions) != 5*10 {
			t.Errorf("%d actions completed, %v; want 50", len(actions), err)
		}
		seen := map[string]bool{}
		for _, a := range actions {
			if seen[a.ID] || a.Received != 2 || a.Succeeded != 2 {
				t.Errorf("%s: %+v", a.ID, a.Counts)
			}
			seen[a.ID] = true
		}
	})
}

// TestRunNowTwice checks that two concurrent calls start one run each, one after the other.
func TestRunNowTwice(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, sends(nil), func(t *testing.T, r *rig) {
		s := every("s", "@yearly")
		s.Overlap = bulk.OverlapAllow
		r.putSchedule(s)
		var mu sync.Mutex
		var group sync.WaitGroup
		ids := map[string]bool{}
		for range 4 {
			group.Go(func() {
				a, err := r.RunNow(context.Background(), "s")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				ids[a.ID] = true
			})
		}
		group.Wait()
		synctest.Wait()
		if len(ids) != 4 || len(strings.Fields(r.runs())) != 4 {
			t.Errorf("the runs are %v; all: %s; want 4", ids, r.runs())
		}
	})
}
