package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// The tables of this file are the rules that a store with scripts must repeat. They are
// tested against the policies of package bulk, and against every store.
var policyCases = []testCase{
	{"settlements are judged as LeaseState does", false, judgeTable},
	{"settlements have the effect that their kind has", false, applyEffects},
	{"admitted jobs are charged to tags", false, chargeTags},
}

// fences has the verdicts by the fence of the settlement: none, the one before the job's
// last, the last, and one that was not given yet.
type fences struct{ none, before, last, after bulk.Verdict }

// verdictTable has the verdicts about a job. Reach brings the only job of an action into a
// state and returns its last lease, which is at least the second if the job has one.
var verdictTable = []struct {
	name  string
	state bulk.LeaseState
	reach func(k *kit) bulk.Job
	want  fences
}{
	{
		"in flight", bulk.LeaseState{Known: true, InFlight: true}, leasedTwice,
		fences{bulk.Unknown, bulk.Expired, bulk.Accepted, bulk.Unknown},
	},
	{
		"past its deadline", bulk.LeaseState{Known: true, InFlight: true, Deadline: time.Unix(1, 0)},
		func(k *kit) bulk.Job { return k.later(leasedTwice(k)) },
		fences{bulk.Unknown, bulk.Expired, bulk.Expired, bulk.Unknown},
	},
	{
		"lapsed", bulk.LeaseState{Known: true, Lapsed: true},
		func(k *kit) bulk.Job {
			j := k.later(leasedTwice(k))
			k.dispatch(1)
			return j
		},
		fences{bulk.Unknown, bulk.Expired, bulk.Expired, bulk.Unknown},
	},
	{
		"non-ready", bulk.LeaseState{Known: true}, func(k *kit) bulk.Job { return k.settledOnce(bulk.FailedForNow) },
		fences{bulk.Unknown, bulk.Expired, bulk.Duplicate, bulk.Unknown},
	},
	{
		"released", bulk.LeaseState{Known: true}, func(k *kit) bulk.Job { return k.settledOnce(bulk.Released) },
		fences{bulk.Unknown, bulk.Expired, bulk.Duplicate, bulk.Unknown},
	},
	{
		"succeeded", bulk.LeaseState{Finished: true}, func(k *kit) bulk.Job { return k.settledOnce(bulk.Succeeded) },
		fences{bulk.Expired, bulk.Expired, bulk.Duplicate, bulk.Expired},
	},
	{
		"failed", bulk.LeaseState{Finished: true}, func(k *kit) bulk.Job { return k.settledOnce(bulk.FailedForGood) },
		fences{bulk.Expired, bulk.Expired, bulk.Duplicate, bulk.Expired},
	},
	{
		"never admitted", bulk.LeaseState{}, func(k *kit) bulk.Job {
			return bulk.Job{Lease: bulk.LeaseID{Action: k.number("a"), Fence: 2}, Spec: &bulk.Spec{ID: "a"}}
		},
		fences{bulk.Unknown, bulk.Unknown, bulk.Unknown, bulk.Unknown},
	},
}

// leasedTwice leases the job for the second time, in its second attempt.
func leasedTwice(k *kit) bulk.Job {
	k.t.Helper()
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Millisecond}, k.takeOne())
	k.advance(time.Second)
	k.dispatch(1)
	return k.takeOne()
}

// later waits until the lease of a job has expired.
func (k *kit) later(j bulk.Job) bulk.Job {
	k.advance(31 * time.Second)
	return j
}

// settledOnce settles the second lease of the job.
func (k *kit) settledOnce(kind bulk.SettlementKind) bulk.Job {
	k.t.Helper()
	j := leasedTwice(k)
	k.settle(bulk.Settlement{Kind: kind, RetryAfter: time.Hour}, j)
	return j
}

func judgeTable(k *kit) {
	for _, c := range verdictTable {
		k.open(unlimited())
		k.run(spec("a", "tenant"), 1)
		j := c.reach(k)
		last := j.Lease.Fence
		for _, try := range []struct {
			fence uint32
			want  bulk.Verdict
		}{{0, c.want.none}, {last - 1, c.want.before}, {last + 1, c.want.after}, {last, c.want.last}} {
			j.Lease.Fence = try.fence
			v := k.verdict(j, bulk.Released)
			k.check(v == try.want, "%s, fence %d after lease %d: %s, want %s", c.name, try.fence, last, v, try.want)
		}
	}
}

