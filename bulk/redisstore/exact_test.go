//go:build redis

package redisstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// exactly is three shards, two instances, and the limits.
type exactly struct {
	t      *rapid.T
	stores []*Store
	clock  *clock
	inHand []bulk.Job
	// all and target limit attempts in a window, allMost and most those in flight; 0: no limit.
	all, allMost, target, most int
	window                     int64
	started                    [2]int // in the window: in total, and against the target
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
		x.window, x.started = w, [2]int{}
	}
}

// set changes a limit. The instance may end before it has told the shards.
func (x *exactly) set() {
	s, n := x.store(), rapid.SampledFrom([]int{0, 1, 3, 10, 30}).Draw(x.t, "limit")
	var value any
	name := settingTarget + "t"
	most := rapid.SampledFrom([]int{0, 1, 4, 12}).Draw(x.t, "in flight")
	if rapid.Bool().Draw(x.t, "of the target") {
		value = &bulk.TargetLimits{RequestsPerSecond: float64(n), Concurrency: most}
		x.target, x.most = n, most
	} else {
		x.all, x.allMost = n, most
		name, value = settingLimits, &bulk.Limits{RequestsPerSecond: float64(n), Concurrency: most}
	}
	if rapid.IntRange(0, 3).Draw(x.t, "ends") > 0 {
		x.must(s.set(x.t.Context(), name, value))
		return
	}
	text, err := json.Marshal(value)
	x.must(err)
	_, err = onHub(x.t.Context(), s, setScript, asInt, name, string(text))
	x.must(err)
	values, revision := s.settings.get()
	_, err = onShard(x.t.Context(), s, limitScript, 1, asArray, s.limitArgs(&values, revision, 1)...)
	x.must(err) // one shard gets the previous settings again
	x.must(x.store().loadSettings(x.t.Context()))
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
	against := slices.Collect(func(yield func(bulk.Job) bool) {
		for _, j := range jobs {
			if j.Spec.Target != nil && !yield(j) {
				return
			}
		}
	})
	x.started[0], x.started[1] = x.started[0]+len(jobs), x.started[1]+len(against)
	over := func(n, limit int) bool { return limit > 0 && n > limit }
	if len(jobs) > 0 && over(x.started[0], x.all) {
		x.t.Fatalf("%d started in a window of %d", x.started[0], x.all)
	}
	if len(against) > 0 && over(x.started[1], x.target) {
		x.t.Fatalf("%d started against the target in a window of %d", x.started[1], x.target)
	}
	flight := 0
	for _, j := range x.inHand {
		flight += flag(j.Spec.Target != nil)
	}
	if len(jobs) > 0 && over(len(x.inHand), x.allMost) {
		x.t.Fatalf("%d in flight, of which there may be %d", len(x.inHand), x.allMost)
	}
	if len(against) > 0 && over(flight, x.most) {
		x.t.Fatalf("%d in flight against the target, which may have %d", flight, x.most)
	}
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
	for still := 0; len(ids) > 0; still++ {
		if still == stuck {
			a, _ := x.stores[0].Action(x.t.Context(), ids[0])
			x.t.Fatalf("%d actions are stuck, with limits of %d (%d in flight) and %d (%d): %+v", len(ids), x.all, x.allMost, x.target, x.most, a.Counts)
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
		x.window, x.started = x.clock.ms.Load()/1000, [2]int{}
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
		var ids []string
		for i := range 4 {
			spec := bulk.Spec{ID: fmt.Sprint("a", i), Tenant: tenantOn(x.stores[0], i%3), Type: "echo", MaxAttempts: 100}
			if i > 0 {
				spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: "t", URL: "http://t/"}
			}
			start(t, x.stores[0], spec, 40)
			ids = append(ids, spec.ID)
		}
		steps := []func(){x.admit, x.admit, x.lease, x.lease, x.settle, x.advance, x.set, x.stray, func() {
			_, _, err := x.store().Dispatch(rt.Context(), 100)
			x.must(err)
		}}
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, len(steps)-1), 10, 60).Draw(rt, "steps") {
			steps[step]()
		}
		x.drain(ids)
	})
}
