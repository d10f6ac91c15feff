package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// bulkPlan describes a load.
type bulkPlan struct {
	// phases follow one another: the actions of a phase begin when those before have finished. Each
	// phase lists job types: remote, webhook, echo.
	phases [][]string
	// tenants have an action of each type; jobs is how many jobs each action has.
	tenants, jobs int
	// limit is how many attempts may start in a second, and tenantLimit how many of those may be of
	// the first tenant; 0 is no limit.
	limit, tenantLimit int
	// keyLimit is how many may be of the second tenant and one key, by parity.
	keyLimit int
	// leaseFor is how long remote workers lease jobs.
	leaseFor time.Duration
	// forgets means that the store may lose the latest acknowledged writes, as in a failover.
	forgets bool
}

// all returns the number of jobs of a plan.
func (p bulkPlan) all() (jobs int) {
	for _, kinds := range p.phases {
		jobs += p.tenants * len(kinds) * p.jobs
	}
	return jobs
}

// The time of one request, the number of remote workers, the jobs that each leases at a time, and
// the attempts of a job: a lease may be lost with an instance many times.
const (
	bulkPatience    = 10 * time.Second
	remoteWorkers   = 8
	remoteBatch     = 100
	bulkMaxAttempts = 50
)

// bulkAction is an action that a client submits and follows to its end.
type bulkAction struct {
	id, tenant, kind string
	finished         action
}

// bulkLoad is a set of clients who upload actions to several servers with one store, and of remote
// workers. Each request goes to a random server, as behind a simple load balancer; a request that
// fails or is refused temporarily is repeated.
type bulkLoad struct {
	t       *testing.T
	plan    bulkPlan
	servers []*server
	target  *recorder
	ledger  *bulkLedger
	actions []*bulkAction
	workers sync.WaitGroup
	over    chan struct{}

	requests, unanswered, unavailable atomic.Int64
}

// newBulkLoad sets the limits and starts the workers.
func newBulkLoad(t *testing.T, plan bulkPlan, servers ...*server) *bulkLoad {
	t.Helper()
	l := newIdleBulkLoad(t, plan, servers...)
	l.startWorkers()
	return l
}

// newIdleBulkLoad is newBulkLoad without the workers.
func newIdleBulkLoad(t *testing.T, plan bulkPlan, servers ...*server) *bulkLoad {
	t.Helper()
	l := &bulkLoad{t: t, plan: plan, servers: servers, target: newRecorder(t), over: make(chan struct{})}
	l.ledger = newBulkLedger(t, plan)
	servers[0].call("PUT", "/v1/limits", fmt.Sprintf(`{"requests_per_second":%d}`, plan.limit), http.StatusOK, nil)
	if plan.tenantLimit > 0 {
		servers[0].call("PUT", "/v1/tenants/"+tenantName(0), fmt.Sprintf(`{"requests_per_second":%d}`, plan.tenantLimit), http.StatusOK, nil)
	}
	if plan.keyLimit > 0 {
		servers[0].call("PUT", "/v1/tenants/"+tenantName(1), fmt.Sprintf(`{"keys":{%q:{"requests_per_second":%d}}}`, parity, plan.keyLimit), http.StatusOK, nil)
	}
	t.Cleanup(func() {
		close(l.over)
		l.workers.Wait()
	})
	return l
}

// startWorkers starts the workers, which run until the test ends.
func (l *bulkLoad) startWorkers() {
	for range remoteWorkers {
		l.workers.Go(l.work)
	}
}

func tenantName(n int) string { return fmt.Sprint("tenant-", n) }

// mostRounds bounds the repetitions of a phase of remote jobs alone, until the workers come near
// the limits.
const mostRounds = 5

// run runs the phases one after another, with faults at random moments, and returns when all
// actions have finished.
func (l *bulkLoad) run(most time.Duration, mischief func()) {
	l.t.Helper()
	deadline := time.After(most)
	for n, kinds := range l.plan.phases {
		began := time.Now()
		l.ledger.begin(n)
		measured := l.plan.limit > 0 && !l.plan.forgets && slices.Equal(kinds, []string{"remote"})
		for round := 0; round == 0 || measured && !l.ledger.pressed(); round++ {
			if round == mostRounds {
				l.t.Fatalf("after %d rounds, remote workers were never near the limits", round)
			}
			done := l.phase(kinds, round)
			for finished := false; !finished; {
				select {
				case <-done:
					finished = true
				case <-deadline:
					l.t.Fatalf("not within %s: all actions of %v finish", most, kinds)
				case <-time.After(300*time.Millisecond + rand.N(2*time.Second)):
					mischief()
				}
			}
		}
		l.ledger.end(n)
		l.t.Logf("phase %v took %s", kinds, time.Since(began).Round(time.Millisecond))
	}
	l.t.Logf("%d requests, %d not answered, %d told to try again", l.requests.Load(), l.unanswered.Load(), l.unavailable.Load())
}

