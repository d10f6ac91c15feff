//go:build redis

package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// neighbours are three instances on one Redis, with the jobs of tenant b, which take quick each,
// and those of tenant a, which never end by themselves.
type neighbours struct {
	t     *testing.T
	ended chan struct{} // jobs of b
	hangs atomic.Int64  // jobs of a that run
}

const (
	sharedPool = 10 // workers of an instance, and a third of the concurrency of the target of b
	quick      = 400 * time.Millisecond
)

func (n *neighbours) handle(ctx context.Context, j *bulk.Job) ([]byte, error) {
	if j.Spec.Tenant == "a" {
		n.hangs.Add(1)
		defer n.hangs.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(quick):
		n.ended <- struct{}{}
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

// take returns how long it takes until so many jobs of b have ended.
func (n *neighbours) take(jobs int) time.Duration {
	n.t.Helper()
	began, late := time.Now(), time.After(until.Limit)
	for range jobs {
		select {
		case <-n.ended:
		case <-late:
			n.t.Fatal("the jobs of b stand still")
		}
	}
	return time.Since(began)
}

// kept returns the rate of b beside a, in parts of its rate alone.
func (n *neighbours) kept(h *harness, typ string) float64 {
	n.t.Helper()
	config := bulk.Config{
		RequestsPerSecond: -1, Workers: sharedPool, Lease: until.Limit, JobTimeout: until.Limit, ShutdownGrace: -1,
	}.WithDefaults()
	mux := bulk.NewMux()
	mux.HandleFunc("work", n.handle)
	mux.HandleFunc(bulk.WebhookType, n.handle)
	var stores []*Store
	for i := range 3 {
		s := h.open(n.t, Options{Prefix: typ, Shards: h.shards, Bulk: config, Instance: fmt.Sprint(i), Logger: quiet}).(*Store)
		n.t.Cleanup(func() { _ = s.Close() }) // it never fails
		run(n.t, s, config, mux)
		stores = append(stores, s)
	}
	if err := stores[0].Set(n.t.Context(), bulk.SettingsChange{Name: "b", Target: &bulk.TargetLimits{Concurrency: 3 * sharedPool}}); err != nil {
		n.t.Fatal(err)
	}
	enter := func(tenant string, jobs int) {
		spec := bulk.Spec{ID: tenant, Tenant: tenant, Type: typ}
		if typ == bulk.WebhookType {
			spec.Target = &bulk.Target{Name: tenant, URL: "http://" + tenant + ".example/"}
		}
		start(n.t, stores[1], spec, jobs)
	}
	const settles, measured = 150, 300
	enter("b", 2*(settles+measured)+6*sharedPool)
	n.take(settles)
	alone := n.take(measured)
	enter("a", 2000)
	n.take(settles)
	beside := n.take(measured)
	n.t.Logf("%d jobs in %v alone, in %v while %d of another tenant hang", measured, alone, beside, n.hangs.Load())
	if n.hangs.Load() == 0 {
		n.t.Error("no job of a runs")
	}
	return alone.Seconds() / beside.Seconds()
}

// TestTimeIsSharedByInstances: on three instances a tenant keeps its rate while the target of
// another one hangs: about half of it or more with workers, all of it with webhooks. Time is virtual, and
// stands still during exchanges with Redis; in which order those of one moment arrive differs.
func TestTimeIsSharedByInstances(t *testing.T) {
	t.Parallel()
	h := &harness{crew: newCrew(t), url: redistest.Start(t, redistest.Options{}).URL(), shards: 3, of: map[bulk.Store]Options{}}
	for typ, keep := range map[string]float64{"work": 0.4, bulk.WebhookType: 0.9} {
		t.Run(typ, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := neighbours{t: t, ended: make(chan struct{}, 10_000)}
				if kept := n.kept(h, typ); kept < keep {
					t.Errorf("it keeps %.2f of its rate, want %.2f", kept, keep)
				}
			})
		})
	}
}
