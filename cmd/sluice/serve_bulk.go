package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
)

// openBulk opens the store of bulk and mounts its API on the server. With a
// publisher that is nil no event is kept.
func openBulk(settings *config.Config, server *ops.Server, publisher bulk.Publisher, log *slog.Logger) (_ *part, err error) {
	webhooks, err := webhook.New(settings.Webhook.Options())
	if err != nil {
		return nil, err
	}
	store, err := pebblestore.Open(settings.DataDir, pebblestore.Options{
		Bulk: settings.Bulk, Logger: log, DiskReserve: settings.DiskReserve,
	})
	if err != nil {
		webhooks.Close()
		return nil, err
	}
	opened := &part{close: func() error {
		webhooks.Close()
		return store.Close()
	}}
	mux := bulk.NewMux()
	mux.Handle(bulk.WebhookType, webhooks)
	engine, err := bulk.New(store, mux, settings.Bulk, bulk.WithLogger(log), bulk.WithPublisher(publisher))
	if err != nil {
		return nil, errors.Join(err, opened.close())
	}
	opened.services = []lifecycle.Service{engine}
	handler := api.New(engine, api.WithLogger(log), api.WithConfig(settings.Bulk))
	server.Mux().Handle("/v1/", handler)
	server.Mux().Handle("/openapi.json", handler)
	server.Registry().MustRegister(engine.Collector())
	server.Ready("bulk", func(ctx context.Context) error {
		if _, err := engine.Settings(ctx); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
		return engine.Err()
	})
	return opened, nil
}
