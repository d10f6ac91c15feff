package e2e

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The embedded server is killed while its limits delay jobs. Remote workers see that no
// window has more attempts than the limits allow, that each lease holds until its
// deadline, and that each job is counted once.
func TestBulkLimitsOverKills(t *testing.T) {
	t.Parallel()
	plan := bulkPlan{
		phases: [][]string{{"remote"}, {"webhook", "echo"}}, tenants: 4, jobs: 500,
		limit: 600, tenantLimit: 120, leaseFor: 2 * time.Second,
	}
	if long() {
		plan.jobs, plan.limit = 3_000, 1_600
		plan.tenantLimit = 350
	}
	s := startServer(t)
	l := newBulkLoad(t, plan, s)
	l.run(3*time.Minute, func() {
		s.kill()
		<-time.After(rand.N(300 * time.Millisecond))
		s.start()
	})
	l.check()
}
