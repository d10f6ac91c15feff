package bulktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// Engine is an engine that runs in a test, on an embedded store in memory.
type Engine struct {
	*engine.Engine
	// Timeout is the maximum time that Run and Wait wait for one action; default 1 minute. In
	// a bubble it is virtual time: increase it if jobs are retried for longer.
	Timeout time.Duration

	fs      vfs.FS
	config  bulk.Config
	store   *inserted
	stopped atomic.Bool
}

// New returns an engine that has been started. When the test ends, the engine is stopped,
// which must succeed, and its store is closed. In a bubble, New must be called in it, and the
// test must end in it. The engine logs to the test's output.
func New(t testing.TB, mux *bulk.Mux, config bulk.Config, options ...engine.Option) *Engine {
	t.Helper()
	e := &Engine{Timeout: time.Minute, fs: vfs.NewMem(), config: config, store: &inserted{jobs: map[string]map[int64][]byte{}}}
	e.open(t, mux, options)
	t.Cleanup(func() { e.Close(t) })
	return e
}

func (e *Engine) open(t testing.TB, mux *bulk.Mux, options []engine.Option) {
	t.Helper()
	store, err := pebblestore.Open("store", pebblestore.Options{FS: e.fs, Bulk: e.config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e.store.Store = store
	e.stopped.Store(false)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if e.Engine, err = engine.New(e.store, mux, e.config, append([]engine.Option{engine.WithLogger(log)}, options...)...); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Stop stops the engine, if it was not stopped before; see engine.Engine.Stop. The store stays
// open, so that the engine's methods still work.
func (e *Engine) Stop(ctx context.Context) error {
	if e.stopped.Swap(true) {
		return nil
	}
	return e.Engine.Stop(ctx)
}

// Close stops the engine and closes its store. It is called when the test ends.
func (e *Engine) Close(t testing.TB) {
	t.Helper()
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("stop the engine: %v", err)
	}
	if err := e.store.Close(); err != nil {
		t.Errorf("close the store: %v", err)
	}
}

// Restart does the same as a deployment: it closes the engine, and starts another one with
// the same store and config, this mux and these options.
func (e *Engine) Restart(t testing.TB, mux *bulk.Mux, options ...engine.Option) {
	t.Helper()
	e.Close(t)
	e.open(t, mux, options)
}

// Store returns the engine's store, for tests of its contents. Restart replaces it.
func (e *Engine) Store() bulk.Store { return e.store }

// Submit creates an action of these payloads, and seals it. A payload is encoded as JSON,
// unless it is bytes. Omitted fields of the spec get defaults: the tenant is "tenant", and
// the type that of the first payload, a bulk.Args. It returns the action's id.
func (e *Engine) Submit(t testing.TB, spec bulk.Spec, payloads ...any) (id string) {
	t.Helper()
	spec.Tenant = cmp.Or(spec.Tenant, defaultTenant)
	if spec.Type == "" && spec.Target == nil && len(payloads) > 0 {
		if args, ok := payloads[0].(bulk.Args); ok {
			spec.Type = args.JobType()
		}
	}
	action, _, err := e.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create the action: %v", err)
	}
	encoded := make([][]byte, len(payloads))
	for i, payload := range payloads {
		encoded[i] = encode(t, payload)
	}
	if _, err := e.Append(t.Context(), action.ID, 0, encoded); err != nil {
		t.Fatalf("append the jobs: %v", err)
	}
	if _, err := e.Seal(t.Context(), action.ID, int64(len(payloads))); err != nil {
		t.Fatalf("seal the action: %v", err)
	}
	return action.ID
}

// Run creates an action as Submit does, waits until it has finished, and returns it.
func (e *Engine) Run(t testing.TB, spec bulk.Spec, payloads ...any) bulk.Action {
	t.Helper()
	return e.Wait(t, e.Submit(t, spec, payloads...))
}

// Wait waits until an action has finished, and returns it.
func (e *Engine) Wait(t testing.TB, id string) (last bulk.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), e.Timeout)
	defer cancel()
	err := e.Watch(ctx, id, look, func(a bulk.Action) error {
		last = a
		return nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		t.Fatalf("after %s there is still %s", e.Timeout, describe(last))
	case err != nil:
		t.Fatalf("wait for action %q: %v", id, err)
	}
	return last
}

// look is the interval at which Wait reads the action.
const look = 20 * time.Millisecond

// describe describes an action in one line.
func describe(a bulk.Action) string {
	text := fmt.Sprintf("action %q of %s, type %q, %s: %d jobs, %d succeeded, %d failed", a.ID, a.Tenant, a.Type, a.Status, a.Received, a.Succeeded, a.Failed)
	for _, count := range []struct {
		n    int64
		what string
	}{
		{a.Counts.Canceled, "canceled"},
		{a.InFlight, "in flight"},
		{a.Pending + a.Ready, "waiting: is there a handler of that type?"},
		{a.NonReady[bulk.RateLimited], "turned back by a limit"},
		{a.NonReady[bulk.APIThrottled], "throttled"},
		{a.NonReady[bulk.TransientError], "to be retried"},
		{a.NonReady[bulk.KeyLimited], "waiting for their key"},
	} {
		if count.n > 0 {
			text += fmt.Sprintf(", %d %s", count.n, count.what)
		}
	}
	if a.Paused {
		text += ", paused"
	}
	return text
}
