package sim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

// world is an engine with its store, in the virtual time of one bubble.
type world struct {
	t      *testing.T
	engine *bulktest.Engine
	began  time.Time
}

// simulate runs a scenario in virtual time. phase is how far into a second it begins, so that the
// windows of different clocks need not coincide.
func simulate(t *testing.T, config bulk.Config, phase time.Duration, mux *bulk.Mux, scenario func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(phase)
		engine := bulktest.New(t, mux, config)
		engine.Timeout = 24 * time.Hour
		scenario(&world{t: t, engine: engine, began: time.Now()})
	})
}

// submit creates, fills and seals an action with the given number of jobs.
func (w *world) submit(spec bulk.Spec, jobs int) string {
	w.t.Helper()
	ctx := context.Background()
	action, _, err := w.engine.Create(ctx, spec)
	if err != nil {
		w.t.Fatal(err)
	}
	for sent := 0; sent < jobs; {
		batch := make([][]byte, min(1000, jobs-sent))
		for i := range batch {
			batch[i] = fmt.Appendf(nil, `{"n":"%d"}`, sent+i)
		}
		if _, err := w.engine.Append(ctx, action.ID, int64(sent), batch); err != nil {
			w.t.Fatal(err)
		}
		sent += len(batch)
	}
	if _, err := w.engine.Seal(ctx, action.ID, int64(jobs)); err != nil {
		w.t.Fatal(err)
	}
	return action.ID
}

// finish waits for an action and returns it.
func (w *world) finish(id string) bulk.Action {
	w.t.Helper()
	return w.engine.Wait(w.t, id)
}

func (w *world) set(change bulk.SettingsChange) {
	w.t.Helper()
	if err := w.engine.Set(context.Background(), change); err != nil {
		w.t.Fatal(err)
	}
}

// pass waits for d, or until ctx ends. It creates no timer of length zero: several of those at once
// in a bubble crash the race detector (golang.org/issue/78156).
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
