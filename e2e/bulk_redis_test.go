//go:build redis

package e2e

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// manyTenants is the load of several servers: 2,400 jobs of eight tenants, 36,000 with SLUICE_LONG,
// with a limit that makes it take about 12 seconds, or 25.
func manyTenants() bulkPlan {
	plan := bulkPlan{
		phases: [][]string{{"remote"}, {"webhook", "echo"}}, tenants: 8, jobs: 100,
		limit: 200, tenantLimit: 27, keyLimit: 14, leaseFor: 3 * time.Second,
	}
	if long() {
		plan.jobs, plan.limit, plan.tenantLimit, plan.keyLimit = 1_500, 1_500, 240, 120
	}
	return plan
}

// killOne kills one of the servers, and starts it again after a while.
func killOne(fleet []*server) {
	s := fleet[rand.N(len(fleet))]
	s.kill()
	<-time.After(rand.N(time.Second))
	s.start()
}

// Three servers on one Redis are killed and restarted every few seconds, and so is the Redis,
// twice, which syncs each operation to disk before it answers. Everything completes: no job is lost
// or counted twice, the sums are exact; and in no window do more attempts start than the limits
// allow, as remote workers see it.
func TestBulkRedisKill(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{Persist: redistest.Always})
	fleet := newFleet(t, 3, redis.URL())
	l := newBulkLoad(t, manyTenants(), fleet...)
	restarts := 0
	l.run(10*time.Minute, func() {
		// once in the first phase, once in the second
		if restarts == 0 || restarts == 1 && l.ledger.begun(1) {
			restarts++
			redis.Kill()
			<-time.After(rand.N(time.Second))
			redis.Restart()
			return
		}
		killOne(fleet)
	})
	l.check()
	if restarts != 2 {
		t.Errorf("Redis was restarted %d times, want 2", restarts)
	}
	l.checkAnywhere()
}

// checkAnywhere checks that all servers report the same state of the actions.
func (l *bulkLoad) checkAnywhere() {
	l.t.Helper()
	for n, s := range l.servers {
		for _, a := range l.actions {
			if now := s.action(a.id); now.Status != a.finished.Status || now.Succeeded != a.finished.Succeeded {
				l.t.Errorf("server %d says that %s is %s with %d jobs", n, a.id, now.Status, now.Succeeded)
			}
		}
	}
}

// Jobs are kept with each kind of Redis URL: a user and a password over TLS with a configured
// authority, and a unix socket.
func TestBulkRedisURLs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{TLS: true, Socket: true, User: "jobs", Password: "a/b@c"})
	tls := newServer(t, "--state", redis.URL())
	tls.env = []string{"SSL_CERT_FILE=" + redis.CAFile()}
	tls.start()
	socket := startServer(t, "--state", redis.SocketURL())
	tls.call("POST", "/v1/actions", `{"id":"a","tenant":"shop","type":"echo","aggregate":["sum:n"]}`, http.StatusCreated, nil)
	socket.upload("a", ndjson, "{\"n\":1}\n{\"n\":2}\n", 0)
	tls.call("POST", "/v1/actions/a/seal", `{"total":2}`, http.StatusOK, nil)
	for _, s := range []*server{tls, socket} {
		if a := s.finish("a"); a.Succeeded != 2 || string(a.Result["sum:n"]) != `"3"` {
			t.Errorf("%v: %d succeeded, with a sum of %s", s.args, a.Succeeded, a.Result["sum:n"])
		}
	}
}
