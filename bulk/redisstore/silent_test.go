//go:build redis && long

package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// silentLoad has an action without a target and one against each target, on a silent shard and
// on one that answers.
func silentLoad(s *Store, silent, other int) []bulk.Spec {
	var specs []bulk.Spec
	for name, shard := range map[string]int{"silent": silent, "other": other} {
		for _, target := range []string{"", "rated", "narrow"} {
			spec := bulk.Spec{ID: name + target, Tenant: tenantOn(s, shard), Type: "work", Aggregate: []string{"sum:n"}}
			if target != "" {
				spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: target, URL: "http://" + target + "/"}
			}
			specs = append(specs, spec)
		}
	}
	return specs
}

// TestASilentMaster checks that the jobs of other shards run on two instances while a master of a
// cluster hangs. When it is back its jobs run too. No limit is exceeded, and each job is counted
// once.
func TestASilentMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Args: []string{"--cluster-require-full-coverage", "no"}})
	l := newLoad()
	config := bulk.Config{
		RequestsPerSecond: l.rate, Window: testWindow, Lease: testLease,
		DispatchInterval: 20 * time.Millisecond, FetchInterval: 40 * time.Millisecond,
	}.WithDefaults()
	seen := newStarts(testWindow, testLease)
	mux := bulk.NewMux()
	mux.HandleFunc("work", seen.handle)
	mux.HandleFunc(bulk.WebhookType, seen.handle)
	var stores []*Store
	var engines []*engine.Engine
	for n := range 2 {
		s := open(t, Options{URL: cluster.URL(), Shards: 6, Bulk: config, Instance: fmt.Sprint(n), CallTimeout: 2 * time.Second})
		stores, engines = append(stores, s), append(engines, run(t, s, config, mux))
	}
	s := stores[0]
	silent, other := besideTheHub(s, cluster)
	l.setTargets(t, s)
	const jobs = 120
	begin := func(n int, spec bulk.Spec) {
		// A busy machine may need longer than the call timeout.
		recovered(t, func() error { _, _, err := stores[n%2].Create(t.Context(), spec); return err })
		recovered(t, func() error { _, err := stores[n%2].Append(t.Context(), spec.ID, 0, payloads(0, jobs)); return err })
		recovered(t, func() error {
			_, err := engines[(n+1)%2].Seal(t.Context(), spec.ID, jobs)
			return ignore(err, bulk.ErrNoChange)
		})
	}
	for n, spec := range silentLoad(s, silent, other) {
		begin(n, spec)
	}
	ran := func() int {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return len(seen.times)
	}
	until.True(t, "some jobs have run", func() bool { return ran() > jobs/4 })
	master := cluster.MasterOf(s.shards[silent])
	master.Pause()
	// Without a target, or with a rate: slots of a concurrency may all be on the silent shard.
	completed(t, s, "other", jobs)
	completed(t, s, "otherrated", jobs)
	// One that begins while the master is silent.
	begin(1, bulk.Spec{ID: "late", Tenant: tenantOn(s, other), Type: "work"})
	completed(t, s, "late", jobs)
	master.Continue()
	for _, spec := range silentLoad(s, silent, other) {
		completed(t, stores[1], spec.ID, jobs)
	}
	if n := ran(); n != 7*jobs {
		t.Errorf("%d jobs ran, want %d", n, 7*jobs)
	}
	seen.checkAll(t, l)
}

// checkAll checks that no limit was exceeded.
func (s *starts) checkAll(t *testing.T, l load) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkLimit(t, "all", s.all, l.rate)
	s.checkLimit(t, "rated", s.rated, l.targetRate)
	if most := s.most.Load(); most > narrowMost {
		t.Errorf("%d ran against the target at once, want at most %d", most, narrowMost)
	}
}

// besideTheHub returns a shard on another master than the hub's, and one on that.
func besideTheHub(s *Store, cluster *redistest.Cluster) (beside, with int) {
	hub := cluster.MasterOf(s.hub)
	for shard, base := range s.shards {
		if cluster.MasterOf(base) == hub {
			with = shard
		} else {
			beside = shard
		}
	}
	return beside, with
}

