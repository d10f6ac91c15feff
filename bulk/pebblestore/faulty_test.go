//go:build long && !race

package pebblestore

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

// faulty is a store with one deliberate mistake: each function that is set replaces,
// or changes the answer of, the call of its name.
type faulty struct {
	*Store
	// before tampers with the store before each call of the work: Fetch, Admit, Lease,
	// Settle and Dispatch.
	before func()
	// reopened tampers with a store that was opened again.
	reopened func()

	create     func(bulk.Spec) (bulk.Action, bool, error)
	append     func(id string, offset int64, payloads [][]byte) (int64, error)
	transition func(id string, transition bulk.Transition) (bulk.Action, error)
	show       func(*bulk.Action)
	list       func(bulk.ActionFilter, []bulk.Action) []bulk.Action
	backlog    func(*bulk.Backlog)
	admit      func([]bulk.Grant) (int, error)
	lease      func(bulk.LeaseRequest) ([]bulk.Job, error)
	settle     func([]bulk.Settlement) ([]bulk.Verdict, error)
	dead       func([]bulk.DeadLetter) []bulk.DeadLetter
	job        func(*bulk.JobState)
	keep       func(most int64) error
	events     func([]bulk.Event) []bulk.Event
	published  func(upTo uint64) error
	set        func(bulk.SettingsChange) error
	put        func(bulk.Schedule) (bulk.Schedule, error)
	remove     func(name string) error
	schedules  func([]bulk.Schedule) []bulk.Schedule
}

func (f *faulty) tamper() {
	if f.before != nil {
		f.before()
	}
}

func (f *faulty) shown(a bulk.Action) bulk.Action {
	if f.show != nil {
		f.show(&a)
	}
	return a
}

func (f *faulty) Create(ctx context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	if f.create != nil {
		return f.create(spec)
	}
	return f.Store.Create(ctx, spec)
}

func (f *faulty) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	if f.append != nil {
		return f.append(id, offset, payloads)
	}
	return f.Store.Append(ctx, id, offset, payloads)
}

func (f *faulty) Transition(ctx context.Context, id string, transition bulk.Transition) (a bulk.Action, err error) {
	if f.transition != nil {
		a, err = f.transition(id, transition)
	} else {
		a, err = f.Store.Transition(ctx, id, transition)
	}
	return f.shown(a), err
}

func (f *faulty) Action(ctx context.Context, id string) (bulk.Action, error) {
	a, err := f.Store.Action(ctx, id)
	return f.shown(a), err
}

func (f *faulty) Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error) {
	actions, err := f.Store.Actions(ctx, filter)
	for i := range actions {
		actions[i] = f.shown(actions[i])
	}
	if f.list != nil {
		actions = f.list(filter, actions)
	}
	return actions, err
}

func (f *faulty) Fetch(ctx context.Context, do func(*bulk.Backlog)) error {
	f.tamper()
	return f.Store.Fetch(ctx, func(b *bulk.Backlog) {
		if f.backlog != nil {
			f.backlog(b)
		}
		do(b)
	})
}

func (f *faulty) Admit(ctx context.Context, grants []bulk.Grant) (int, error) {
	f.tamper()
	if f.admit != nil {
		return f.admit(grants)
	}
	return f.Store.Admit(ctx, grants)
}

func (f *faulty) Lease(ctx context.Context, request bulk.LeaseRequest) ([]bulk.Job, error) {
	f.tamper()
	if f.lease != nil {
		return f.lease(request)
	}
	return f.Store.Lease(ctx, request)
}

func (f *faulty) Settle(ctx context.Context, settlements []bulk.Settlement) ([]bulk.Verdict, error) {
	f.tamper()
	if f.settle != nil {
		return f.settle(settlements)
	}
	return f.Store.Settle(ctx, settlements)
}

func (f *faulty) Dispatch(ctx context.Context, most int) (moved int, next time.Time, err error) {
	f.tamper()
	return f.Store.Dispatch(ctx, most)
}

func (f *faulty) Job(ctx context.Context, id string, index int64) (bulk.JobState, error) {
	j, err := f.Store.Job(ctx, id, index)
	if f.job != nil {
		f.job(&j)
	}
	return j, err
}

func (f *faulty) DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	letters, err := f.Store.DeadLetters(ctx, id, from, limit)
	if f.dead != nil {
		letters = f.dead(letters)
	}
	return letters, err
}

func (f *faulty) KeepEvents(ctx context.Context, most int64) error {
	if f.keep != nil {
		return f.keep(most)
	}
	return f.Store.KeepEvents(ctx, most)
}

func (f *faulty) Events(ctx context.Context) ([]bulk.Event, uint64, error) {
	events, upTo, err := f.Store.Events(ctx)
	if f.events != nil {
		events = f.events(events)
	}
	return events, upTo, err
}

func (f *faulty) Published(ctx context.Context, upTo uint64) error {
	if f.published != nil {
		return f.published(upTo)
	}
	return f.Store.Published(ctx, upTo)
}

func (f *faulty) Set(ctx context.Context, change bulk.SettingsChange) error {
	if f.set != nil {
		return f.set(change)
	}
	return f.Store.Set(ctx, change)
}

func (f *faulty) PutSchedule(ctx context.Context, s bulk.Schedule) (bulk.Schedule, error) {
	if f.put != nil {
		return f.put(s)
	}
	return f.Store.PutSchedule(ctx, s)
}

func (f *faulty) RemoveSchedule(ctx context.Context, name string) error {
	if f.remove != nil {
		return f.remove(name)
	}
	return f.Store.RemoveSchedule(ctx, name)
}

