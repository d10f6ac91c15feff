package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/ops"
)

// DrainGrace is how long an interrupted command waits for the jobs in flight.
const DrainGrace = 10 * time.Second

// Engine is a bulk engine in this process, as commands need it.
type Engine interface {
	Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error)
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (bulk.Action, error)
	Cancel(ctx context.Context, id string) (bulk.Action, error)
	Action(ctx context.Context, id string) (bulk.Action, error)
	Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error)
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
	Settings(ctx context.Context) (bulk.Settings, error)
	Fairness() engine.Fairness
	// Start starts the engine. It runs all sealed actions, also those sealed later.
	Start(ctx context.Context) error
	// Failed is closed when the engine has failed; Err returns the error.
	Failed() <-chan struct{}
	Err() error
	// Stop drains: no further job starts; jobs in flight finish or are handed back before ctx ends.
	// Reading still works.
	Stop(ctx context.Context) error
	// Close makes everything durable and releases the data directory.
	Close() error
}

// Embedded is a bulk engine in this process, on its own data directory.
type Embedded struct {
	*engine.Engine
	config   bulk.Config
	log      *slog.Logger
	store    *pebblestore.Store
	webhooks *webhook.Handler
	started  bool
	// Mounts add further handlers to the server.
	Mounts []func(*ops.Server)
}

// Start implements Engine.
func (e *Embedded) Start(ctx context.Context) error {
	e.started = true
	return e.Engine.Start(ctx)
}

// Stop implements Engine.
func (e *Embedded) Stop(ctx context.Context) error {
	if !e.started {
		return nil
	}
	return e.Engine.Stop(ctx)
}

// Close implements Engine. It stops the engine if it runs.
func (e *Embedded) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), DrainGrace)
	defer cancel()
	err := e.Stop(ctx)
	e.webhooks.Close()
	return errors.Join(err, e.store.Close())
}

// portsTried is how many ports are tried, beginning with the requested one.
const portsTried = 20

// Listen serves the API at an address, or at one of the next ports if it is taken.
func (e *Embedded) Listen(ctx context.Context, address string) (at string, stop func(context.Context) error, err error) {
	err = FirstFree(ctx, address, func(address string) error {
		server := e.server(address)
		if err := server.Start(ctx); err != nil {
			return err
		}
		at, stop = server.Addr().String(), server.Stop
		return nil
	})
	return at, stop, err
}

// FirstFree calls listen with an address, and with the next ports while the port is taken.
func FirstFree(ctx context.Context, address string, listen func(address string) error) error {
	host, name, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	first, err := net.DefaultResolver.LookupPort(ctx, "tcp", name)
	if err != nil {
		return err
	}
	for port := first; port < first+portsTried && port <= math.MaxUint16; port++ {
		if err = listen(net.JoinHostPort(host, strconv.Itoa(port))); err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

// server returns a server of the API and the operator's endpoints.
func (e *Embedded) server(address string) *ops.Server {
	server := ops.NewServer(ops.Options{Addr: address, Logger: e.log})
	api.Register(server.API(), e.Engine, api.WithConfig(e.config), api.WithLogger(e.log))
	server.Registry().MustRegister(e.Collector())
	for _, mount := range e.Mounts {
		mount(server)
	}
	return server
}

// DiskReserve is how much of the disk stays free.
const DiskReserve = 64 << 20

// OpenEmbedded opens a data directory and an engine on it, with handlers for echo and for webhooks.
// The engine is not started.
func OpenEmbedded(dir string, config bulk.Config, options webhook.Options, more ...engine.Option) (_ *Embedded, err error) {
	// Bars are drawn on the same terminal: only important messages are logged.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	webhooks, err := webhook.New(options)
	if err != nil {
		return nil, err
	}
	store, err := pebblestore.Open(dir, pebblestore.Options{Bulk: config.WithDefaults(), Logger: log, DiskReserve: DiskReserve})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	mux := bulk.NewMux()
	mux.Handle(bulk.WebhookType, webhooks)
	e, err := engine.New(store, mux, config, append(more, engine.WithLogger(log))...)
	if err != nil {
		return nil, err
	}
	return &Embedded{Engine: e, config: config, log: log, store: store, webhooks: webhooks}, nil
}

// Open is OpenEmbedded as an opener.
func Open(dir string, config bulk.Config, options webhook.Options) (Engine, error) {
	engine, err := OpenEmbedded(dir, config, options)
	if err != nil {
		return nil, err // Not the nil *Embedded, which is not nil as an Engine.
	}
	return engine, nil
}
