package sim

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// world is an engine with its store, in the virtual time of one bubble.
type world struct {
	t      *testing.T
	engine *bulk.Engine
	store  *pebblestore.Store
	began  time.Time
}

// simulate runs a scenario in virtual time. Phase is how far into a second it
// begins, so that windows of different clocks need not coincide.
func simulate(t *testing.T, config bulk.Config, phase time.Duration, mux *bulk.Mux, scenario func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(phase)
		store, err := pebblestore.Open("sim", pebblestore.Options{
			FS: vfs.NewMem(), Bulk: config, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		engine, err := bulk.New(store, mux, config, bulk.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		scenario(&world{t: t, engine: engine, store: store, began: time.Now()})
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// submit creates, fills and seals an action of that many jobs.
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
func (w *world) finish(id string) (finished bulk.Action) {
	w.t.Helper()
	err := w.engine.Watch(context.Background(), id, 50*time.Millisecond, func(a bulk.Action) error {
		finished = a
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return finished
}

func (w *world) set(change bulk.SettingsChange) {
	w.t.Helper()
	if err := w.engine.Set(context.Background(), change); err != nil {
		w.t.Fatal(err)
	}
}
