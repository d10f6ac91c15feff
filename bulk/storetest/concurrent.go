package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var concurrentCases = []testCase{
	{"everything is counted once", false, concurrentCounts},
	{"of the same call made at once one is made", false, concurrentSame},
	{"uploads that overlap are stored once", false, concurrentUploads},
}

const (
	crowd      = 8
	crowdLimit = 400
)

// crowdRun is a crowd of goroutines, each of which uploads an action and then works for all
// actions until every job is done.
type crowdRun struct {
	*kit
	jobs     int64               // of each action
	accepted [crowd]atomic.Int64 // accepted final settlements, by action
	started  sync.Map            // window index → *atomic.Int64
	left     atomic.Int64
	failures chan error
}

func concurrentCounts(k *kit) {
	config := unlimited()
	config.RequestsPerSecond, config.MaxAttempts, config.BackoffBase = crowdLimit, 3, 100*time.Millisecond
	k.open(config)
	c := &crowdRun{kit: k, jobs: 80, failures: make(chan error, 2*crowd)}
	if os.Getenv(longVariable) == "1" {
		c.jobs = 150
	}
	c.left.Store(crowd)
	var workers sync.WaitGroup
	for n := range crowd {
		workers.Go(func() {
			if err := errors.Join(c.uploads(n), c.works(rand.New(rand.NewPCG(1, uint64(n))))); err != nil {
				c.failures <- err
			}
		})
	}
	workers.Wait()
	close(c.failures)
	for err := range c.failures {
		k.must(err)
	}
	for n := range crowd {
		id := fmt.Sprint("a", n)
		a := k.action(id)
		k.check(a.Received == c.jobs && a.Done() == c.jobs && a.Canceled == 0, "%s: %+v, want all %d done", id, a.Counts, c.jobs)
		k.check(a.Done() >= c.accepted[n].Load(), "%s: %d done, but %d settlements were accepted", id, a.Done(), c.accepted[n].Load())
		k.checkOutcomes(id)
		dead, err := k.store.DeadLetters(ctx, id, 0, int(c.jobs))
		k.must(err)
		k.check(int64(len(dead)) == a.Failed, "%s: %d dead letters of %d failed jobs", id, len(dead), a.Failed)
	}
	c.started.Range(func(window, n any) bool {
		k.check(n.(*atomic.Int64).Load() <= crowdLimit, "%d started in window %v of %d", n.(*atomic.Int64).Load(), window, crowdLimit)
		return true
	})
}

// uploads sends one action, each chunk twice.
func (c *crowdRun) uploads(n int) error {
	id := fmt.Sprint("a", n)
	s := aggregated(id)
	s.Tenant = fmt.Sprint("tenant ", n%3)
	if _, _, err := c.store.Create(ctx, s); err != nil {
		return err
	}
	for from := int64(0); from < c.jobs; from += 10 {
		var chunk [][]byte
		for i := range int64(10) {
			chunk = append(chunk, payload(id, from+i))
		}
		for range 2 {
			if _, err := c.store.Append(ctx, id, from, chunk); err != nil {
				return err
			}
		}
	}
	_, err := c.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Seal, Total: c.jobs})
	if err != nil {
		return err
	}
	_, err = c.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Start})
	return err
}

