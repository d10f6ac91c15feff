//go:build redis && long

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// expired counts outcomes that a server reported after the lease had ended.
const expired = `bulk_action_settlements_refused_total{verdict="expired"}`

// One of three servers hangs for three leases with webhook jobs in flight: they run elsewhere. When
// it resumes, its reports are refused, and every job is counted once.
func TestBulkRedisStopped(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	plan := bulkPlan{phases: [][]string{{"webhook", "remote"}}, tenants: 3, jobs: 200, leaseFor: lease}
	most := 1
	if long() {
		plan.jobs, most = 600, 3
	}
	redis := redistest.Start(t, redistest.Options{Persist: redistest.EverySecond})
	fleet := newFleet(t, 3, redis.URL(), "--bulk-lease", lease.String())
	l := newBulkLoad(t, plan, fleet...)
	// At most 20 calls, of half a second: some 15 s of work for 600 jobs.
	l.target.slowest = time.Second
	fleet[0].call("PUT", "/v1/targets/"+strings.TrimPrefix(l.target.URL, "http://"), `{"concurrency":20}`, http.StatusOK, nil)
	stops := 0
	l.run(10*time.Minute, func() {
		if stops < most {
			hangAtWork(fleet[stops%len(fleet)], fleet, l.target, 3*lease)
			stops++
		}
	})
	l.check()
	l.checkAnywhere()
	until.True(t, "the server that stopped has been refused", func() bool {
		refused, err := fleet[0].metric(expired)
		return err == nil && refused > 0
	})
	if l.target.calls <= len(l.target.seen) {
		t.Errorf("%d calls for %d jobs: none ran elsewhere", l.target.calls, len(l.target.seen))
	}
	if stops != most {
		t.Errorf("servers stopped %d times, want %d", stops, most)
	}
}

// hangAtWork hangs a server for a while when it calls the target: the others hang until the target
// has no calls but its own. If there are none then, clients may wait for those that hang: they
// are resumed, and it is tried again.
func hangAtWork(s *server, fleet []*server, target *recorder, d time.Duration) {
	s.t.Helper()
	others := slices.DeleteFunc(slices.Clone(fleet), func(other *server) bool { return other == s })
	until.True(s.t, "the server calls the target", func() bool {
		for _, other := range others {
			other.hang()
		}
		<-time.After(target.slowest + 100*time.Millisecond)
		calls := target.called()
		if calls >= 3 {
			s.hang()
		}
		for _, other := range others {
			other.resume()
		}
		return calls >= 3
	})
	<-time.After(d)
	s.resume()
}

// A job leased through a server that then stops can be acknowledged through another until
// its deadline. After the deadline another worker gets the job, and the first is refused.
func TestBulkRedisLeasesOfAStoppedServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	fleet := newFleet(t, 2, redis.URL())
	first, second := fleet[0], fleet[1]
	first.call("POST", "/v1/actions", `{"id":"a","tenant":"shop","type":"remote","aggregate":["count","sum:n"]}`, http.StatusCreated, nil)
	second.upload("a", ndjson, "{\"n\":1}\n{\"n\":10}\n", 0)
	first.call("POST", "/v1/actions/a/seal", `{"total":2}`, http.StatusOK, nil)
	take := func(s *server, leaseFor time.Duration) lease {
		return s.await("remote", 1, fmt.Sprintf(`,"lease_ms":%d`, leaseFor.Milliseconds()))[0]
	}
	held := []lease{take(first, 10*time.Minute), take(first, 3*time.Second)}
	first.hang()
	if verdict := second.ack(held[0].Lease, `"status":"succeeded","result":{"n":1}`); verdict != "accepted" {
		t.Errorf("through the other server, in time: %s", verdict)
	}
	again := take(second, 10*time.Minute)
	if again.ID != held[1].ID || again.Attempt != 2 {
		t.Errorf("after the lease had ended, the other server gave %+v, want %s in attempt 2", again, held[1].ID)
	}
	first.resume()
	for n, want := range []string{"duplicate", "expired"} {
		if verdict := first.ack(held[n].Lease, `"status":"succeeded","result":{"n":100}`); verdict != want {
			t.Errorf("%s, through the server that stopped: %s, want %s", held[n].ID, verdict, want)
		}
	}
	if verdict := first.ack(again.Lease, `"status":"succeeded","result":{"n":10}`); verdict != "accepted" {
		t.Errorf("the second attempt, through the server that stopped: %s", verdict)
	}
	for n, s := range fleet {
		if a := s.finish("a"); a.Status != "COMPLETED" || a.Succeeded != 2 || string(a.Result["sum:n"]) != `"11"` {
			t.Errorf("server %d: %s, %d succeeded with a sum of %s, want 2 with 11", n, a.Status, a.Succeeded, a.Result["sum:n"])
		}
	}
	if refused, err := first.metric(expired); err != nil || refused != 1 {
		t.Errorf("it counts %v refused: %v", refused, err)
	}
}

