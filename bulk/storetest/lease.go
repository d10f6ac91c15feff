package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var leaseCases = []testCase{
	{"a lease names its job", false, leaseNames},
	{"at most max, of the types asked for", false, leaseBounds},
	{"the payloads of one call are bounded", false, leaseBytes},
	{"a payload above the bound is leased alone", false, leaseLarge},
	{"types are served in turn", false, leaseInTurn},
	{"no job is leased twice at a time", false, leaseOnce},
	{"a settled lease is a duplicate", false, settleTwice},
	{"a lease that never was is unknown", false, settleUnknown},
	{"verdicts are in the order of the settlements", false, settleOrder},
	{"an expired lease returns its job", false, leaseExpires},
	{"a local lease expires too", false, leaseLocalExpires},
	{"a lease is extended", false, leaseExtended},
	{"a job whose lease expires too often is dead", false, leaseExpiresDead},
	{"a local lease that expires is a crash", false, leaseLocalExpiresDead},
	{"an expired lease is counted once", false, leaseExpiredOnce},
}

func leaseNames(k *kit) {
	k.open(unlimited())
	s := targeted("a", "tenant", "api")
	k.run(s, 2)
	number := k.number("a")
	k.advance(time.Second)
	for i, j := range k.take(2) {
		k.check(j.Index == int64(i) && j.Attempt == 1 && j.ID() == bulk.JobID("a", int64(i)), "job %+v", j)
		k.check(j.Spec.Equal(s), "spec %+v, want %+v", j.Spec, s)
		k.check(j.Lease.Action == number && int64(j.Lease.Index) == j.Index, "lease %+v", j.Lease)
		k.check(j.Deadline.Equal(time.Now().Add(30*time.Second)), "deadline %v, want in 30 s, %v", j.Deadline, time.Now())
	}
}

func leaseBounds(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 5)
	k.run(targeted("b", "tenant", "api"), 5)
	k.check(len(k.lease(10)) == 0, "a job that was not admitted was leased")
	k.admitAll()
	for _, r := range []bulk.LeaseRequest{
		{Types: nil, Max: 5}, {Types: []string{"other"}, Max: 5}, {Types: []string{"echo"}, Max: 0}, {Types: []string{"Echo", "ech", "echo2"}, Max: 5},
	} {
		r.LeaseFor = time.Minute
		k.check(len(k.leaseAs(r)) == 0, "Lease(%+v) leased a job", r)
	}
	n := len(k.leaseAs(bulk.LeaseRequest{Types: []string{"echo"}, Max: 3, LeaseFor: time.Minute}))
	k.check(n == 3, "leased %d of 5 echo jobs, want 3", n)
	n = len(k.leaseAs(bulk.LeaseRequest{Types: []string{"other", "echo"}, Max: 30, LeaseFor: time.Minute}))
	k.check(n == 2, "leased %d of the 2 echo jobs left", n)
	n = len(k.leaseAs(bulk.LeaseRequest{Types: []string{"webhook"}, Max: 30, LeaseFor: time.Minute}))
	k.check(n == 5, "leased %d of 5 webhook jobs", n)
}

// append adds payloads to a new action.
func (k *kit) append(id string, payloads ...[]byte) {
	k.t.Helper()
	_, err := k.store.Append(ctx, id, 0, payloads)
	k.must(err)
}

// start seals and starts an action, and admits its jobs.
func (k *kit) start(id string) {
	k.t.Helper()
	k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: k.action(id).Received})
	k.transition(id, bulk.Transition{Kind: bulk.Start})
	k.admitAll()
}

// leasePage leases up to n jobs, and checks the size of their payloads.
func (k *kit) leasePage(r bulk.LeaseRequest) []bulk.Job {
	k.t.Helper()
	jobs, err := k.store.Lease(ctx, r)
	k.must(err)
	bytes := 0
	for _, j := range jobs {
		bytes += len(j.Payload)
	}
	k.check(bytes <= bulk.MaxPageBytes || len(jobs) == 1, "one call leased %d jobs of %d bytes, want at most %d bytes", len(jobs), bytes, bulk.MaxPageBytes)
	return jobs
}

