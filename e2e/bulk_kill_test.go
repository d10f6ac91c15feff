package e2e

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The embedded server is killed while its limits hold jobs back. What remote workers
// see says that no window ever had more attempts than the limits allow, that each lease
// held until its deadline, and that each job was counted once.
func TestBulkLimitsOverKills(t *testing.T) {
	plan := bulkPlan{
		phases: [][]string{{"remote"}, {"webhook", "echo"}}, tenants: 4, jobs: 600,
		limit: 800, tenantLimit: 150, leaseFor: 2 * time.Second,
	}
	if long() {
		plan.jobs, plan.limit = 8_000, 1_600
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
