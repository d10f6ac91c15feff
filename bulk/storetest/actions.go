package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var actionCases = []testCase{
	{"actions are listed in the order of creation", false, actionsListed},
	{"unfinished actions are listed until they are drained", false, actionsUnfinished},
	{"actions are read while jobs are divided", false, actionsRead},
	{"a closed store says so", false, closed},
}

// expectActions expects actions by their ids; a last one after a slash is where to continue, if the list ends before
// all were looked at.
func (k *kit) expectActions(f bulk.ActionFilter, want string) {
	k.t.Helper()
	found, err := k.store.Actions(ctx, f)
	var look *bulk.LookError
	if !errors.As(err, &look) {
		k.must(err)
	}
	ids := []string{}
	for _, a := range found {
		k.addsUp(a)
		ids = append(ids, a.ID)
	}
	if look != nil {
		ids = append(ids, "/", look.After)
	}
	k.check(strings.Join(ids, " ") == want, "Actions(%+v): %v, want %s", f, ids, want)
}

// actionsListed uses ids whose order is not that of their creation.
func actionsListed(k *kit) {
	k.open(unlimited())
	k.expectActions(bulk.ActionFilter{}, "")
	for i, id := range strings.Fields("z y a10 a9 b x") {
		made := spec(id, []string{"even", "odd"}[i%2])
		if id == "x" {
			made.Stream = true
			made.Target = &bulk.Target{Name: `<t> & "ö"`, URL: "https://t.example"}
		}
		k.create(made)
		k.upload(id, 1)
	}
	for _, id := range []string{"y", "a10"} {
		k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: 1})
		k.transition(id, bulk.Transition{Kind: bulk.Start})
	}
	check := func() {
		k.expectActions(bulk.ActionFilter{}, "z y a10 a9 b x")
		k.expectActions(bulk.ActionFilter{Limit: 2}, "z y")
		k.expectActions(bulk.ActionFilter{Limit: 3, After: "y"}, "a10 a9 b")
		k.expectActions(bulk.ActionFilter{After: "b"}, "x")
		k.expectActions(bulk.ActionFilter{After: "x"}, "")
		k.expectActions(bulk.ActionFilter{Tenant: "odd"}, "y a9 x")
		k.expectActions(bulk.ActionFilter{Tenant: "odd", After: "y", Limit: 1}, "a9")
		k.expectActions(bulk.ActionFilter{Tenant: "nobody"}, "")
		k.expectActions(bulk.ActionFilter{Status: bulk.Running}, "y a10 x")
		k.expectActions(bulk.ActionFilter{Status: bulk.Running, Tenant: "even"}, "a10")
		k.expectActions(bulk.ActionFilter{Status: bulk.Created, Tenant: "even", Limit: 1, After: "z"}, "b")
		k.expectActions(bulk.ActionFilter{Tenant: "odd", Look: 3}, "y / a10")
		k.expectActions(bulk.ActionFilter{Tenant: "nobody", After: "a10", Look: 3}, "/ x")
		k.expectActions(bulk.ActionFilter{Tenant: "nobody", Look: 7}, "")
		k.expectActions(bulk.ActionFilter{Tenant: "even", Look: 3, Limit: 2}, "z a10")
		k.expectActions(bulk.ActionFilter{Tenant: "odd", Unfinished: true, Look: 3}, "y / a10")
		k.expectActions(bulk.ActionFilter{Callee: `<t> & "ö"`}, "x")
		k.expectActions(bulk.ActionFilter{Callee: `<t> & "ö"`, Unfinished: true}, "x")
		k.expectActions(bulk.ActionFilter{Callee: "nothing"}, "")
		k.expectActions(bulk.ActionFilter{Streams: true}, "x")
		k.expectActions(bulk.ActionFilter{Streams: true, Tenant: "even"}, "")
		k.expectActions(bulk.ActionFilter{Number: k.number("a10")}, "a10")
		k.expectActions(bulk.ActionFilter{Number: 1 << 60}, "")
	}
	check()
	if k.factory.Reopen != nil {
		k.reopen()
		check()
	}
	for _, id := range strings.Fields("z y a10 a9 b x") { // those that have ended are kept in another way
		k.transition(id, bulk.Transition{Kind: bulk.Cancel})
	}
	k.expectActions(bulk.ActionFilter{Status: bulk.Canceled}, "z y a10 a9 b x")
	k.expectActions(bulk.ActionFilter{Status: bulk.Running}, "")
	k.expectActions(bulk.ActionFilter{Status: bulk.Canceled, Tenant: "odd", Limit: 1, After: "y"}, "a9")
	k.expectActions(bulk.ActionFilter{Tenant: "nobody", Look: 4}, "/ a9")
	k.expectActions(bulk.ActionFilter{Callee: `<t> & "ö"`}, "x")
	k.expectActions(bulk.ActionFilter{Callee: "nothing", Status: bulk.Canceled}, "")
	k.expectActions(bulk.ActionFilter{Streams: true, Look: 5}, "/ b")
	k.expectActions(bulk.ActionFilter{Streams: true}, "x")
}