// leaseBytes has many small payloads first, so that the mean size says nothing of the rest.
func leaseBytes(k *kit) {
	k.open(unlimited())
	small, large := []byte(`"x"`), bytes.Repeat([]byte("x"), bulk.MaxPayloadBytes)
	k.create(spec("a", "tenant"))
	k.append("a", slices.Concat(slices.Repeat([][]byte{small}, 200), slices.Repeat([][]byte{large}, 11), [][]byte{small})...)
	k.create(targeted("b", "tenant", "api"))
	k.append("b", slices.Repeat([][]byte{large}, 3)...)
	k.start("a")
	k.start("b")
	seen := map[string]bool{}
	for calls := 0; len(seen) < 215; calls++ {
		k.check(calls < 40, "%d jobs were leased in %d calls, want 215", len(seen), calls)
		r := request(1000)
		r.Local = calls%2 == 0
		jobs := k.leasePage(r)
		k.check(len(jobs) > 0, "no job was leased while %d are ready", 215-len(seen))
		for _, j := range jobs {
			k.check(!seen[j.ID()] && j.Attempt == 1, "job %s was leased before, or attempted: attempt %d", j.ID(), j.Attempt)
			want := len(large)
			if j.Spec.ID == "a" && (j.Index < 200 || j.Index == 211) {
				want = len(small)
			}
			k.check(len(j.Payload) == want, "job %s has %d bytes, want %d", j.ID(), len(j.Payload), want)
			seen[j.ID()] = true
		}
		a, b := k.action("a"), k.action("b")
		k.check(a.InFlight+b.InFlight == int64(len(seen)) && a.Ready+b.Ready == 215-int64(len(seen)),
			"%d jobs were leased: counts %+v and %+v, want the others ready", len(seen), a.Counts, b.Counts)
	}
}

func leaseLarge(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	k.append("a", []byte("1"), bytes.Repeat([]byte("x"), bulk.MaxPageBytes+1), []byte("3"))
	k.start("a")
	var got []int64
	for range 4 {
		got = append(got, indexes(k.leasePage(request(10)))...)
	}
	k.check(slices.Equal(got, []int64{0, 1, 2}), "leased jobs %v, want 0, 1 and 2", got)
}

func leaseInTurn(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 50)
	k.run(targeted("b", "tenant", "api"), 50)
	k.admitAll()
	for range 5 {
		got := map[string]int{}
		for _, j := range k.lease(8) {
			got[j.Spec.ID]++
		}
		k.check(got["a"] == 4 && got["b"] == 4, "of 8 jobs of two types leased %v, want 4 each", got)
	}
	alone := map[string]int{}
	for range 10 {
		alone[k.lease(1)[0].Spec.ID]++
	}
	k.check(alone["a"] > 0 && alone["b"] > 0, "of 10 jobs leased one at a time: %v, want both types", alone)
	got := 0
	for range 50 {
		got += len(k.lease(1))
	}
	k.check(got == 50, "leased %d of the 50 left", got)
}

func leaseOnce(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 50)
	seen := map[int64]bool{}
	for range 30 {
		k.admitAll()
		for _, j := range k.lease(3) {
			k.check(!seen[j.Index], "job %d was leased twice", j.Index)
			seen[j.Index] = true
		}
		k.advance(time.Second / 2)
		k.dispatch(10)
	}
	k.check(len(seen) == 50, "%d of 50 jobs were leased", len(seen))
	k.expect("a", where{InFlight: 50})
}

func settleTwice(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 6)
	jobs := k.take(6)
	for i, kind := range []bulk.SettlementKind{bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.Throttled, bulk.Released} {
		k.settle(bulk.Settlement{Kind: kind}, jobs[i])
		before := k.action("a").Counts
		for again := bulk.Succeeded; again <= bulk.Released; again++ {
			v := k.verdict(jobs[i], again)
			k.check(v == bulk.Duplicate, "settled with kind %d, then again with %d: %s, want duplicate", kind, again, v)
		}
		v := k.verdicts(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, jobs[i])[0]
		k.check(v == bulk.Duplicate || v == bulk.Expired, "extended when settled: %s", v)
		k.check(k.action("a").Counts == before, "a duplicate changed the counts: %+v, want %+v", k.action("a").Counts, before)
	}
	verdicts := k.verdicts(bulk.Settlement{Kind: bulk.Succeeded}, jobs[5], jobs[5])
	k.check(verdicts[0] == bulk.Accepted && verdicts[1] == bulk.Duplicate, "settled twice in one call: %v", verdicts)
}

