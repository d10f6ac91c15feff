package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// rig is an engine with its store, in virtual time.
type rig struct {
	*engine.Engine
	t     testing.TB
	store *storetest.Memory
	log   *bytes.Buffer
}

// ctx is for calls of tests, which end by themselves.
var ctx = context.Background()

// nowhere is the address of an unknown client.
var nowhere netip.Addr

// inVirtualTime runs a test with a started engine. A leftover goroutine fails the test: the bubble
// waits for all.
func inVirtualTime(t *testing.T, test func(t *testing.T, r *rig), options ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storetest.NewMemory(), options...)
		test(t, r)
		r.stop()
	})
}

// newRig starts an engine on a store.
func newRig(t testing.TB, store *storetest.Memory, options ...engine.Option) *rig {
	t.Helper()
	r := &rig{t: t, store: store, log: new(bytes.Buffer)}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	engine, err := engine.New(store, room.Config{}, append(options, engine.WithLogger(log))...)
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = engine
	if err := engine.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) stop() {
	r.t.Helper()
	if err := r.Stop(ctx); err != nil {
		r.t.Errorf("stop: %v", err)
	}
}

// restarted returns the engine of a process that was killed and restarted.
func (r *rig) restarted(options ...engine.Option) *rig {
	r.t.Helper()
	r.stop()
	return newRig(r.t, r.store.Reopen(), options...)
}

func (r *rig) put(name string, s room.Settings) engine.View {
	r.t.Helper()
	view, _, err := r.PutRoom(ctx, name, s)
	if err != nil {
		r.t.Fatal(err)
	}
	return view
}

func (r *rig) enter(name string) engine.Answer {
	r.t.Helper()
	return r.enterAs(name, "")
}

func (r *rig) enterAs(name, key string) engine.Answer {
	r.t.Helper()
	a, err := r.Enter(ctx, name, room.Visit{Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) ask(name, ticket string) engine.Answer {
	r.t.Helper()
	a, err := r.Ask(ctx, name, ticket, nowhere)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// gone fails the test unless the error means that a place is gone for the reason.
func gone(t testing.TB, err error, reason room.Reason) {
	t.Helper()
	var g *room.GoneError
	if !errors.As(err, &g) || g.Reason != reason {
		t.Errorf("error %v, want gone because %s", err, reason)
	}
}

// teller returns settings of mode teller with windows of seconds.
func teller(capacity int64) room.Settings {
	return room.Settings{
		Mode: room.Teller, Capacity: capacity, PassTTL: time.Minute, ClaimWindow: 2 * time.Second,
		AbandonAfter: 10 * time.Second, Grace: 10 * time.Second,
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, config := range map[string]room.Config{
		"":                      {},
		"room.outbox":           {Outbox: 10},
		"room.refresh_interval": {RefreshInterval: time.Minute},
		"room.expire_interval":  {ExpireInterval: time.Second},
	} {
		_, err := engine.New(storetest.NewMemory(), config)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want+": want from")) {
			t.Errorf("New(%+v) = %v, want an error about %q", config, err, want)
		}
	}
}

func TestStartFailsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		store.Fail(room.ErrUnavailable)
		engine, err := engine.New(store, room.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(ctx); !errors.Is(err, room.ErrUnavailable) {
			t.Errorf("Start() = %v, want that the store is away", err)
		}
	})
}

func TestABrokenStoreEndsTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storetest.NewMemory())
		r.put("shop", teller(1))
		r.store.Fail(room.ErrBroken)
		<-r.Failed()
		if err := r.Err(); !errors.Is(err, room.ErrBroken) {
			t.Errorf("Err() = %v, want ErrBroken", err)
		}
		if err := r.Stop(ctx); !errors.Is(err, room.ErrBroken) {
			t.Errorf("Stop() = %v, want ErrBroken", err)
		}
	})
}