// storeRequest is a request that needs the store.
type storeRequest struct{ method, path, contentType, body string }

// storeRequests returns requests of all kinds, about an open action and a held lease.
func storeRequests(s *server) []storeRequest {
	s.t.Helper()
	const object = "application/json"
	s.call("POST", "/v1/actions", `{"id":"open","tenant":"shop","type":"echo"}`, http.StatusCreated, nil)
	s.call("POST", "/v1/actions", `{"id":"held","tenant":"shop","type":"held"}`, http.StatusCreated, nil)
	s.upload("held", ndjson, "{}\n", 0)
	s.call("POST", "/v1/actions/held/seal", `{"total":1}`, http.StatusOK, nil)
	held := s.await("held", 1, `,"lease_ms":3600000`)
	return []storeRequest{
		{"POST", "/v1/actions", object, `{"id":"new","tenant":"shop","type":"echo"}`},
		{"GET", "/v1/actions", "", ""},
		{"GET", "/v1/actions/open", "", ""},
		{"POST", "/v1/actions/open/jobs", ndjson, "{}\n"},
		{"POST", "/v1/actions/open/seal", object, `{"total":0}`},
		{"POST", "/v1/actions/open/pause", object, ""},
		{"POST", "/v1/actions/open/resume", object, ""},
		{"POST", "/v1/actions/open/cancel", object, ""},
		{"GET", "/v1/actions/open/failures", "", ""},
		{"POST", "/v1/leases", object, `{"types":["held"]}`},
		{"POST", "/v1/leases/ack", object, fmt.Sprintf(`{"outcomes":[{"lease":%q,"status":"succeeded"}]}`, held[0].Lease)},
		{"POST", "/v1/leases/extend", object, fmt.Sprintf(`{"leases":[%q]}`, held[0].Lease)},
		{"GET", "/v1/tenants/shop", "", ""},
		{"PUT", "/v1/tenants/shop", object, `{"weight":2}`},
		{"PUT", "/v1/limits", object, `{"requests_per_second":5}`},
	}
}

// checkAway checks that servers without their store answer every request with that error.
func checkAway(fleet []*server, requests []storeRequest) {
	var group sync.WaitGroup
	for _, s := range fleet {
		for _, r := range requests {
			group.Go(func() { s.checkAway(r) })
		}
	}
	group.Wait()
	for _, s := range fleet {
		until.True(s.t, "the server is not ready", func() bool {
			a, err := s.do("GET", "/readyz", "", nil)
			return err == nil && a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), "bulk")
		})
		if a, err := s.do("GET", "/healthz", "", nil); err != nil || a.status != http.StatusOK {
			s.t.Errorf("a server whose store is away is to live: %d %s, %v", a.status, a.body, err)
		}
	}
}

func (s *server) checkAway(r storeRequest) {
	a, err := s.do(r.method, r.path, r.contentType, []byte(r.body), "Upload-Offset", "0")
	var said struct{ Code, Detail string }
	switch {
	case err != nil:
		s.t.Errorf("%s %s: %v", r.method, r.path, err)
	case a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.json(&said) != nil || said.Code != "unavailable":
		s.t.Errorf("%s %s: %d %v %s, want 503 with Retry-After, and the code unavailable", r.method, r.path, a.status, a.header, a.body)
	case strings.Contains(said.Detail, "127.0.0.1"):
		s.t.Errorf("%s %s: the problem tells where Redis is: %s", r.method, r.path, said.Detail)
	}
}

// Redis dies in the middle of a load, and later hangs. During each outage every request is answered
// with 503 and Retry-After; afterwards everything continues without help.
func TestBulkRedisAway(t *testing.T) {
	t.Parallel()
	plan := bulkPlan{
		phases: [][]string{{"remote", "webhook", "echo"}}, tenants: 3, jobs: 700, limit: 500, leaseFor: 5 * time.Second,
	}
	redis := redistest.Start(t, redistest.Options{Persist: redistest.Always})
	fleet := newFleet(t, 2, redis.URL())
	requests := storeRequests(fleet[0])
	l := newBulkLoad(t, plan, fleet...)
	outages := []struct{ from, to func() }{{redis.Kill, redis.Restart}, {redis.Pause, redis.Continue}}
	l.run(10*time.Minute, func() {
		if len(outages) == 0 {
			return
		}
		outages[0].from()
		checkAway(fleet, requests)
		outages[0].to()
		outages = outages[1:]
		for _, s := range fleet {
			s.awaitReady()
		}
	})
	l.check()
	l.checkAnywhere()
	if len(outages) > 0 {
		t.Error("everything had ended before Redis was away twice")
	}
}
