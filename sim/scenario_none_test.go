package sim

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Two jobs of 20 seconds are in flight when the service is stopped. With a grace they finish;
// without one they are handed back at once and wait for the next start.
func TestStopWithAndWithoutGrace(t *testing.T) {
	for _, c := range []struct {
		grace     time.Duration
		most      time.Duration
		succeeded int64
	}{
		{0, 20 * time.Second, 2},
		{-time.Second, 0, 0},
	} {
		mux := bulk.NewMux()
		mux.HandleFunc("slow", func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
			return nil, pass(ctx, 20*time.Second)
		})
		simulate(t, bulk.Config{ShutdownGrace: c.grace}.WithDefaults(), 0, mux, func(w *world) {
			id := w.submit(bulk.Spec{Tenant: "shop", Type: "slow"}, 2)
			time.Sleep(time.Second)
			stopped := time.Now()
			if err := w.engine.Stop(context.Background()); err != nil {
				w.t.Fatal(err)
			}
			if took := time.Since(stopped); took > c.most {
				w.t.Errorf("grace %v: stopping took %v, want at most %v", c.grace, took, c.most)
			}
			a, err := w.engine.Action(context.Background(), id)
			if err != nil {
				w.t.Fatal(err)
			}
			if a.Succeeded != c.succeeded || a.InFlight != 0 || a.Retried != 0 {
				w.t.Errorf("grace %v: %+v, want %d succeeded, and no attempt used by the others", c.grace, a.Counts, c.succeeded)
			}
		})
	}
}

// Without a boost, the progress of an action does not change its priority: the older action is done
// first.
func TestWithoutBoostTheOlderGoesFirst(t *testing.T) {
	var order []string
	mux := bulk.NewMux()
	mux.HandleFunc("note", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		order = append(order, job.Spec.ID)
		return nil, nil
	})
	config := bulk.Config{Alpha: -10 * time.Second, RequestsPerSecond: 1, Workers: 1}.WithDefaults()
	simulate(t, config, 0, mux, func(w *world) {
		older := w.submit(bulk.Spec{ID: "older", Tenant: "shop", Type: "note"}, 10)
		time.Sleep(time.Second)
		younger := w.submit(bulk.Spec{ID: "younger", Tenant: "shop", Type: "note"}, 10)
		w.finish(older)
		w.finish(younger)
		for i, id := range order {
			if want := []string{"older", "younger"}[i/10]; id != want {
				w.t.Errorf("attempt %d was one of %s, want %s: %v", i+1, id, want, order)
				return
			}
		}
	})
}
