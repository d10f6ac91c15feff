package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// TestALineBehindManyThatAreHeldBack runs jobs of a tenant that come last, behind those of 5,000
// tenants which wait for places of long attempts that hang.
func TestALineBehindManyThatAreHeldBack(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc("hook", func(ctx context.Context, job *bulk.Job) ([]byte, error) {
		if job.Spec.Tenant == "short" {
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	config := bulk.Config{RequestsPerSecond: -1, Types: map[string]bulk.TypeConfig{"hook": {Workers: 10}}}
	inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
		r.finish(r.submit(bulk.Spec{Tenant: "short", Type: "hook"}, 20)) // its attempts are known to be short
		for i := range 5000 {
			r.submit(bulk.Spec{Tenant: fmt.Sprint("hangs ", i), Type: "hook"}, 1)
		}
		pass(2 * time.Second)
		began := time.Now()
		r.finish(r.submit(bulk.Spec{Tenant: "short", Type: "hook"}, 20))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("its jobs took %v", took)
		}
	})
}