// works does the work of the fetcher, a worker and the dispatcher until all jobs are done.
func (c *crowdRun) works(random *rand.Rand) error {
	for c.left.Load() > 0 {
		b, err := Backlog(ctx, c.store)
		if err != nil {
			return err
		}
		var grants []bulk.Grant
		for _, line := range b.Lines {
			for _, w := range line.Waiting {
				grants = append(grants, bulk.Grant{Number: w.Number, Jobs: 1 + random.Int64N(20)})
			}
		}
		if _, err := c.store.Admit(ctx, grants); err != nil {
			return err
		}
		if err := c.leases(random); err != nil {
			return err
		}
		if _, _, err := c.store.Dispatch(ctx, 5); err != nil {
			return err
		}
		if err := c.aggregates(); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (c *crowdRun) leases(random *rand.Rand) error {
	index := windowIndex(time.Second)
	jobs, err := c.store.Lease(ctx, bulk.LeaseRequest{Types: []string{"echo"}, Max: 15, LeaseFor: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	started, _ := c.started.LoadOrStore(index, new(atomic.Int64))
	started.(*atomic.Int64).Add(int64(len(jobs)))
	var settlements []bulk.Settlement
	for _, j := range jobs {
		if kind := bulk.SettlementKind(random.IntN(8)); kind > 0 && kind <= bulk.Extended {
			settlements = append(settlements, bulk.Settlement{Lease: j.Lease, Kind: kind, LeaseFor: 100 * time.Millisecond})
		}
		settlements = append(settlements, bulk.Settlement{Lease: j.Lease, Kind: bulk.Succeeded})
	}
	if random.IntN(6) == 0 { // late, and mostly expired
		time.Sleep(250 * time.Millisecond)
	}
	verdicts, err := c.store.Settle(ctx, settlements)
	if err != nil || len(verdicts) != len(settlements) {
		return errors.Join(err, fmt.Errorf("%d verdicts on %d settlements", len(verdicts), len(settlements)))
	}
	return c.tally(jobs, settlements, verdicts)
}

// tally counts the accepted final settlements.
func (c *crowdRun) tally(jobs []bulk.Job, settlements []bulk.Settlement, verdicts []bulk.Verdict) error {
	actions := map[uint64]string{}
	for _, j := range jobs {
		actions[j.Lease.Action] = j.Spec.ID
	}
	accepted := map[bulk.LeaseID]int{}
	for i, v := range verdicts {
		s := settlements[i]
		if v == bulk.Accepted && s.Kind != bulk.Extended {
			if accepted[s.Lease]++; accepted[s.Lease] > 1 {
				return fmt.Errorf("lease %+v was settled twice", s.Lease)
			}
			if s.Kind == bulk.Succeeded || s.Kind == bulk.FailedForGood {
				c.accepted[actions[s.Lease.Action][1]-'0'].Add(1)
			}
		}
	}
	return nil
}

// aggregates ends the actions whose jobs are done.
func (c *crowdRun) aggregates() error {
	running, err := c.store.Actions(ctx, bulk.ActionFilter{Status: bulk.Running})
	if err != nil {
		return err
	}
	for _, a := range running {
		if a.Done() < a.Total {
			continue
		}
		if _, err := c.store.Transition(ctx, a.ID, bulk.Transition{Kind: bulk.Aggregate}); err != nil && !errors.Is(err, bulk.ErrNoChange) {
			return err
		}
	}
	aggregating, err := c.store.Actions(ctx, bulk.ActionFilter{Status: bulk.Aggregating})
	c.left.Store(int64(crowd - len(aggregating)))
	return err
}

// concurrentSame makes the same calls from all goroutines of a crowd at once.
func concurrentSame(k *kit) {
	k.open(unlimited())
	var created, moved, started, leased, accepted atomic.Int64
	all := func(call func()) {
		var crowdGroup sync.WaitGroup
		for range crowd {
			crowdGroup.Go(call)
		}
		crowdGroup.Wait()
	}
	count := func(counter *atomic.Int64, ok bool) {
		if ok {
			counter.Add(1)
		}
	}
	var chunk [][]byte
	for i := range int64(20) {
		chunk = append(chunk, payload("a", i))
	}
	all(func() {
		_, fresh, err := k.store.Create(ctx, spec("a", "tenant"))
		count(&created, err == nil && fresh)
		k.store.Append(ctx, "a", 0, chunk)
	})
	k.expect("a", where{Pending: 20})
	all(func() {
		_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Reduce, Reduced: 1})
		count(&moved, err == nil)
	})
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 20})
	all(func() {
		_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Start})
		count(&started, err == nil)
	})
	k.check(started.Load() == 1, "one action was started %d times", started.Load())
	grant := bulk.Grant{Number: k.number("a"), Jobs: 20}
	all(func() {
		k.store.Admit(ctx, []bulk.Grant{grant})
		jobs, _ := k.store.Lease(ctx, request(20))
		leased.Add(int64(len(jobs)))
	})
	k.check(created.Load() == 1 && moved.Load() == 1, "created %d times, reduced %d times, want once", created.Load(), moved.Load())
	k.check(leased.Load() == 20, "20 jobs were leased %d times", leased.Load())
	k.advance(time.Minute)
	k.dispatch(100)
	job := k.take(20)[0]
	all(func() {
		verdicts, err := k.store.Settle(ctx, []bulk.Settlement{{Lease: job.Lease, Kind: bulk.Succeeded}})
		count(&accepted, err == nil && verdicts[0] == bulk.Accepted)
	})
	k.check(accepted.Load() == 1, "one lease was settled %d times", accepted.Load())
	k.expect("a", where{InFlight: 19, Succeeded: 1})
}

// concurrentUploads uploads the same jobs from a crowd, in chunks of different lengths.
func concurrentUploads(k *kit) {
	k.open(unlimited())
	const jobs = 200
	for round := range 25 {
		id := fmt.Sprint("a", round)
		k.create(spec(id, "tenant"))
		failures := make(chan error, crowd)
		var all sync.WaitGroup
		for n := range crowd {
			all.Go(func() { failures <- k.uploadAll(id, jobs, int64(n+1)) })
		}
		all.Wait()
		for range crowd {
			k.must(<-failures)
		}
		k.expect(id, where{Pending: jobs})
		k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: jobs})
		k.transition(id, bulk.Transition{Kind: bulk.Start})
		k.succeed(k.take(jobs)...) // checks every payload
	}
}

// uploadAll sends all jobs of an action in chunks of one length, each from the store's
// position: so all goroutines of a crowd send new jobs.
func (k *kit) uploadAll(id string, jobs, length int64) error {
	for at := int64(0); at < jobs; {
		var chunk [][]byte
		for i := at; i < min(at+length, jobs); i++ {
			chunk = append(chunk, payload(id, i))
		}
		received, err := k.store.Append(ctx, id, at, chunk)
		if err != nil {
			return err
		}
		if received < min(at+length, jobs) {
			return fmt.Errorf("%s: received %d after %d were sent", id, received, min(at+length, jobs))
		}
		at = received
	}
	return nil
}
