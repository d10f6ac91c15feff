//go:build redis

package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestImport checks, for any history of an embedded store, that its import is equivalent to
// opening the embedded store again: actions, jobs, outcomes, dead letters, events, settings
// and schedules are equal, leases get equal verdicts, and the remaining jobs have equal
// results.
func TestImport(t *testing.T) {
	t.Parallel()
	spread := []int{3}
	if os.Getenv("SLUICE_LONG") != "" {
		spread = []int{1, 3}
	}
	for _, shards := range spread {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			h := &harness{crew: newCrew(t), url: redistest.Start(t, redistest.Options{}).URL(), shards: shards, of: map[bulk.Store]Options{}}
			seen := map[string]int{}
			// Histories are random: each of these must occur in some.
			missing := func(what string) bool { return seen[what] == 0 }
			for rounds := 0; slices.ContainsFunc([]string{"live", "open stream", "finished", "in flight", "dead letters", "events", "accepted"}, missing); rounds++ {
				if rounds == 20 {
					t.Fatalf("histories had %v: the test has lost a part of what it is for", seen)
				}
				rapid.Check(t, func(rt *rapid.T) {
					rapid.SyncTest(rt, func(rt *rapid.T) { checkImport(t, rt, h, seen) })
				})
			}
		})
	}
}

// imported is an embedded store that continues, and the same store after its import.
type imported struct {
	t              *rapid.T
	embedded, here bulk.Store
	seen           map[string]int
	// waited reports that time passed during the import, since a killed exchange may take its
	// whole timeout: a job that was lost ends before that time here, and after it in embedded.
	waited bool
}

func checkImport(t *testing.T, rt *rapid.T, h *harness, seen map[string]int) {
	p := newPast(rt, seen)
	p.happen(t)
	p.must(p.store.Close())
	source := p.fs
	p.reopen(source.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}))
	defer p.store.Close()
	image := openImage(rt, source)
	defer image.Close()
	look(rt, image, seen)
	options := Options{
		Prefix: fmt.Sprintf("import%d:", h.stores.Add(1)), Shards: h.shards, Bulk: p.config, Logger: slog.New(slog.DiscardHandler),
	}
	began := time.Now()
	for range rapid.IntRange(0, 3).Draw(rt, "kills") {
		h.killImport(rt, options, image, rapid.IntRange(1, 150).Draw(rt, "exchanges"), seen)
	}
	m := h.openImport(t, options, importOne, image)
	p.must(m.run(rt.Context(), image))
	p.must(m.Close())
	here := h.open(t, options)
	defer here.Close()
	if secret, err := here.Secret(rt.Context()); err != nil || len(secret) == 0 || !bytes.Equal(secret, image.Facts().Secret) {
		rt.Fatalf("the secret is %x, %v, want that of the image, %x", secret, err, image.Facts().Secret)
	}
	b := &imported{t: rt, embedded: p.store, here: here, seen: seen, waited: time.Since(began) > 0}
	b.compareActions()
	b.compareStored()
	b.compareResults()
	b.compareJobs(image)
	b.compareSettings()
	b.compareEvents(image)
	b.compareVerdicts(p.leases)
	b.compareActions()
	b.compareRest()
	b.compareActions()
}