func settleUnknown(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 3)
	lease := k.takeOne().Lease
	waiting := bulk.LeaseID{Action: lease.Action, Index: 2, Fence: lease.Fence}
	for _, c := range []struct {
		lease   bulk.LeaseID
		expired bool
	}{
		{bulk.LeaseID{Action: lease.Action + 100, Index: lease.Index, Fence: lease.Fence}, false},
		{bulk.LeaseID{Index: lease.Index, Fence: lease.Fence}, false},
		{bulk.LeaseID{}, false},
		{bulk.LeaseID{Action: lease.Action, Index: 3, Fence: lease.Fence}, true},
		{bulk.LeaseID{Action: lease.Action, Index: 1<<32 - 1, Fence: lease.Fence}, true},
		{bulk.LeaseID{Action: lease.Action, Index: lease.Index, Fence: lease.Fence + 1}, true},
		{bulk.LeaseID{Action: lease.Action, Index: lease.Index, Fence: 1<<32 - 1}, true},
		{waiting, true},
	} {
		for kind := bulk.Succeeded; kind <= bulk.Extended; kind++ {
			v := k.verdicts(bulk.Settlement{Kind: kind, LeaseFor: time.Minute}, bulk.Job{Lease: c.lease, Spec: &bulk.Spec{}})[0]
			k.check(v == bulk.Unknown || c.expired && v == bulk.Expired, "settling %+v with kind %d: %s, want unknown", c.lease, kind, v)
		}
	}
	c := k.action("a").Counts
	k.check(c.InFlight == 1 && c.Done() == 0, "counts %+v, want one in flight and none done", c)
	verdicts, err := k.store.Settle(ctx, nil)
	k.must(err)
	k.check(len(verdicts) == 0, "verdicts on nothing: %v", verdicts)
}

func settleOrder(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "one"), 3)
	k.run(spec("b", "two"), 3)
	jobs := k.take(6)
	k.succeed(jobs[4])
	var settlements []bulk.Settlement
	for i, j := range jobs {
		lease := j.Lease
		if i == 2 {
			lease.Action += 50
		}
		settlements = append(settlements, bulk.Settlement{Lease: lease, Kind: bulk.Succeeded})
	}
	settlements = append(settlements, settlements[0])
	verdicts, err := k.store.Settle(ctx, settlements)
	k.must(err)
	for i, want := range map[int]bulk.Verdict{2: bulk.Unknown, 4: bulk.Duplicate, 6: bulk.Duplicate} {
		k.check(verdicts[i] == want, "verdict %d of %v, want %s", i, verdicts, want)
	}
	for _, i := range []int{0, 1, 3, 5} {
		k.check(verdicts[i] == bulk.Accepted, "verdict %d of %v, want accepted", i, verdicts)
	}
	k.check(k.action("a").Succeeded+k.action("b").Succeeded == 5, "not 5 jobs succeeded")
}

func leaseExpires(k *kit)      { k.expires(false) }
func leaseLocalExpires(k *kit) { k.expires(true) }

func (k *kit) expires(local bool) {
	k.t.Helper()
	k.open(unlimited())
	k.run(spec("a", "tenant"), 3)
	k.admitAll()
	r := request(1)
	r.Local = local
	old := k.leaseAs(r)[0]
	moved, next := k.dispatch(10)
	k.check(moved == 0 && k.near(next, old.Deadline), "next is %v, want the lease's deadline, %v", next, old.Deadline)
	k.advance(29 * time.Second)
	moved, _ = k.dispatch(10)
	k.check(moved == 0, "a lease expired before its deadline")
	k.advance(2 * time.Second)
	moved, _ = k.dispatch(10)
	k.check(moved == 1, "Dispatch moved %d jobs, want the expired one", moved)
	k.check(k.verdict(old, bulk.Succeeded) == bulk.Expired, "a late settlement was not answered with expired")
	v := k.verdicts(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, old)[0]
	k.check(v == bulk.Expired, "extending an expired lease: %s", v)
	k.lease(0) // Jobs are ready and no worker has asked for a while, so no more are admitted.
	k.admitAll()
	again := k.findLeased(0)
	attempt := 2
	if local {
		attempt = 1 // its process did not extend it: that is like a crash
	}
	k.check(again.Attempt == attempt, "attempt %d after an expired lease, want %d", again.Attempt, attempt)
	k.check(again.Lease != old.Lease, "two leases of a job have one id")
	k.check(k.verdict(old, bulk.Succeeded) == bulk.Expired, "a late settlement was not answered with expired, with the job in flight again")
	k.succeed(again)
	v = k.verdict(old, bulk.Succeeded)
	k.check(v == bulk.Expired, "a late settlement of a job done by a later lease: %s, want expired", v)
	k.check(k.action("a").Succeeded == 1, "succeeded %d, want 1", k.action("a").Succeeded)
}