func actionsUnfinished(k *kit) {
	k.open(unlimited())
	for i, stage := range stages {
		stage.reach(k, fmt.Sprintf("a%02d", i))
		if i < len(stages)-1 && stage.name != "running, in flight" {
			k.leaveAlone()
		}
	}
	all, err := k.store.Actions(ctx, bulk.ActionFilter{})
	k.must(err)
	want := []string{}
	for _, a := range all {
		if !a.Status.Final() || a.FinishedAt.IsZero() {
			want = append(want, a.ID)
		}
	}
	k.check(len(want) == len(stages)-3, "%d stages are unfinished, want %d", len(want), len(stages)-3)
	k.expectActions(bulk.ActionFilter{Unfinished: true}, strings.Join(want, " "))
	k.expectActions(bulk.ActionFilter{Unfinished: true, After: want[2], Limit: 2}, strings.Join(want[3:5], " "))

	last := fmt.Sprintf("a%02d", len(stages)-1)
	k.check(slices.Contains(want, last), "a canceled action with a job in flight is not listed as unfinished")
	a := k.transition(last, bulk.Transition{Kind: bulk.Drained})
	k.check(a.FinishedAt.IsZero(), "drained with a job in flight")
	k.advance(time.Minute)
	k.dispatch(100)
	a = k.transition(last, bulk.Transition{Kind: bulk.Drained})
	k.check(a.FinishedAt.Equal(time.Now()), "drained at %v, want now, %v", a.FinishedAt, time.Now())
	k.expectActions(bulk.ActionFilter{Unfinished: true}, strings.Join(want[:len(want)-1], " "))
}

func actionsRead(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 1)
	k.must(k.store.Fetch(ctx, func(*bulk.Backlog) {
		a, err := k.store.Action(ctx, "a")
		k.must(err)
		k.check(a.Pending == 1, "%d jobs are pending, want 1", a.Pending)
		k.expectActions(bulk.ActionFilter{Limit: 1}, "a")
	}))
}

// leaveAlone pauses all running actions, so that the next stage leases only its own jobs.
func (k *kit) leaveAlone() {
	k.t.Helper()
	running, err := k.store.Actions(ctx, bulk.ActionFilter{Status: bulk.Running})
	k.must(err)
	for _, a := range running {
		k.store.Transition(ctx, a.ID, bulk.Transition{Kind: bulk.Pause})
	}
}

func closed(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 1)
	job := k.takeOne()
	k.must(k.store.Close())
	s := k.store
	calls := map[string]func() error{
		"Create":         func() error { _, _, err := s.Create(ctx, spec("b", "tenant")); return err },
		"Append":         func() error { _, err := s.Append(ctx, "a", 0, [][]byte{{'1'}}); return err },
		"Transition":     func() error { _, err := s.Transition(ctx, "a", bulk.Transition{Kind: bulk.Cancel}); return err },
		"Action":         func() error { _, err := s.Action(ctx, "a"); return err },
		"Actions":        func() error { _, err := s.Actions(ctx, bulk.ActionFilter{}); return err },
		"Fetch":          func() error { return s.Fetch(ctx, func(*bulk.Backlog) {}) },
		"Admit":          func() error { _, err := s.Admit(ctx, []bulk.Grant{{Number: job.Lease.Action, Jobs: 1}}); return err },
		"Lease":          func() error { _, err := s.Lease(ctx, request(1)); return err },
		"Dispatch":       func() error { _, _, err := s.Dispatch(ctx, 1); return err },
		"Outcomes":       func() error { _, _, err := s.Outcomes(ctx, "a", 0); return err },
		"DeadLetters":    func() error { _, err := s.DeadLetters(ctx, "a", 0, 1); return err },
		"Settings":       func() error { _, err := s.Settings(ctx); return err },
		"Set":            func() error { return s.Set(ctx, bulk.SettingsChange{Limits: &bulk.Limits{}}) },
		"Secret":         func() error { _, err := s.Secret(ctx); return err },
		"Schedules":      func() error { _, err := s.Schedules(ctx); return err },
		"PutSchedule":    func() error { _, err := s.PutSchedule(ctx, schedule("a")); return err },
		"RemoveSchedule": func() error { return s.RemoveSchedule(ctx, "a") },
		"Settle": func() error {
			_, err := s.Settle(ctx, []bulk.Settlement{{Lease: job.Lease, Kind: bulk.Succeeded}})
			return err
		},
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		err := calls[name]()
		k.check(errors.Is(err, bulk.ErrClosed), "%s of a closed store: %v, want ErrClosed", name, err)
	}
}