// effectTable has the effect of a settlement of each kind on a job, of an action that
// continues or is canceled, in the first attempt of two or in the last.
var effectTable = []struct {
	kind                                         bulk.SettlementKind
	first, last, firstOfCanceled, lastOfCanceled bulk.Effect
}{
	{bulk.Succeeded, bulk.Succeeds, bulk.Succeeds, bulk.Succeeds, bulk.Succeeds},
	{bulk.FailedForGood, bulk.Fails, bulk.Fails, bulk.Fails, bulk.Fails},
	{bulk.FailedForNow, bulk.IsRetried, bulk.Fails, bulk.IsCanceled, bulk.IsCanceled},
	{bulk.Throttled, bulk.IsThrottled, bulk.IsThrottled, bulk.IsCanceled, bulk.IsCanceled},
	{bulk.Released, bulk.ReturnsToLine, bulk.ReturnsToLine, bulk.IsCanceled, bulk.IsCanceled},
	{bulk.Extended, bulk.StaysInFlight, bulk.StaysInFlight, bulk.StaysInFlight, bulk.StaysInFlight},
}

// whereAfter is the state of a job after each effect, with a RetryAfter.
var whereAfter = map[bulk.Effect]where{
	bulk.StaysInFlight: {InFlight: 1}, bulk.Succeeds: {Succeeded: 1}, bulk.Fails: {Failed: 1}, bulk.IsCanceled: {Canceled: 1},
	bulk.ReturnsToLine: {NonReady: 1}, bulk.IsThrottled: {NonReady: 1}, bulk.IsRetried: {NonReady: 1},
}

func applyEffects(k *kit) {
	for _, c := range effectTable {
		for i, want := range []bulk.Effect{c.first, c.last, c.firstOfCanceled, c.lastOfCanceled} {
			last, canceled := i%2 == 1, i >= 2
			k.open(unlimited())
			s := spec("a", "tenant")
			s.MaxAttempts = 2
			k.run(s, 1)
			take := (*kit).takeOne
			if last {
				take = leasedTwice
			}
			j := take(k)
			if canceled {
				k.transition("a", bulk.Transition{Kind: bulk.Cancel})
			}
			k.settle(bulk.Settlement{Kind: c.kind, RetryAfter: time.Hour, LeaseFor: time.Hour}, j)
			a := k.action("a")
			k.expect("a", whereAfter[want])
			k.check(a.Throttled == count(want == bulk.IsThrottled), "%d throttled attempts after kind %d", a.Throttled, c.kind)
			k.check(a.Retried == count(want == bulk.IsRetried)+count(last), "%d retries after kind %d", a.Retried, c.kind)
		}
	}
}

func count(of bool) int64 {
	if of {
		return 1
	}
	return 0
}

// tagTable has successive admissions, and after each the tags of the tenant and of its line,
// with virtual time. The two are the same, as there is one type.
var tagTable = []struct {
	tenant         string
	weight         float64
	jobs           int64
	taken, virtual float64
}{
	{"a", 1, 1, 1, 0},
	{"a", 1, 3, 4, 3},
	{"b", 4, 1, 3.25, 3}, // a newcomer begins at virtual time
	{"b", 4, 8, 5.25, 5}, // the charge is divided by the weight
	{"a", 1, 1, 6, 5},    // a tenant that fell behind begins at virtual time, not at its own tag
	{"c", 0.5, 2, 9, 7},
	{"a", 1, 1, 8, 7},
}

func chargeTags(k *kit) {
	k.open(unlimited())
	for i, c := range tagTable {
		id := fmt.Sprint("a", i)
		k.set(bulk.SettingsChange{Name: c.tenant, Tenant: &bulk.Tenant{Weight: c.weight}})
		k.run(spec(id, c.tenant), 20)
		k.check(k.admit(id, c.jobs) == int(c.jobs), "not all of %d jobs were admitted", c.jobs)
		b := k.backlog()
		line, _ := k.waiting(id, b)
		k.nearly(line.Taken, c.taken, "tag of tenant", c.tenant)
		k.nearly(line.TypeTaken, c.taken, "tag of the line of", c.tenant)
		k.nearly(b.Virtual, c.virtual, "virtual time after", c.tenant)
		k.nearly(b.Types["echo"].Virtual, c.virtual, "virtual time of the type after", c.tenant)
	}
}

// nearly compares a tag to the fourth digit.
func (k *kit) nearly(got, want float64, what, of string) {
	k.t.Helper()
	k.check(math.Abs(got-want) < 1e-4, "%s %s: %g, want %g", what, of, got, want)
}
