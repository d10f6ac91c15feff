//go:build redis

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// pair is a master and a replica behind a proxy to the master.
type pair struct {
	t               *testing.T
	master, replica *redistest.Server
	proxy           *proxy
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, master: redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})}
	host, port := p.master.HostPort()
	p.replica = redistest.Start(t, redistest.Options{Args: []string{"--replicaof", host, port}})
	until.True(t, "the replica is connected", func() bool { return p.master.Info("connected_slaves") == "1" })
	p.proxy = newProxy(t, p.master.Addr())
	return p
}

// part ends the replication, once the replica is up to date.
func (p *pair) part() {
	p.t.Helper()
	until.True(p.t, "the replica has all", func() bool {
		p.master.Cli("SET", "mark", "1")
		return p.master.Cli("WAIT", "1", "1000") == "1" && p.replica.Cli("EXISTS", "mark") == "1"
	})
	p.replica.Cli("REPLICAOF", "NO", "ONE")
}

// failOver makes the replica the master: writes since part are lost. It returns when the
// store works again, over each of its connections.
func (p *pair) failOver(s *Store) {
	p.t.Helper()
	p.proxy.lead(p.replica.Addr())
	for range 10 {
		recovered(p.t, func() error { _, _, err := s.Dispatch(p.t.Context(), 0); return err })
		recovered(p.t, func() error { return s.drop(p.t.Context(), "none", numberBase, true) })
	}
}

func counting(count *atomic.Int64) *bulk.Mux {
	mux := bulk.NewMux()
	mux.HandleFunc("work", func(_ context.Context, j *bulk.Job) ([]byte, error) {
		count.Add(1)
		return j.Payload, nil
	})
	return mux
}

// loss is a service whose Redis loses its newest writes.
type loss struct {
	t      *testing.T
	pair   *pair
	store  *Store
	engine *engine.Engine
}

func newLoss(t *testing.T, shards int) *loss {
	l := &loss{t: t, pair: newPair(t)}
	config := bulk.Config{}.WithDefaults()
	l.store = open(t, Options{URL: l.pair.proxy.url(), Shards: shards, Bulk: config, Instance: "one"})
	l.engine = run(t, l.store, config, counting(new(atomic.Int64)))
	return l
}

func (l *loss) upload(id, tenant string, jobs int) {
	l.t.Helper()
	upload(l.t, l.store, bulk.Spec{ID: id, Tenant: tenant, Type: "work", Aggregate: []string{"sum:n"}}, jobs)
}

func (l *loss) finish(id string, jobs int64) {
	l.t.Helper()
	if _, err := l.engine.Seal(l.t.Context(), id, jobs); err != nil {
		l.t.Fatal(err)
	}
	completed(l.t, l.store, id, jobs)
}

// TestTheNewestWritesAreLost checks a service whose Redis has lost its newest writes. The
// seal detects lost jobs of an upload, and the client continues from the remaining ones; jobs
// whose outcome was lost run again; settings are the earlier ones until they are set again;
// and new actions get new numbers.
func TestTheNewestWritesAreLost(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			l := newLoss(t, shards)
			l.upload("a", "one", 1000)
			l.upload("b", "two", 100)
			l.pair.part()

			if _, err := l.store.Append(t.Context(), "a", 1000, payloads(1000, 500)); err != nil {
				t.Fatal(err)
			}
			l.finish("b", 100)
			l.upload("lost", "one", 10)
			l.finish("lost", 10)
			if err := l.engine.Set(t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: 5000}}); err != nil {
				t.Fatal(err)
			}
			lost, err := l.store.lookup(t.Context(), "lost")
			if err != nil {
				t.Fatal(err)
			}
			l.pair.failOver(l.store)

			l.uploadGoesOn()
			l.finish("a", 2000)
			l.finish("b", 100)
			if got := string(action(t, l.store, "a").Result["sum:n"]); got != `"1999000"` {
				t.Errorf("the sum is %s", got)
			}
			if _, err := l.store.Action(t.Context(), "lost"); !errors.Is(err, bulk.ErrNotFound) {
				t.Errorf("the action that was lost: %v", err)
			}
			l.upload("new", "one", 1)
			if n, err := l.store.lookup(t.Context(), "new"); err != nil || n <= lost {
				t.Errorf("a new action has the number %d, %v; one that was lost had %d", n, err, lost)
			}
			if settings, err := l.store.Settings(t.Context()); err != nil || settings.Limits != nil {
				t.Errorf("settings are %+v, %v", settings, err)
			}
		})
	}
}