// lines keeps the lines of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// spoil makes every script of a shard fail, until the function that it returns is called.
func spoil(t *testing.T, s *Store, shard int) (mend func()) {
	t.Helper()
	key := s.shards[shard] + "shard"
	rename := func(from, to string) {
		t.Helper()
		if err := s.db.Do(t.Context(), s.db.B().Rename().Key(from).Newkey(to).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	rename(key, key+"?")
	if err := s.db.Do(t.Context(), s.db.B().Set().Key(key).Value("no JSON").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	return func() { rename(key+"?", key) }
}

// TestASilentShard checks what each call does while one of three shards fails: what needs only the
// others succeeds, and what needs all of them says so. The log says once that it is silent, and
// once that it is back.
func TestASilentShard(t *testing.T) {
	t.Parallel()
	s, c := sharded(t)
	var log lines
	s.logger = slog.New(slog.NewTextHandler(&log, nil))
	concurrency(t, s, 6)
	start(t, s, against("a0", tenantOn(s, 0)), 4)
	held := take(t, s, 4)
	for shard := range 3 {
		start(t, s, against(fmt.Sprint("b", shard), tenantOn(s, shard)), 10)
	}
	mend := spoil(t, s, 0)
	if n := waiting(t, s); n != 2 {
		t.Errorf("%d actions wait, want those of the two shards that answer", n)
	}
	c.advance(time.Second)
	jobs := take(t, s, 2)
	if n, err := admit(t.Context(), s, 10); n != 0 || err != nil {
		t.Errorf("%d more were admitted, %v; want none beside the slots of the silent shard", n, err)
	}
	verdicts, err := s.Settle(t.Context(), settlements(bulk.Succeeded, append(held[:1:1], jobs...)))
	if !errors.Is(err, bulk.ErrUnavailable) || fmt.Sprint(verdicts) != fmt.Sprint([]bulk.Verdict{0, bulk.Accepted, bulk.Accepted}) {
		t.Errorf("verdicts are %v, %v", verdicts, err)
	}
	if _, _, err := s.Dispatch(t.Context(), 10); err != nil {
		t.Error("dispatch:", err)
	}
	all, err := s.Actions(t.Context(), bulk.ActionFilter{Unfinished: true})
	if len(all) != 2 || err != nil {
		t.Errorf("%d actions are unfinished, %v; want those of the shards that answer", len(all), err)
	}
	if all, err := s.Actions(t.Context(), bulk.ActionFilter{Unfinished: true, Limit: 10}); !errors.Is(err, bulk.ErrUnavailable) {
		t.Errorf("a page has %d actions, %v; want bulk.ErrUnavailable", len(all), err)
	}
	weight := bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{Weight: 2}}
	if err := s.Set(t.Context(), weight); !errors.Is(err, bulk.ErrUnavailable) {
		t.Errorf("set: %v, want bulk.ErrUnavailable", err)
	}
	if settings, err := s.Settings(t.Context()); err != nil || settings.Tenants["t"].Weight != 2 {
		t.Errorf("settings are %+v, %v", settings, err)
	}
	counts, err := s.StoredOf(t.Context(), []string{tenantOn(s, 0), tenantOn(s, 1)})
	if want := (bulk.Stored{Actions: 1, Jobs: 10, Bytes: counts[tenantOn(s, 1)].Bytes}); !errors.Is(err, bulk.ErrUnavailable) || len(counts) != 1 || counts[tenantOn(s, 1)] != want {
		t.Errorf("tenants have stored %+v, %v; want %+v of the shard that answers, and bulk.ErrUnavailable", counts, err, want)
	}
	mend()
	until.True(t, "the shard is back", func() bool { return waiting(t, s) == 3 })
	if verdicts, err := s.Settle(t.Context(), settlements(bulk.Succeeded, held)); err != nil || verdicts[0] != bulk.Accepted {
		t.Errorf("verdicts are %v, %v", verdicts, err)
	}
	c.advance(time.Second)
	if n, err := admit(t.Context(), s, 10); n != 6 || err != nil {
		t.Errorf("%d were admitted, %v; want all that may be in flight", n, err)
	}
	if fell, back := log.count("a shard does not answer"), log.count("a shard answers again"); fell != 1 || back != 1 {
		t.Errorf("the log says %d times that it is silent, and %d that it is back: %s", fell, back, log.text.String())
	}
}