// phase starts a client for each action, and returns a channel that is closed when all clients have
// seen their actions finish.
func (l *bulkLoad) phase(kinds []string, round int) <-chan struct{} {
	var clients sync.WaitGroup
	for _, kind := range kinds {
		for n := range l.plan.tenants {
			a := &bulkAction{id: fmt.Sprint(kind, "-", n), tenant: tenantName(n), kind: kind}
			if round > 0 {
				a.id += fmt.Sprint("-", round)
			}
			l.actions = append(l.actions, a)
			clients.Go(func() { l.drive(a) })
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.Wait()
	}()
	return done
}

// try makes one request to a random server.
func (l *bulkLoad) try(method, path, contentType string, body []byte, header ...string) (a answer, ok bool) {
	l.requests.Add(1)
	a, err := l.servers[rand.N(len(l.servers))].doWithin(bulkPatience, method, path, contentType, body, header...)
	switch {
	case err != nil:
		l.unanswered.Add(1)
	case a.status < http.StatusInternalServerError:
		return a, true
	case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		l.unavailable.Add(1)
	default:
		l.t.Errorf("%s %s: %d %v %s, want an answer, or 503 with Retry-After", method, path, a.status, a.header, a.body)
	}
	return a, false
}

// again repeats a request until it is answered; it returns false when the test is over.
func (l *bulkLoad) again(method, path, contentType string, body []byte, header ...string) (answer, bool) {
	for {
		if a, ok := l.try(method, path, contentType, body, header...); ok {
			return a, true
		}
		if !l.wait(20*time.Millisecond + rand.N(80*time.Millisecond)) {
			return answer{}, false
		}
	}
}

// wait returns false when the test is over.
func (l *bulkLoad) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.over:
		return false
	}
}

// drive brings an action to its end, from the state that the service reports, so it tolerates that
// an acknowledged write is lost.
func (l *bulkLoad) drive(a *bulkAction) {
	for {
		said, ok := l.again("GET", "/v1/actions/"+a.id, "", nil)
		if !ok {
			return
		}
		var now action
		switch {
		case said.status == http.StatusNotFound:
			l.create(a)
		case said.status != http.StatusOK || said.json(&now) != nil:
			l.t.Errorf("%s: %d %s", a.id, said.status, said.body)
			return
		case now.FinishedAt != nil:
			a.finished = now
			return
		case now.Status != "CREATED":
			l.wait(100*time.Millisecond + rand.N(100*time.Millisecond))
		case now.Received < int64(l.plan.jobs):
			l.upload(a, int(now.Received))
		default:
			l.expect(http.StatusOK, "POST", "/v1/actions/"+a.id+"/seal", fmt.Sprintf(`{"total":%d}`, l.plan.jobs))
		}
	}
}

func (l *bulkLoad) create(a *bulkAction) {
	what := fmt.Sprintf(`"type":%q`, a.kind)
	if a.kind == "webhook" {
		what = fmt.Sprintf(`"target":{"url":%q}`, l.target.URL)
	}
	l.expect(http.StatusCreated, "POST", "/v1/actions", fmt.Sprintf(
		`{"id":%q,"tenant":%q,%s,"aggregate":["count","sum:n"],"max_attempts":%d}`, a.id, a.tenant, what, bulkMaxAttempts))
}

// expect makes a request that may be a repetition: it wants 200, or the given status. A store that
// forgets may refuse the request; then the client reads the state again.
func (l *bulkLoad) expect(status int, method, path, body string) {
	a, ok := l.again(method, path, "application/json", []byte(body))
	if ok && a.status != status && a.status != http.StatusOK && !l.plan.forgets {
		l.t.Errorf("%s %s %s: %d %s", method, path, body, a.status, a.body)
	}
}

// upload sends the missing jobs in chunks, until a chunk is not accepted.
func (l *bulkLoad) upload(a *bulkAction, sent int) {
	for sent < l.plan.jobs {
		upTo := min(sent+1+rand.N(max(2, l.plan.jobs/50)), l.plan.jobs)
		var chunk strings.Builder
		for n := sent; n < upTo; n++ {
			chunk.WriteString(payloadOf(n) + "\n")
		}
		said, ok := l.again("POST", "/v1/actions/"+a.id+"/jobs", ndjson, []byte(chunk.String()), "Upload-Offset", fmt.Sprint(sent))
		var received struct{ Received int }
		if !ok || said.status != http.StatusOK || said.json(&received) != nil {
			if ok && !l.plan.forgets {
				l.t.Errorf("%s: jobs from %d to %d: %d %s", a.id, sent, upTo, said.status, said.body)
			}
			return
		}
		if received.Received < upTo {
			l.t.Errorf("%s: %d received after jobs from %d to %d", a.id, received.Received, sent, upTo)
		}
		sent = received.Received
	}
}