func (f *faulty) Schedules(ctx context.Context) ([]bulk.Schedule, error) {
	schedules, err := f.Store.Schedules(ctx)
	if f.schedules != nil {
		schedules = f.schedules(schedules)
	}
	return schedules, err
}

var ctx = context.Background()

// mistake is one promise that a store breaks, and the groups of the conformance suite
// that must find it.
type mistake struct {
	make   func(*faulty)
	groups []string
}

func by(groups string, make func(*faulty)) mistake { return mistake{make, strings.Fields(groups)} }

// settles changes each settlement.
func settles(groups string, change func(*bulk.Settlement)) mistake {
	return by(groups, func(f *faulty) {
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			settlements = slices.Clone(settlements)
			for i := range settlements {
				change(&settlements[i])
			}
			return f.Store.Settle(ctx, settlements)
		}
	})
}

// settled looks at each settlement that was accepted.
func settled(groups string, look func(f *faulty, s *bulk.Settlement)) mistake {
	return by(groups, func(f *faulty) {
		f.settle = func(settlements []bulk.Settlement) ([]bulk.Verdict, error) {
			verdicts, err := f.Store.Settle(ctx, settlements)
			for i, v := range verdicts {
				if v == bulk.Accepted {
					look(f, &settlements[i])
				}
			}
			return verdicts, err
		}
	})
}

// leases changes the jobs that are leased.
func leases(groups string, change func([]bulk.Job)) mistake {
	return by(groups, func(f *faulty) {
		f.lease = func(r bulk.LeaseRequest) ([]bulk.Job, error) {
			jobs, err := f.Store.Lease(ctx, r)
			change(jobs)
			return jobs, err
		}
	})
}

// sets changes each change of a target's or tenant's settings.
func sets(groups string, change func(f *faulty, c *bulk.SettingsChange)) mistake {
	return by(groups, func(f *faulty) {
		f.set = func(c bulk.SettingsChange) error {
			if c.Target != nil {
				target := *c.Target
				c.Target = &target
			}
			change(f, &c)
			return f.Store.Set(ctx, c)
		}
	})
}

// publishes changes the events that are returned.
func publishes(groups string, events func([]bulk.Event) []bulk.Event) mistake {
	return by(groups, func(f *faulty) { f.events = events })
}

// without drops events of a type.
func without(eventType string) func([]bulk.Event) []bulk.Event {
	return func(events []bulk.Event) []bulk.Event {
		return slices.DeleteFunc(slices.Clone(events), func(e bulk.Event) bool { return e.Type == eventType })
	}
}

// within tampers with the store's memory before each call.
func within(groups string, tamper func(s *Store)) mistake {
	return by(groups, func(f *faulty) {
		f.before = func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			tamper(f.Store)
		}
	})
}

// atReopen tampers with a store that was opened again.
func atReopen(groups string, tamper func(s *Store)) mistake {
	return by(groups, func(f *faulty) { f.reopened = func() { tamper(f.Store) } })
}

// counters are all limits of a store.
func (s *Store) counters() []*counter {
	all := []*counter{&s.global}
	for _, t := range s.tenants {
		all = append(all, &t.counter)
	}
	for _, t := range s.targets {
		all = append(all, &t.counter)
	}
	return all
}

// empty drops the events of the outbox.
func (s *Store) empty() {
	for {
		events, upTo, err := s.Events(ctx)
		if err != nil || len(events) == 0 {
			return
		}
		_ = s.Published(ctx, upTo)
	}
}

// faultyFactory opens stores with a mistake.
func faultyFactory(mistake func(*faulty)) storetest.Factory {
	d := &disks{of: map[bulk.Store]disk{}}
	reopen := func(t testing.TB, s bulk.Store) bulk.Store {
		f := s.(*faulty)
		f.Store = d.open(t, d.close(t, f.Store)).(*Store)
		if f.reopened != nil {
			f.reopened()
		}
		return f
	}
	return storetest.Factory{
		Open: func(t testing.TB, config bulk.Config) bulk.Store {
			f := &faulty{}
			if mistake == nil { // of the configuration
				config.MaxCrashes = 100
			} else {
				mistake(f)
			}
			f.Store = d.open(t, disk{vfs.NewCrashableMem(), config}).(*Store)
			return f
		},
		Reopen: reopen,
		Crash:  reopen,
	}
}

// TestConformanceFindsMistakes checks that each deliberate mistake fails the groups of
// the suite that are about it: without SLUICE_LONG, the first of them.
func TestConformanceFindsMistakes(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "1ms"} {
		option := flag.Lookup(name)
		before := option.Value.String()
		if err := option.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = option.Value.Set(before) })
	}
	t.Run("none by model", func(t *testing.T) {
		defer rapidtest.Checks(1, 3)()
		factory := faultyFactory(func(*faulty) {})
		factory.Rounds, factory.LongRounds = 1, 1
		if failure := storetest.Finds(t, factory, "model"); failure != "" {
			t.Fatalf("a store without a mistake: %s", failure)
		}
	})
	for name, m := range mistakes {
		groups := m.groups
		if os.Getenv("SLUICE_LONG") == "" {
			groups = groups[:1]
		}
		for _, group := range groups {
			t.Run(name+" by "+group, func(t *testing.T) {
				failure := storetest.Finds(t, faultyFactory(m.make), group)
				if failure == "" {
					t.Fatalf("%s passes a store with the mistake %q", group, name)
				}
				t.Log(failure)
			})
		}
	}
}
