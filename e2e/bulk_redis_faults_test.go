//go:build redis && long

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// Servers are killed while limits of concurrency hold, and a rate that is paced smoothly. The target
// never sees more calls at a time than it may have, nor more of the first tenant, nor more of the
// second tenant with one key; and in no second, wherever it begins, do more attempts of remote workers start than the rate.
func TestBulkLimitsThatSlide(t *testing.T) {
	t.Parallel()
	const rate, most, mostOfFirst, mostOfKey = 100, 9, 4, 2
	plan := bulkPlan{phases: [][]string{{"webhook"}, {"remote"}}, tenants: 3, jobs: 250, leaseFor: 5 * time.Second}
	redis := redistest.Start(t, redistest.Options{Persist: redistest.EverySecond})
	fleet := newFleet(t, 3, redis.URL(), "--bulk-lease", "5s")
	l := newBulkLoad(t, plan, fleet...)
	l.target.slowest = 150 * time.Millisecond
	put := func(path, body string, values ...any) {
		fleet[0].call("PUT", path, fmt.Sprintf(body, values...), http.StatusOK, nil)
	}
	put("/v1/targets/"+strings.TrimPrefix(l.target.URL, "http://"), `{"concurrency":%d}`, most)
	put("/v1/tenants/"+tenantName(0), `{"concurrency":%d}`, mostOfFirst)
	put("/v1/tenants/"+tenantName(1), `{"keys":{%q:{"concurrency":%d}}}`, parity, mostOfKey)
	put("/v1/types/remote", `{"requests_per_second":%d,"pacing":"smooth"}`, rate)
	l.run(10*time.Minute, func() { killOne(fleet) })
	l.check()
	if all, first := l.target.most[""], l.target.most["webhook-0"]; all > most || first > mostOfFirst || all < most/2 || first < 2 {
		t.Errorf("the target had up to %d calls at a time, %d of the first tenant; it may have %d and %d", all, first, most, mostOfFirst)
	}
	for key := range int64(2) {
		if seen := l.target.most[keyOf("webhook-1", key)]; seen != mostOfKey {
			t.Errorf("the target had up to %d calls at a time of one key, want %d", seen, mostOfKey)
		}
	}
	var starts []time.Time
	for _, held := range l.ledger.leases {
		starts = append(starts, held.from)
	}
	slices.SortFunc(starts, time.Time.Compare)
	fullest := 0
	for i, from := range starts {
		end, _ := slices.BinarySearchFunc(starts, from.Add(time.Second), time.Time.Compare)
		fullest = max(fullest, end-i)
	}
	if t.Logf("in the fullest second, %d attempts started", fullest); fullest > rate || fullest < rate/3 {
		t.Errorf("%d attempts started within a second, of which there may be %d", fullest, rate)
	}
}

// The same load on a cluster of three masters: each holds a part of the jobs and does a part of the
// work.
func TestBulkRedisCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Persist: redistest.EverySecond})
	fleet := newFleet(t, 3, cluster.URL())
	l := newBulkLoad(t, manyTenants(), fleet...)
	before := scriptCalls(cluster.Masters())
	l.run(10*time.Minute, func() { killOne(fleet) })
	l.check()
	l.checkAnywhere()
	after := scriptCalls(cluster.Masters())
	for n, master := range cluster.Masters() {
		keys, calls := master.Size(), after[n]-before[n]
		t.Logf("master %d has %d keys and ran %d scripts", n, keys, calls)
		if keys == 0 || calls < int64(l.plan.all())/1_000 {
			t.Errorf("master %d has %d keys and ran %d scripts for %d jobs: it has no share of the work", n, keys, calls, l.plan.all())
		}
	}
}

// scriptCalls is how many scripts each server has run.
func scriptCalls(servers []*redistest.Server) []int64 {
	calls := make([]int64, len(servers))
	for n, server := range servers {
		calls[n] = server.Calls("evalsha") + server.Calls("eval") + server.Calls("fcall")
	}
	return calls
}

// The master dies, and a replica takes over that may lack the latest writes. Clients continue from
// the state that the service reports; then everything completes, and the counts are exact.
func TestBulkRedisFailover(t *testing.T) {
	t.Parallel()
	plan := manyTenants()
	plan.jobs /= 2 // more than a second's work, so that the failover comes before its end
	plan.forgets = true
	set := redistest.StartSentinel(t, redistest.SentinelOptions{Persist: redistest.Always})
	fleet := newFleet(t, 2, set.URL())
	l := newBulkLoad(t, plan, fleet...)
	failovers := 0
	l.run(10*time.Minute, func() {
		if failovers == 0 {
			failovers++
			set.Failover()
		}
	})
	l.check()
	if failovers != 1 {
		t.Error("everything had ended before the failover")
	}
}
