//go:build redis

package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// keys returns the names of all keys, sorted.
func keysOf(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := s.db.Do(t.Context(), s.db.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// forget ends an action as the watcher does, and forgets it.
func forget(t *testing.T, s *Store, id string) {
	t.Helper()
	a := action(t, s, id)
	moves := []bulk.Transition{{Kind: bulk.Aggregate}, {Kind: bulk.Reduce, Reduced: a.Batches}, {Kind: bulk.Complete}, {Kind: bulk.Replayed, Total: a.Received}, {Kind: bulk.Forget}}
	if a.Status == bulk.Canceled {
		moves = moves[4:]
	}
	for _, move := range moves {
		if _, err := s.Transition(t.Context(), id, move); err != nil {
			t.Fatalf("move %d of %s: %v", move.Kind, id, err)
		}
	}
}

// finishAll runs all jobs of the actions: one in five is throttled first, one in five fails,
// one in five is retried.
func finishAll(t *testing.T, s *Store, c *clock, ids []string) {
	t.Helper()
	ids, seen := slices.Clone(ids), map[string]bool{}
	for range 1000 {
		if _, _, err := s.Dispatch(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		if _, err := admit(t.Context(), s, 1000); err != nil {
			t.Fatal(err)
		}
		jobs, err := s.Lease(t.Context(), request(100))
		if err != nil {
			t.Fatal(err)
		}
		list := settlements(bulk.Succeeded, jobs)
		for i, j := range jobs {
			list[i].Values = []byte(`[1]`)
			id := j.ID()
			switch {
			case !seen[id] && j.Index%5 < 2:
				list[i].Kind = []bulk.SettlementKind{bulk.Throttled, bulk.FailedForNow}[j.Index%5]
			case j.Index%5 == 2:
				list[i].Kind, list[i].Error = bulk.FailedForGood, "no"
			}
			seen[id] = true
		}
		if _, err := s.Settle(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool {
			a := action(t, s, id)
			return a.Done() == a.Total
		})
		if len(ids) == 0 {
			return
		}
		c.advance(time.Second)
	}
	t.Fatalf("%d actions never finish: %+v", len(ids), action(t, s, ids[0]).Counts)
}

// TestNothingIsLeftBehind checks that no key of a forgotten action is left, however its jobs
// ended.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			server, c := redistest.Start(t, redistest.Options{}), newClock()
			config := unlimited()
			s := open(t, Options{URL: server.URL(), Shards: shards, Instance: "one", Bulk: config})
			s.now = c.now
			for _, change := range []bulk.SettingsChange{
				{Name: "tenant0", Tenant: &bulk.Tenant{RequestsPerSecond: 50}},
				{Name: "t", Target: &bulk.TargetLimits{RequestsPerSecond: 100, Concurrency: 40}},
			} {
				if err := s.Set(t.Context(), change); err != nil {
					t.Fatal(err)
				}
			}
			before := keysOf(t, s)
			for round := range 5 {
				liveAndForget(t, s, c, round)
			}
			checkLeft(t, s, before)
		})
	}
}

// liveAndForget runs some actions, ends them in different ways, and forgets them.
func liveAndForget(t *testing.T, s *Store, c *clock, round int) {
	t.Helper()
	var ids []string
	for i := range 6 {
		spec := bulk.Spec{ID: fmt.Sprintf("a%d-%d", round, i), Tenant: fmt.Sprintf("tenant%d", i%4), Type: "echo", Aggregate: []string{"count"}, MaxAttempts: 3}
		if i%2 == 0 {
			spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: "t", URL: "http://t/"}
		}
		start(t, s, spec, 40)
		ids = append(ids, spec.ID)
	}
	// Cancel two actions with waiting, ready, in-flight and turned-back jobs.
	jobs := take(t, s, 60)
	if _, err := s.Settle(t.Context(), settlements(bulk.Throttled, jobs[:20])); err != nil {
		t.Fatal(err)
	}
	if _, err := admit(t.Context(), s, 10); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[:2] {
		if _, err := s.Transition(t.Context(), id, bulk.Transition{Kind: bulk.Pause}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Transition(t.Context(), id, bulk.Transition{Kind: bulk.Cancel}); err != nil {
			t.Fatal(err)
		}
	}
	if round%2 == 0 { // else they are forgotten with jobs in flight
		if _, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs[20:])); err != nil {
			t.Fatal(err)
		}
	} else if _, err := s.Settle(t.Context(), settlements(bulk.Released, slices.DeleteFunc(slices.Clone(jobs[20:]), func(j bulk.Job) bool { return slices.Contains(ids[:2], j.Spec.ID) }))); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[:2] {
		forget(t, s, id)
	}
	finishAll(t, s, c, ids[2:])
	for _, id := range ids[2:] {
		forget(t, s, id)
	}
	// Late settlements find no lease.
	for _, kind := range []bulk.SettlementKind{bulk.Succeeded, bulk.Throttled, bulk.Extended} {
		verdicts, err := s.Settle(t.Context(), settlements(kind, jobs))
		if err != nil || slices.ContainsFunc(verdicts, func(v bulk.Verdict) bool { return v != bulk.Unknown }) {
			t.Errorf("late settlements of kind %d: %v, %v", kind, verdicts, err)
		}
	}
	if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Target: &bulk.TargetLimits{RequestsPerSecond: 100, Concurrency: 41 + round}}); err != nil {
		t.Fatal(err)
	}
}