func openImage(t *rapid.T, fs vfs.FS) *pebblestore.Image {
	image, err := pebblestore.OpenImage("data", pebblestore.Options{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

var importOne = ImportOptions{ID: "one", From: "data"}

// run does the remaining steps.
func (m *Import) run(ctx context.Context, image bulk.Image) error {
	if !m.Staged() {
		if err := m.Stage(ctx, image); err != nil {
			return err
		}
	}
	return m.Enter(ctx, image)
}

// killImport ends an import after some exchanges with the server. Then no instance may open
// the store.
func (h *harness) killImport(t *rapid.T, options Options, image bulk.Image, exchanges int, seen map[string]int) {
	m, err := h.tryImport(options, importOne, image)
	if err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(exchanges))
	m.s.exchange = func(f func()) {
		if left.Add(-1) == 0 {
			h.crew.do(m.s.db.Close)
		}
		h.crew.do(f)
	}
	err = m.run(t.Context(), image)
	h.crew.do(m.s.db.Close)
	if err != nil && !errors.Is(err, bulk.ErrClosed) {
		t.Fatal(err)
	}
	if m.Done() {
		return
	}
	seen["killed while "+m.state]++
	var unfinished *UnfinishedImportError
	if _, err := h.tryOpen(options); !errors.As(err, &unfinished) || unfinished.From != "data" {
		t.Fatalf("a store that is not taken over yet opens: %v", err)
	}
}

// openImport calls OpenImport in a bubble.
func (h *harness) openImport(t testing.TB, options Options, from ImportOptions, image bulk.Image) *Import {
	t.Helper()
	m, err := h.tryImport(options, from, image)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (h *harness) tryImport(options Options, from ImportOptions, image bulk.Image) (*Import, error) {
	s, err := h.connect(options)
	if err != nil {
		return nil, err
	}
	m := &Import{s: s, options: from}
	if err := m.open(context.Background(), options, image.Facts()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return m, nil
}

// look counts the contents of an image, to show what the test covers.
func look(t *rapid.T, image bulk.Image, seen map[string]int) {
	for a, err := range image.Actions() {
		if err != nil {
			t.Fatal(err)
		}
		note := func(what string, is bool) {
			if is {
				seen[what]++
			}
		}
		note("live", a.Live)
		note("finished", !a.Live)
		note("canceled and live", a.Live && a.Status == bulk.Canceled)
		note("created", a.Status == bulk.Created)
		note("open stream", a.Open)
		note("open stream, done", a.Open && a.Received > 0 && a.Done() == a.Received)
		note("paused", a.Paused)
		note("dead letters", a.Dead > 0)
		note("unreduced", a.Live && a.Batches > a.Reduced)
		note("partial", a.Live && len(a.Partial) > 0)
		note("throttled", a.NonReady[bulk.APIThrottled] > 0)
		note("in front", a.Live && a.Pending > a.Received-a.Next)
		for jobs, err := range image.Jobs(&a) {
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				note("aside", j.Phase == bulk.PhaseAside)
				note("in flight", j.Phase == bulk.PhaseInFlight && !j.Local)
				note("lost", j.Local)
				note("given up", j.Local && j.Crashes == 1)
			}
		}
	}
}

// equal fails if two values differ, and shows where.
func (b *imported) equal(what string, embedded, here any) {
	b.t.Helper()
	x, err1 := json.Marshal(embedded)
	y, err2 := json.Marshal(here)
	if err := errors.Join(err1, err2); err != nil {
		b.t.Fatal(err)
	}
	if string(x) != string(y) {
		at := 0
		for at < min(len(x), len(y)) && x[at] == y[at] {
			at++
		}
		from := max(0, at-300)
		b.t.Fatalf("%s, from byte %d on:\nembedded %.600s\nhere     %.600s", what, from, x[from:], y[from:])
	}
}

// both calls f for both stores.
func both[T any](b *imported, f func(s bulk.Store) (T, error)) (embedded, here T) {
	b.t.Helper()
	embedded, err := f(b.embedded)
	if err != nil {
		b.t.Fatal(err)
	}
	if here, err = f(b.here); err != nil {
		b.t.Fatal(err)
	}
	return embedded, here
}

// comparable drops what depends on the store: the unit of batches, fractions of milliseconds,
// and the partial result of a finished action.
func comparable(a bulk.Action) bulk.Action {
	a.Batches, a.Reduced = 0, 0
	a.CreatedAt, a.EnteredAt, a.FinishedAt = ms(a.CreatedAt), ms(a.EnteredAt), ms(a.FinishedAt)
	if a.Status.Final() {
		a.Partial = nil
	}
	return a
}

func ms(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func (b *imported) compareActions() {
	b.t.Helper()
	embedded, here := both(b, func(s bulk.Store) ([]bulk.Action, error) { return s.Actions(b.t.Context(), bulk.ActionFilter{}) })
	if len(embedded) != len(here) {
		b.t.Fatalf("%d actions, but %d here", len(embedded), len(here))
	}
	for i := range embedded {
		x, y := comparable(embedded[i]), comparable(here[i])
		if b.waited && x.Status.Final() {
			x.FinishedAt = y.FinishedAt
		}
		b.equal("an action", x, y)
	}
}

func (b *imported) compareResults() {
	actions, err := b.embedded.Actions(b.t.Context(), bulk.ActionFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range actions {
		embedded, here := both(b, func(s bulk.Store) ([]bulk.DeadLetter, error) {
			letters, err := s.DeadLetters(b.t.Context(), a.ID, 0, 1<<20)
			for i := range letters {
				letters[i].FailedAt = ms(letters[i].FailedAt)
			}
			return letters, err
		})
		b.equal("dead letters of "+a.ID, embedded, here)
		if a.Status.Final() {
			continue
		}
		b.equal("outcomes of "+a.ID, b.outcomes(b.embedded, a.ID), b.outcomes(b.here, a.ID))
	}
}

// outcomes returns the outcomes that were not reduced, by index.
func (b *imported) outcomes(s bulk.Store, id string) (all []bulk.Outcome) {
	a, err := s.Action(b.t.Context(), id)
	for upTo := a.Reduced; err == nil && upTo < a.Batches; {
		var some []bulk.Outcome
		some, upTo, err = s.Outcomes(b.t.Context(), id, upTo)
		all = append(all, some...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	slices.SortFunc(all, func(x, y bulk.Outcome) int { return cmp.Compare(x.Index, y.Index) })
	return all
}

func (b *imported) compareSettings() {
	embedded, here := both(b, func(s bulk.Store) (bulk.Settings, error) { return s.Settings(b.t.Context()) })
	b.equal("settings", embedded, here)
	x, y := both(b, func(s bulk.Store) ([]bulk.Schedule, error) {
		schedules, err := s.Schedules(b.t.Context())
		for i := range schedules {
			schedules[i].Revision = 0
		}
		return schedules, err
	})
	b.equal("schedules", x, y)
	found, foundHere := both(b, func(s bulk.Store) (map[string]float64, error) {
		backlog, err := storetest.Backlog(b.t.Context(), s)
		return backlog.Found, err
	})
	b.equal("rates", found, foundHere)
	b.compareBacklog()
}

// compareBacklog compares the totals over all actions.
func (b *imported) compareBacklog() {
	type counts struct {
		NonReady [4]int64
		Outbox   int64
		Types    map[string][2]int64
	}
	embedded, here := both(b, func(s bulk.Store) (counts, error) {
		backlog, err := storetest.Backlog(b.t.Context(), s)
		c := counts{backlog.NonReady, backlog.Outbox, map[string][2]int64{}}
		for name, state := range backlog.Types {
			c.Types[name] = [2]int64{state.InFlight, state.Waiting}
		}
		return c, err
	})
	b.equal("the backlog", embedded, here)
}

// compareEvents compares the events of each action. Those of the image have the same ids.
// Events of jobs that opening or importing has failed are new.
func (b *imported) compareEvents(image bulk.Image) {
	carried := map[string]bool{}
	for events, err := range image.Events() {
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range events {
			b.seen["events"]++
			carried[e.ID] = true
		}
	}
	embedded, here := both(b, func(s bulk.Store) (map[string][]bulk.Event, error) {
		told := map[string][]bulk.Event{}
		for {
			events, upTo, err := s.Events(b.t.Context())
			if err != nil || len(events) == 0 {
				for _, of := range told { // jobs that failed at one time have no order
					slices.SortStableFunc(of, func(x, y bulk.Event) int {
						if x.ID != "new" || y.ID != "new" {
							return 0
						}
						return cmp.Compare(x.Subject, y.Subject)
					})
				}
				return told, err
			}
			for _, e := range events {
				if !carried[e.ID] {
					e.ID, e.Time = "new", ms(e.Time)
				}
				told[e.Action] = append(told[e.Action], e)
			}
			if err := s.Published(b.t.Context(), upTo); err != nil {
				return told, err
			}
		}
	})
	b.equal("events", embedded, here)
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }
