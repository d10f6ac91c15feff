//go:build redis

package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// exactly is three shards, two instances, and the limits: of all, of a target, of a tenant, and of the
// keys of another one.
type exactly struct {
	t      *rapid.T
	stores []*Store
	clock  *clock
	inHand []bulk.Job
	limits []*exactLimit
	window int64
}

// exactLimit is a limit of the jobs that are of it, for each key that it tells of them. While not all
// shards know a change, the looser of both values holds.
type exactLimit struct {
	setting   string
	of        func(*bulk.Job) (key string, is bool)
	holds     [2]int // the most attempts in a window, and in flight; 0: no limit
	next      [2]int
	started   map[string]int // in the window
	valueWith func(n, most int) any
}

func newExactLimits(tenant, keyed string) []*exactLimit {
	return []*exactLimit{
		{setting: settingLimits, of: func(*bulk.Job) (string, bool) { return "", true }, valueWith: func(n, most int) any {
			return &bulk.Limits{RequestsPerSecond: float64(n), Concurrency: most}
		}},
		{setting: settingTarget + "t", of: func(j *bulk.Job) (string, bool) { return "", j.Spec.Target != nil }, valueWith: func(n, most int) any {
			return &bulk.TargetLimits{RequestsPerSecond: float64(n), Concurrency: most}
		}},
		{setting: settingTenant + tenant, of: func(j *bulk.Job) (string, bool) { return "", j.Spec.Tenant == tenant }, valueWith: func(n, most int) any {
			return &bulk.Tenant{RequestsPerSecond: float64(n), Concurrency: most}
		}},
		{setting: settingTenant + keyed, of: func(j *bulk.Job) (string, bool) { return fmt.Sprint(j.Index % 2), j.Spec.Tenant == keyed }, valueWith: func(n, most int) any {
			return &bulk.Tenant{Keys: map[string]bulk.KeyLimit{`string(int(payload.n) % 2)`: {RequestsPerSecond: float64(n), Concurrency: most}}}
		}},
	}
}

func (x *exactly) store() *Store { return x.stores[rapid.IntRange(0, 1).Draw(x.t, "instance")] }

func (x *exactly) must(err error) {
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *exactly) advance() {
	x.clock.advance(time.Duration(rapid.SampledFrom([]int{1, 100, 400, 1000, 5000}).Draw(x.t, "ms")) * time.Millisecond)
	if w := x.clock.ms.Load() / 1000; w != x.window {
		x.begin(w)
	}
}

// begin begins a window.
func (x *exactly) begin(window int64) {
	x.window = window
	for _, l := range x.limits {
		l.started = map[string]int{}
	}
}

// set changes a limit. The instance may end before it has told all shards, and may be of an earlier
// version.
func (x *exactly) set() {
	s, l := x.store(), rapid.SampledFrom(x.limits).Draw(x.t, "limit of")
	l.next = [2]int{rapid.SampledFrom([]int{0, 1, 3, 10, 30}).Draw(x.t, "limit"), rapid.SampledFrom([]int{0, 1, 4, 12}).Draw(x.t, "in flight")}
	value := l.valueWith(l.next[0], l.next[1])
	if rapid.IntRange(0, 3).Draw(x.t, "ends") > 1 {
		x.must(s.set(x.t.Context(), l.setting, value))
		x.known()
		return
	}
	for i, n := range l.next {
		if l.holds[i] > 0 && n > 0 {
			l.holds[i] = max(l.holds[i], n)
		} else {
			l.holds[i] = 0
		}
	}
	values, revision := s.settings.get()
	setOnly(x.t, s, l.setting, value, rapid.Bool().Draw(x.t, "earlier version"))
	_, err := onShard(x.t.Context(), s, limitScript, 1, asArray, s.limitArgs(&values, revision, 1)...)
	x.must(err) // one shard gets the previous settings again
	send := sender(x.t, s, rapid.Bool().Draw(x.t, "all settings"))
	for shard := range rapid.IntRange(0, 3).Draw(x.t, "sent") {
		send(shard)
	}
}

// load makes another instance finish what one has begun that ended.
func (x *exactly) load() {
	x.must(x.store().loadSettings(x.t.Context()))
	x.known()
}

// known tells that all shards know the newest settings.
func (x *exactly) known() {
	for _, l := range x.limits {
		l.holds = l.next
	}
}

func (x *exactly) admit() {
	_, err := admit(x.t.Context(), x.store(), int64(rapid.IntRange(1, 20).Draw(x.t, "jobs")))
	x.must(err)
}

// stray ends an instance between two steps of getting slots, or of returning them.
func (x *exactly) stray() {
	s, shard := x.store(), rapid.IntRange(0, 2).Draw(x.t, "shard")
	name := rapid.SampledFrom([]string{"g:t", "all"}).Draw(x.t, "limit")
	held, err := s.slotsHeld(x.t.Context(), name)
	x.must(err)
	if rapid.Bool().Draw(x.t, "back") {
		_, err = onShard(x.t.Context(), s, yieldScript, shard, asInts, "{}", name, number(held[shard].version))
		x.must(err)
		return
	}
	wants := map[string]want{"all": {attempts: 5, slots: 5}, "g:t": {attempts: 5, slots: 5}}
	x.must(s.grant(x.t.Context(), &terms{}, shard, time.UnixMilli(x.clock.ms.Load()), wants))
}

func (x *exactly) lease() {
	jobs, err := x.store().Lease(x.t.Context(), request(rapid.IntRange(1, 30).Draw(x.t, "most")))
	x.must(err)
	x.inHand = append(x.inHand, jobs...)
	for _, l := range x.limits {
		leased, flight := l.count(jobs), l.count(x.inHand)
		for key, n := range leased {
			l.started[key] += n
			if l.holds[0] > 0 && l.started[key] > l.holds[0] {
				x.t.Fatalf("%s, key %q: %d started in a window of %d", l.setting, key, l.started[key], l.holds[0])
			}
			if l.holds[1] > 0 && flight[key] > l.holds[1] {
				x.t.Fatalf("%s, key %q: %d in flight, of which there may be %d", l.setting, key, flight[key], l.holds[1])
			}
		}
	}
}

// count counts jobs by the keys that a limit tells.
func (l *exactLimit) count(jobs []bulk.Job) map[string]int {
	counts := map[string]int{}
	for i := range jobs {
		if key, is := l.of(&jobs[i]); is {
			counts[key]++
		}
	}
	return counts
}

func (x *exactly) settle() {
	n := rapid.IntRange(0, min(len(x.inHand), 10)).Draw(x.t, "settled")
	kind := rapid.SampledFrom([]bulk.SettlementKind{bulk.Succeeded, bulk.Released, bulk.FailedForNow}).Draw(x.t, "kind")
	list := settlements(kind, x.inHand[:n])
	for i := range list {
		list[i].RetryAfter = time.Second
	}
	verdicts, err := x.store().Settle(x.t.Context(), list)
	x.must(err)
	if slices.ContainsFunc(verdicts, func(v bulk.Verdict) bool { return v != bulk.Accepted }) {
		x.t.Fatalf("verdicts are %v", verdicts)
	}
	x.inHand = x.inHand[n:]
}

// stuck is how many seconds may pass without a job that is done. A limit of one in flight passes
// from shard to shard: some seconds go to one that has nothing left.
const stuck = 100

// drain runs until all jobs are done: none may be stuck.
func (x *exactly) drain(ids []string) {
	x.load()
	for still := 0; len(ids) > 0; still++ {
		if still == stuck {
			a, _ := x.stores[0].Action(x.t.Context(), ids[0])
			x.t.Fatalf("%d actions are stuck, with limits of %v, %v, %v and %v: %+v", len(ids), x.limits[0].holds, x.limits[1].holds, x.limits[2].holds, x.limits[3].holds, a.Counts)
		}
		verdicts, err := x.stores[0].Settle(x.t.Context(), settlements(bulk.Succeeded, x.inHand))
		x.must(err)
		if slices.ContainsFunc(verdicts, func(v bulk.Verdict) bool { return v != bulk.Accepted }) {
			x.t.Fatalf("verdicts are %v", verdicts)
		}
		if len(x.inHand) > 0 {
			still = 0
		}
		x.inHand = nil
		x.clock.advance(time.Second)
		x.begin(x.clock.ms.Load() / 1000)
		_, _, err = x.stores[0].Dispatch(x.t.Context(), 1000)
		x.must(err)
		_, err = admit(x.t.Context(), x.stores[0], 100)
		x.must(err)
		x.lease()
		ids = slices.DeleteFunc(ids, func(id string) bool {
			a, err := x.stores[0].Action(x.t.Context(), id)
			x.must(err)
			return a.Done() == a.Total
		})
	}
}

// TestLimitsAreExact checks, over shards and instances, with changing settings and instances
// that end between two steps, that no more starts than the present limits allow, and that no
// job is stuck.
func TestLimitsAreExact(t *testing.T) {
	t.Parallel()
	url, run := redistest.Start(t, redistest.Options{}).URL(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		x := &exactly{t: rt, clock: newClock()}
		x.clock.advance(time.Duration(run) * time.Hour)
		x.window = x.clock.ms.Load() / 1000
		for range 2 {
			s, err := Open(rt.Context(), Options{URL: url, Prefix: fmt.Sprint("run", run, ":"), Shards: 3, CallTimeout: patient, Bulk: unlimited(), Logger: quiet})
			x.must(err)
			defer func() { _ = s.Close() }()
			s.now = x.clock.now
			x.stores = append(x.stores, s)
		}
		x.limits = newExactLimits(tenantOn(x.stores[0], 0), tenantOn(x.stores[0], 1))
		keyed := x.limits[3] // a limit by key counts the jobs that start while it is set
		x.must(x.stores[0].set(rt.Context(), keyed.setting, keyed.valueWith(0, 0)))
		x.begin(x.window)
		var ids []string
		for i := range 4 {
			spec := bulk.Spec{ID: fmt.Sprint("a", i), Tenant: tenantOn(x.stores[0], i%3), Type: "echo", MaxAttempts: 100}
			if i > 0 {
				spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: "t", URL: "http://t/"}
			}
			start(t, x.stores[0], spec, 40)
			ids = append(ids, spec.ID)
		}
		steps := []func(){x.admit, x.admit, x.lease, x.lease, x.settle, x.advance, x.set, x.set, x.load, x.stray, func() {
			_, _, err := x.store().Dispatch(rt.Context(), 100)
			x.must(err)
		}}
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, len(steps)-1), 10, 60).Draw(rt, "steps") {
			steps[step]()
		}
		x.drain(ids)
	})
}
