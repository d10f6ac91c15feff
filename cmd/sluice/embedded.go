package main

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

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/ops"
)

// embedded is a bulk engine in this process, on its own data directory.
type embedded struct {
	*bulk.Engine
	config   bulk.Config
	log      *slog.Logger
	store    *pebblestore.Store
	webhooks *webhook.Handler
	started  bool
	// mounts add to the server what else it serves.
	mounts []func(*ops.Server)
}

// Start implements runner.
func (e *embedded) Start(ctx context.Context) error {
	e.started = true
	return e.Engine.Start(ctx)
}

// Stop implements runner.
func (e *embedded) Stop(ctx context.Context) error {
	if !e.started {
		return nil
	}
	return e.Engine.Stop(ctx)
}

// Jain implements runner.
func (e *embedded) Jain() (index float64, windows int) {
	fairness := e.Fairness()
	return fairness.Jain, fairness.Windows
}

// Close implements runner. It stops the engine, if that has not been done.
func (e *embedded) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	err := e.Stop(ctx)
	e.webhooks.Close()
	return errors.Join(err, e.store.Close())
}

// portsTried is how many ports are tried, from the one that was asked for.
const portsTried = 20

// Listen implements demoEngine.
func (e *embedded) Listen(ctx context.Context, address string) (at string, stop func(context.Context) error, err error) {
	err = firstFree(ctx, address, func(address string) error {
		server := e.server(address)
		if err := server.Start(ctx); err != nil {
			return err
		}
		at, stop = server.Addr().String(), server.Stop
		return nil
	})
	return at, stop, err
}

// firstFree has something listen at an address, or at one of the next ports if
// it is taken.
func firstFree(ctx context.Context, address string, listen func(address string) error) error {
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

// server returns a server of the API and of the operator's endpoints.
func (e *embedded) server(address string) *ops.Server {
	server := ops.NewServer(ops.Options{Addr: address, Logger: e.log})
	edge := api.New(e.Engine, api.WithConfig(e.config), api.WithLogger(e.log))
	server.Mux().Handle("/v1/", edge)
	server.Mux().Handle("/openapi.json", edge)
	server.Registry().MustRegister(e.Collector())
	for _, mount := range e.mounts {
		mount(server)
	}
	return server
}

// embeddedReserve is what stays free of the disk.
const embeddedReserve = 64 << 20

// openEmbedded opens a data directory and puts an engine on it, with handlers for
// echo and for webhooks. It is not started.
func openEmbedded(dir string, config bulk.Config, options webhook.Options, more ...bulk.Option) (_ *embedded, err error) {
	// Bars are drawn on the same terminal: only what people must know is logged.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	webhooks, err := webhook.New(options)
	if err != nil {
		return nil, err
	}
	store, err := pebblestore.Open(dir, pebblestore.Options{Bulk: config.WithDefaults(), Logger: log, DiskReserve: embeddedReserve})
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
	engine, err := bulk.New(store, mux, config, append(more, bulk.WithLogger(log))...)
	if err != nil {
		return nil, err
	}
	return &embedded{Engine: engine, config: config, log: log, store: store, webhooks: webhooks}, nil
}

// openRunner is openEmbedded as an opener.
func openRunner(dir string, config bulk.Config, options webhook.Options) (runner, error) {
	engine, err := openEmbedded(dir, config, options)
	if err != nil {
		return nil, err // Not the nil *embedded, which as a runner is not nil.
	}
	return engine, nil
}