// checkLeft fails on keys that are new and remain, and on recorded changes of things that do
// not exist.
func checkLeft(t *testing.T, s *Store, before []string) {
	t.Helper()
	fixed := []string{"gone", "changed", "sequence", "slots:g:t"}
	for _, key := range keysOf(t, s) {
		name := key[strings.LastIndex(key, "}")+2:]
		if slices.Contains(before, key) || slices.Contains(fixed, name) {
			continue
		}
		ttl, err := s.db.Do(t.Context(), s.db.B().Pttl().Key(key).Build()).AsInt64()
		if err != nil || ttl == -1 {
			t.Errorf("the key %q stays, %v", key, err)
		}
	}
	for i, base := range s.shards {
		names, err := s.db.Do(t.Context(), s.db.B().Zrange().Key(base+"changed").Min("0").Max("-1").Build()).AsStrSlice()
		if err != nil || len(names) != 1 || names[0] != "shard" {
			t.Errorf("changes of shard %d are of %q, %v; want its own", i, names, err)
		}
		text, err := s.db.Do(t.Context(), s.db.B().Get().Key(base+"shard").Build()).ToString()
		if err != nil || !strings.Contains(text, `"aside":[0,0,0]`) || !strings.Contains(text, `"kinds":{}`) {
			t.Errorf("shard %d is left as %s, %v", i, text, err)
		}
	}
	for _, name := range []string{"ids", "claims", "order"} {
		if n, err := s.db.Do(t.Context(), s.db.B().Exists().Key(s.hub+name).Build()).AsInt64(); err != nil || n != 0 {
			t.Errorf("the hub keeps %s, %v", name, err)
		}
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range s.mirror.shards {
		if n := len(s.mirror.shards[i].actions); n != 0 {
			t.Errorf("the mirror of shard %d has %d actions", i, n)
		}
	}
}

// TestMuchIsCanceled checks that canceling an action with more jobs turned back than one
// script should read leaves nothing of them.
func TestMuchIsCanceled(t *testing.T) {
	t.Parallel()
	const jobs = 5000
	server, c := redistest.Start(t, redistest.Options{}), newClock()
	s := open(t, Options{URL: server.URL()})
	s.now = c.now
	before := keysOf(t, s)
	start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, jobs)
	start(t, s, bulk.Spec{ID: "b", Tenant: "t", Type: "echo"}, 1)
	all := take(t, s, jobs+1)
	all = slices.DeleteFunc(all, func(j bulk.Job) bool { return j.Spec.ID == "b" })
	for i, kind := range []bulk.SettlementKind{bulk.Throttled, bulk.FailedForNow, bulk.Released} {
		if _, err := s.Settle(t.Context(), settlements(kind, all[i*1500:(i+1)*1500])); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := s.Transition(t.Context(), "a", bulk.Transition{Kind: bulk.Cancel}); err != nil || a.Canceled != 4500 || a.InFlight != 500 || a.NonReadyTotal() != 0 {
		t.Fatalf("canceled: %+v, %v", a.Counts, err)
	}
	b, err := storetest.Backlog(t.Context(), s)
	if err != nil || b.NonReady != (bulk.Backlog{}).NonReady {
		t.Errorf("turned back: %v, %v", b.NonReady, err)
	}
	states := func() int64 {
		n, err := s.db.Do(t.Context(), s.db.B().Hlen().Key(s.shards[0]+"j:"+number(int64(all[0].Lease.Action))).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := states(); n != 500 {
		t.Errorf("%d states are kept, want those of 500 jobs in flight", n)
	}
	verdicts, err := s.Settle(t.Context(), settlements(bulk.Succeeded, all[4500:]))
	if err != nil || slices.ContainsFunc(verdicts, func(v bulk.Verdict) bool { return v != bulk.Accepted }) {
		t.Fatalf("those in flight end: %v, %v", verdicts, err)
	}
	if _, err := s.Transition(t.Context(), "a", bulk.Transition{Kind: bulk.Drained}); err != nil {
		t.Fatal(err)
	}
	if a := action(t, s, "a"); a.Succeeded != 500 || a.Canceled != 4500 {
		t.Errorf("counts are %+v", a.Counts)
	}
	c.advance(time.Hour)
	finishAll(t, s, c, []string{"b"})
	forget(t, s, "a")
	forget(t, s, "b")
	checkLeft(t, s, before)
}

// TestASweepIsBrokenOff checks that the work of an interrupted sweep is done when due times
// come, and before the action is forgotten.
func TestASweepIsBrokenOff(t *testing.T) {
	t.Parallel()
	server, c := redistest.Start(t, redistest.Options{}), newClock()
	s := open(t, Options{URL: server.URL()})
	s.now = c.now
	before := keysOf(t, s)
	start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 100)
	if _, err := s.Settle(t.Context(), settlements(bulk.Throttled, take(t, s, 100))); err != nil {
		t.Fatal(err)
	}
	n, err := s.lookup(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.read(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	next, err := st.action.Apply(bulk.Transition{Kind: bulk.Cancel}, st.now)
	if err != nil {
		t.Fatal(err)
	}
	if done, _, err := s.tryMove(t.Context(), st, next, bulk.Transition{Kind: bulk.Cancel}); err != nil || !done {
		t.Fatalf("canceled without a sweep: %v, %v", done, err)
	}
	c.advance(50 * time.Second)
	moved, _, err := s.Dispatch(t.Context(), 1000)
	if err != nil || moved == 0 || moved == 100 {
		t.Fatalf("%d were dispatched, %v; want some of them", moved, err)
	}
	if a := action(t, s, "a"); a.Canceled != 100 {
		t.Errorf("counts are %+v", a.Counts)
	}
	forget(t, s, "a")
	if due, err := s.db.Do(t.Context(), s.db.B().Zcard().Key(s.shards[0]+"due").Build()).AsInt64(); err != nil || due != 0 {
		t.Errorf("%d are due, %v", due, err)
	}
	checkLeft(t, s, before)
}
