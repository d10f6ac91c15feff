package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/webhook"
)

// embedded is a bulk engine in this process, on its own data directory.
type embedded struct {
	*bulk.Engine
	store    *pebblestore.Store
	webhooks *webhook.Handler
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

// embeddedReserve is what stays free of the disk.
const embeddedReserve = 64 << 20

// openEmbedded opens a data directory and starts an engine on it, with handlers
// for echo and for webhooks.
func openEmbedded(ctx context.Context, dir string, config bulk.Config) (_ *embedded, err error) {
	// Bars are drawn on the same terminal: only what people must know is logged.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	webhooks, err := webhook.New(webhook.Options{})
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
	engine, err := bulk.New(store, mux, config, bulk.WithLogger(log))
	if err != nil {
		return nil, err
	}
	if err := engine.Start(ctx); err != nil {
		return nil, err
	}
	return &embedded{Engine: engine, store: store, webhooks: webhooks}, nil
}

// openRunner is openEmbedded as an opener.
func openRunner(ctx context.Context, dir string, config bulk.Config) (runner, error) {
	engine, err := openEmbedded(ctx, dir, config)
	if err != nil {
		return nil, err // Not the nil *embedded, which as a runner is not nil.
	}
	return engine, nil
}