// uploadGoesOn checks an action that lost 500 of its 1,500 jobs. The errors say so, and the
// client continues from 1,000 to 2,000.
func (l *loss) uploadGoesOn() {
	t := l.t
	t.Helper()
	recovered(t, func() error {
		a, err := l.store.Action(t.Context(), "a")
		if err == nil && a.Received != 1000 {
			t.Errorf("%d received, want what was received before", a.Received)
		}
		return err
	})
	_, err := l.engine.Seal(t.Context(), "a", 1500)
	if refused := (*bulk.TransitionError)(nil); !errors.As(err, &refused) || refused.Total != 1500 || refused.Received != 1000 {
		t.Errorf("sealed with 1,500: %v, want an error with both numbers", err)
	}
	beyond := (*bulk.OffsetError)(nil)
	if _, err := l.store.Append(t.Context(), "a", 1500, payloads(1500, 500)); !errors.As(err, &beyond) || beyond.Received != 1000 {
		t.Errorf("the upload goes on at 1,500: %v, want an error with 1,000", err)
	}
	if received, err := l.store.Append(t.Context(), "a", 1000, payloads(1000, 1000)); err != nil || received != 2000 {
		t.Errorf("%d received, %v", received, err)
	}
}

// TestWhatHadEndedGoesOn checks that jobs that were in flight or non-ready before the newest
// writes were lost are visible again, and continue.
func TestWhatHadEndedGoesOn(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := open(t, Options{URL: p.proxy.url(), Instance: "one"})
	start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 4)
	jobs := take(t, s, 4)
	p.part()
	if _, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs)); err != nil {
		t.Fatal(err)
	}
	for _, move := range []bulk.Transition{{Kind: bulk.Aggregate}, {Kind: bulk.Complete}} {
		if _, err := s.Transition(t.Context(), "a", move); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := s.Actions(t.Context(), bulk.ActionFilter{Unfinished: true}); err != nil || len(found) != 0 {
		t.Fatalf("%d actions are unfinished, %v", len(found), err)
	}
	p.failOver(s)
	recovered(t, func() error {
		found, err := s.Actions(t.Context(), bulk.ActionFilter{Unfinished: true})
		if err == nil && (len(found) != 1 || found[0].InFlight != 4) {
			t.Errorf("unfinished are %+v", found)
		}
		return err
	})
	verdicts, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs))
	for _, v := range verdicts {
		if v != bulk.Accepted {
			t.Errorf("settled again: %s", v)
		}
	}
	if a := action(t, s, "a"); err != nil || a.Succeeded != 4 {
		t.Errorf("counts are %+v, %v", a.Counts, err)
	}
}

// TestEventsAfterALoss checks that events after a loss have new ids.
func TestEventsAfterALoss(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := open(t, Options{URL: p.proxy.url()})
	if err := s.KeepEvents(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	p.part()
	ids := map[string]string{}
	tell := func(id string) {
		t.Helper()
		recovered(t, func() error {
			_, _, err := s.Create(t.Context(), bulk.Spec{ID: id, Tenant: "t", Type: "echo"})
			return err
		})
		var events []bulk.Event
		var upTo uint64
		recovered(t, func() (err error) {
			events, upTo, err = s.Events(t.Context())
			return err
		})
		if len(events) != 1 || events[0].Action != id {
			t.Fatalf("events are %+v", events)
		}
		if other := ids[events[0].ID]; other != "" {
			t.Errorf("the event of %s has the id of that of %s", id, other)
		}
		ids[events[0].ID] = id
		recovered(t, func() error { return s.Published(t.Context(), upTo) })
	}
	tell("lost")
	p.failOver(s)
	tell("new")
}

func ignore(err, wanted error) error {
	if errors.Is(err, wanted) {
		return nil
	}
	return err
}

// TestEverythingIsLost checks that running instances use a server again that has lost
// everything.
func TestEverythingIsLost(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			config := bulk.Config{RequestsPerSecond: 500}.WithDefaults()
			s := open(t, Options{URL: server.URL(), Shards: shards, Bulk: config})
			var ran atomic.Int64
			engine := run(t, s, config, counting(&ran))
			if err := engine.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{RequestsPerSecond: 100}}); err != nil {
				t.Fatal(err)
			}
			upload(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "work"}, 10)
			server.Restart()
			recovered(t, func() error { _, err := s.Action(t.Context(), "a"); return ignore(err, bulk.ErrNotFound) })
			var a bulk.Action
			recovered(t, func() (err error) {
				a, _, err = s.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "work"})
				return err
			})
			if a.Received != 0 {
				t.Errorf("%d were received before", a.Received)
			}
			// Each call may meet another connection that was lost.
			recovered(t, func() error { _, err := s.Append(t.Context(), "a", 0, payloads(0, 2000)); return err })
			// The limits are those of the config again.
			began := time.Now()
			recovered(t, func() error {
				_, err := engine.Seal(t.Context(), "a", 2000)
				return ignore(err, bulk.ErrNoChange)
			})
			completed(t, s, "a", 2000)
			if took := time.Since(began); took < 2*time.Second {
				t.Errorf("2,000 jobs ran in %v at 500 per second", took)
			}
		})
	}
}

