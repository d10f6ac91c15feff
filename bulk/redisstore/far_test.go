//go:build redis

package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// TestAPacedLimitWithAFarServer: the steps of a paced limit are shorter than the way to the server,
// and jobs start nevertheless.
func TestAPacedLimitWithAFarServer(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, redistest.Start(t, redistest.Options{}).Addr())
			s := open(t, Options{URL: p.url(), Shards: shards})
			var ran atomic.Int64
			mux := bulk.NewMux()
			mux.HandleFunc("work", func(context.Context, *bulk.Job) ([]byte, error) { ran.Add(1); return nil, nil })
			e := run(t, s, unlimited(), mux)
			if err := e.Set(t.Context(), bulk.SettingsChange{Limits: &bulk.Limits{RequestsPerSecond: 200, Pacing: bulk.PaceSmooth}}); err != nil {
				t.Fatal(err)
			}
			p.delay.Store(int64(40 * time.Millisecond))
			defer p.delay.Store(0)
			for n := range 3 {
				spec := bulk.Spec{ID: fmt.Sprint("a", n), Tenant: fmt.Sprint("t", n), Type: "work"}
				if _, _, err := s.Create(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Append(t.Context(), spec.ID, 0, payloads(0, 1000)); err != nil {
					t.Fatal(err)
				}
				if _, err := e.Seal(t.Context(), spec.ID, 1000); err != nil {
					t.Fatal(err)
				}
			}
			until.True(t, "some jobs have run", func() bool { return ran.Load() >= 10 })
		})
	}
}