// findLeased leases the ready jobs, and returns the job with an index.
func (k *kit) findLeased(index int64) bulk.Job {
	k.t.Helper()
	jobs := k.lease(100)
	for _, j := range jobs {
		if j.Index == index {
			return j
		}
	}
	k.t.Fatalf("leased %v, want job %d among them", indexes(jobs), index)
	return bulk.Job{}
}

// near reports whether two times are equal, to the millisecond that stores keep.
func (k *kit) near(got, want time.Time) bool {
	return got.Sub(want).Abs() <= time.Millisecond
}

// leaseLocalExpiresDead: a job with one attempt is not lost to a process that could not run it, until
// that has happened too often.
func leaseLocalExpiresDead(k *kit) {
	config := unlimited()
	config.MaxCrashes = 3
	k.open(config)
	s := aggregated("a")
	s.MaxAttempts = 1
	k.run(s, 1)
	r := request(1)
	r.Local = true
	for crash := 1; crash <= 3; crash++ {
		k.expect("a", where{Pending: 1})
		k.admitAll()
		jobs := k.leaseAs(r)
		k.check(len(jobs) == 1 && jobs[0].Attempt == 1, "leased %v after %d crashes", indexes(jobs), crash-1)
		k.advance(31 * time.Second)
		k.dispatch(10)
	}
	k.expect("a", where{Failed: 1})
	k.check(k.action("a").Retried == 0, "%d retries, want none: a crash is no attempt", k.action("a").Retried)
	dead, err := k.store.DeadLetters(ctx, "a", 0, 9)
	k.must(err)
	k.check(len(dead) == 1 && containsFold(dead[0].Error, "3 crashes"), "dead letters %+v", dead)
}

func leaseExtended(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 2)
	jobs := k.take(2)
	for range 5 {
		k.advance(25 * time.Second)
		k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: 30 * time.Second}, jobs[0])
		k.dispatch(10)
	}
	k.check(k.verdict(jobs[1], bulk.Succeeded) == bulk.Expired, "the lease that was not extended lives")
	_, next := k.dispatch(10)
	k.check(!next.IsZero() && !next.After(time.Now().Add(31*time.Second)), "next is %v, want by the new deadline", next)
	k.advance(10 * time.Second)
	k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: 2 * time.Second}, jobs[0])
	k.advance(3 * time.Second)
	moved, _ := k.dispatch(10)
	k.check(moved == 1, "a deadline that was moved closer did not hold: Dispatch moved %d", moved)
	k.check(k.verdict(jobs[0], bulk.Succeeded) == bulk.Expired, "the extended lease lives after its end")
}

func leaseExpiresDead(k *kit) {
	k.open(unlimited())
	s := aggregated("a")
	s.MaxAttempts = 3
	k.run(s, 1)
	var last bulk.Job
	for attempt := 1; attempt <= 3; attempt++ {
		last = k.takeOne()
		k.check(last.Attempt == attempt, "attempt %d, want %d", last.Attempt, attempt)
		k.advance(31 * time.Second)
		k.dispatch(10)
	}
	k.expect("a", where{Failed: 1})
	v := k.verdict(last, bulk.Succeeded)
	k.check(v == bulk.Expired || v == bulk.Duplicate, "settling a dead job's lease: %s", v)
	dead, err := k.store.DeadLetters(ctx, "a", 0, 10)
	k.must(err)
	k.check(len(dead) == 1 && dead[0].Attempts == 3 && dead[0].Error != "", "dead letters %+v", dead)
	k.check(containsFold(dead[0].Error, "lease", "expired"), "the dead letter's error %q does not say that the lease expired", dead[0].Error)
	outcomes := k.outcomes("a")
	k.check(len(outcomes) == 1 && !outcomes[0].Succeeded && outcomes[0].Attempts == 3, "outcomes %+v", outcomes)
}

// leaseExpiredOnce settles at and after the deadline, before Dispatch is called: either
// verdict is right, as long as the counts agree with it.
func leaseExpiredOnce(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 20)
	jobs := k.take(20)
	k.advance(30 * time.Second)
	accepted := int64(0)
	for i, j := range jobs {
		if i == 10 {
			k.advance(time.Second)
		}
		switch v := k.verdict(j, bulk.Succeeded); v {
		case bulk.Accepted:
			accepted++
		case bulk.Expired:
		default:
			k.t.Fatalf("settling past the deadline: %s, want accepted or expired", v)
		}
	}
	k.check(k.action("a").Succeeded == accepted, "%d accepted, %d succeeded", accepted, k.action("a").Succeeded)
	k.dispatch(100)
	k.admitAll()
	k.succeed(k.lease(100)...)
	k.expect("a", where{Succeeded: 20})
}