// TestAShardWithoutSettings checks that a shard starts nothing before it knows the limits, and
// gets them: whoever made it again may have ended, or not have sent them yet.
func TestAShardWithoutSettings(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			config := bulk.Config{RequestsPerSecond: 5}.WithDefaults()
			s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL(), Shards: shards, Bulk: config})
			s.now = clock.now
			start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 100)
			limits := s.db.B().Del().Key(s.shards[s.shardOf("t")] + "limits").Build()
			if n, err := s.db.Do(t.Context(), limits).AsInt64(); err != nil || n != 1 {
				t.Fatal(err)
			}
			if n, err := admit(t.Context(), s, 100); n != 0 || !errors.Is(err, bulk.ErrUnavailable) {
				t.Errorf("%d jobs admitted, %v; want none before the shard has limits", n, err)
			}
			clock.advance(config.Window)
			if n, err := admit(t.Context(), s, 100); n != 5 || err != nil {
				t.Errorf("%d jobs admitted, %v; want 5", n, err)
			}
		})
	}
}

// lostAll returns a store with a limit of the config whose server has lost everything, and has been set up again without the limit.
func lostAll(t *testing.T, clock *clock, shards int) *Store {
	t.Helper()
	config := bulk.Config{RequestsPerSecond: 5}.WithDefaults()
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL(), Shards: shards, Bulk: config})
	s.now = clock.now
	if err := s.db.Do(t.Context(), s.db.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := s.fix(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	for _, base := range s.shards {
		if err := s.setup(t.Context(), base); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// admitsAnew checks that five jobs are admitted in the window that begins.
func admitsAnew(t *testing.T, s *Store, clock *clock) {
	t.Helper()
	clock.advance(s.config.Window)
	if n, err := admit(t.Context(), s, 100); n != 5 || err != nil {
		t.Errorf("%d jobs admitted, %v; want 5", n, err)
	}
}

// TestNothingStartsBetweenALossAndItsLimits checks that after a loss of everything nothing starts before the limit of the config
// is there again, whatever instances load in the meantime.
func TestNothingStartsBetweenALossAndItsLimits(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := lostAll(t, clock, shards)
			if err := s.loadSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 100)
			if n, err := admit(t.Context(), s, 100); n != 0 || !errors.Is(err, bulk.ErrUnavailable) {
				t.Errorf("%d jobs admitted, %v; want none before the limit is set again", n, err)
			}
			admitsAnew(t, s, clock)
		})
	}
}

// TestALossIsNoChangeOfTheLimit checks that an instance which finds that shards had later settings than the hub, as the hub has lost
// everything, makes them agree on the limit of the config.
func TestALossIsNoChangeOfTheLimit(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := lostAll(t, clock, shards)
			_, before := s.settings.get()
			if err := s.loadSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.mirror.mu.Lock()
			for shard := range s.mirror.shards { // as it looked at them before the loss
				s.mirror.shards[shard].revision = before
			}
			err := s.agree(t.Context(), before)
			s.mirror.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 100)
			admitsAnew(t, s, clock)
		})
	}
}
