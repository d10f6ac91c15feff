package bulktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// Engine is an engine that runs in a test, on an embedded store in memory.
type Engine struct {
	*bulk.Engine
	// Timeout is how long Run and Wait wait for one action at most; default 1
	// minute. In a bubble it is virtual time: make it longer where jobs are retried
	// for longer.
	Timeout time.Duration

	fs      vfs.FS
	config  bulk.Config
	store   *inserted
	stopped atomic.Bool
}

// New returns an engine that has been started. When the test ends it is stopped,
// which must succeed, and its store is closed. In a bubble it must be made, and
// the test must end, in that bubble. The engine logs to the test's output.
func New(t testing.TB, mux *bulk.Mux, config bulk.Config, options ...bulk.Option) *Engine {
	t.Helper()
	e := &Engine{Timeout: time.Minute, fs: vfs.NewMem(), config: config, store: &inserted{jobs: map[string]map[int64][]byte{}}}
	e.open(t, mux, options)
	t.Cleanup(func() { e.Close(t) })
	return e
}

func (e *Engine) open(t testing.TB, mux *bulk.Mux, options []bulk.Option) {
	t.Helper()
	store, err := pebblestore.Open("store", pebblestore.Options{FS: e.fs, Bulk: e.config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e.store.Store = store
	e.stopped.Store(false)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if e.Engine, err = bulk.New(e.store, mux, e.config, append([]bulk.Option{bulk.WithLogger(log)}, options...)...); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Stop stops the engine, if that was not done before; see bulk.Engine.Stop. The
// store stays open, so that the engine can still be asked.
func (e *Engine) Stop(ctx context.Context) error {
	if e.stopped.Swap(true) {
		return nil
	}
	return e.Engine.Stop(ctx)
}

// Close stops the engine and closes its store. New has it done when the test ends.
func (e *Engine) Close(t testing.TB) {
	t.Helper()
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("stop the engine: %v", err)
	}
	if err := e.store.Close(); err != nil {
		t.Errorf("close the store: %v", err)
	}
}

// Restart does what a deployment does: the engine is closed, and another one is
// started with the same store and config, with this mux and these options.
func (e *Engine) Restart(t testing.TB, mux *bulk.Mux, options ...bulk.Option) {
	t.Helper()
	e.Close(t)
	e.open(t, mux, options)
}

// Store is the engine's store, for a test that looks behind the engine. After a
// Restart it is another one.
func (e *Engine) Store() bulk.Store { return e.store }

// Submit makes an action of these payloads, and seals it. A payload is encoded as
// JSON, unless it is bytes already. What the spec leaves out is filled in: the
// tenant is "tenant", the type that of the first payload, a bulk.Args. It returns
// the action's id.
func (e *Engine) Submit(t testing.TB, spec bulk.Spec, payloads ...any) (id string) {
	t.Helper()
	if spec.Tenant == "" {
		spec.Tenant = defaultTenant
	}
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

// Run makes an action as Submit does, waits until it has finished, and returns it.
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

// look is how often an action is looked at.
const look = 20 * time.Millisecond

// describe says what there is of an action, in one line.
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