// parity is a key by which jobs may be limited: of those with an even index, or the others.
const parity = `payload.n.matches("[02468]$")`

// keyOf names a job's key by parity among those of its action.
func keyOf(action string, index int64) string { return fmt.Sprint(action, " by ", index%2) }

func payloadOf(n int) string { return fmt.Sprintf(`{"n":"%d.%03d"}`, n, n%1000) }

// remoteJob is a job as a remote worker receives it.
type remoteJob struct {
	ID       string          `json:"id"`
	Action   string          `json:"action"`
	Payload  json.RawMessage `json:"payload"`
	Lease    string          `json:"lease"`
	Deadline time.Time       `json:"deadline"`
}

// work is a remote worker: it leases, works and acknowledges until the test is over. Sometimes it
// is late.
func (l *bulkLoad) work() {
	for l.wait(rand.N(4 * time.Millisecond)) {
		jobs := l.lease(l.plan.leaseFor)
		if len(jobs) == 0 {
			continue
		}
		if rand.N(50) == 0 {
			l.wait(time.Until(jobs[0].Deadline) + rand.N(time.Second))
		}
		l.acknowledge(jobs)
	}
}

// lease leases jobs, if there are any.
func (l *bulkLoad) lease(length time.Duration) []remoteJob {
	request := fmt.Appendf(nil, `{"types":["remote"],"max":%d,"wait_ms":500,"lease_ms":%d}`, remoteBatch, length.Milliseconds())
	said, ok := l.try("POST", "/v1/leases", "application/json", request)
	var leased struct{ Jobs []remoteJob }
	if !ok || said.status != http.StatusOK || said.json(&leased) != nil {
		if ok {
			l.t.Errorf("leases: %d %s", said.status, said.body)
		}
		l.wait(50 * time.Millisecond)
		return nil
	}
	l.ledger.leased(leased.Jobs, length)
	return leased.Jobs
}

// hold leases jobs for longer than any test runs. The load cannot end before they are
// acknowledged.
func (l *bulkLoad) hold() (jobs []remoteJob) {
	l.t.Helper()
	until.True(l.t, "there are jobs to hold", func() bool {
		jobs = l.lease(time.Hour)
		return len(jobs) > 0
	})
	return jobs
}

func (l *bulkLoad) acknowledge(jobs []remoteJob) {
	outcomes := make([]map[string]any, len(jobs))
	for i, j := range jobs {
		outcomes[i] = map[string]any{"lease": j.Lease, "status": "succeeded", "result": j.Payload}
	}
	body, err := json.Marshal(map[string]any{"outcomes": outcomes})
	if err != nil {
		l.t.Error(err)
		return
	}
	for {
		sent := time.Now()
		said, ok := l.try("POST", "/v1/leases/ack", "application/json", body)
		var verdicts struct {
			Verdicts []struct{ Lease, Verdict string }
		}
		switch {
		case !ok && l.wait(20*time.Millisecond+rand.N(80*time.Millisecond)):
			continue
		case !ok:
		case said.status != http.StatusOK || said.json(&verdicts) != nil || len(verdicts.Verdicts) != len(jobs):
			l.t.Errorf("acknowledging %d jobs: %d %s", len(jobs), said.status, said.body)
		default:
			for i, v := range verdicts.Verdicts {
				l.ledger.settled(jobs[i], sent, v.Verdict)
			}
		}
		return
	}
}

// check compares the final state of the service with the jobs that were sent and the leases of the
// workers.
func (l *bulkLoad) check() {
	thousandths := 0
	for n := range l.plan.jobs {
		thousandths += n*1000 + n%1000
	}
	sum := fmt.Sprintf(`"%d.%03d"`, thousandths/1000, thousandths%1000)
	webhooks := 0
	for _, a := range l.actions {
		f := a.finished
		if f.Status != "COMPLETED" || f.Succeeded != int64(l.plan.jobs) || f.Failed != 0 || f.Canceled != 0 {
			l.t.Errorf("%s is %s: %d succeeded, %d failed and %d canceled of %d", a.id, f.Status, f.Succeeded, f.Failed, f.Canceled, l.plan.jobs)
		}
		if count, got := string(f.Result["count"]), string(f.Result["sum:n"]); count != fmt.Sprint(l.plan.jobs) || got != sum {
			l.t.Errorf("%s: count %s, want %d; sum %s, want %s", a.id, count, l.plan.jobs, got, sum)
		}
		switch a.kind {
		case "remote":
			l.ledger.sawAll(a)
		case "webhook":
			webhooks += l.plan.jobs
		}
	}
	l.target.mu.Lock()
	defer l.target.mu.Unlock()
	if len(l.target.seen) != webhooks {
		l.t.Errorf("the target has seen %d jobs, want %d", len(l.target.seen), webhooks)
	}
	l.t.Logf("the target was called %d times for %d jobs", l.target.calls, webhooks)
	l.ledger.check(l.target.at)
}
