package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
)

func newServeCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve bulk actions over HTTP",
		Long: `Serve bulk actions over HTTP, with everything in one data directory: nothing else
needs to be installed.

  /v1/…            the API; /openapi.json describes it
  /healthz         the process lives
  /readyz          it can serve
  /metrics         for Prometheus

SIGTERM or Ctrl-C drains: nothing new is started, jobs in flight have
bulk.shutdown_grace to end, and what has not ended is handed back. "sluice config"
prints all settings.`,
		Example: `  sluice serve
  sluice serve --data /var/lib/sluice --http 127.0.0.1:8080
  SLUICE_BULK_WORKERS=50 sluice serve --config sluice.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := config.Load(command.Flags(), os.Environ())
			if err != nil {
				return err
			}
			return serve(command.Context(), settings, command)
		},
	}
	command.Flags().SortFlags = false
	config.Flags(command.Flags())
	return command
}

// stopMargin is what stopping may take beside waiting for jobs in flight.
const stopMargin = 10 * time.Second

// serve opens the data directory and serves until ctx ends.
func serve(ctx context.Context, settings *config.Config, command *cobra.Command) (err error) {
	log, err := ops.NewLogger(command.ErrOrStderr(), settings.Log.Format, settings.Log.Level)
	if err != nil {
		return err
	}
	webhooks, err := webhook.New(settings.Webhook.Options())
	if err != nil {
		return err
	}
	defer webhooks.Close()
	store, err := pebblestore.Open(settings.DataDir, pebblestore.Options{
		Bulk: settings.Bulk, Logger: log, DiskReserve: settings.DiskReserve,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	mux := bulk.NewMux()
	mux.Handle(bulk.WebhookType, webhooks)
	engine, err := bulk.New(store, mux, settings.Bulk, bulk.WithLogger(log))
	if err != nil {
		return err
	}
	server := newHTTPServer(settings, engine, log)
	log.Info("serving", "http", settings.HTTP, "data", settings.DataDir)
	return lifecycle.Run(ctx, max(0, settings.Bulk.ShutdownGrace)+stopMargin, engine, server)
}

// newHTTPServer mounts what is served.
func newHTTPServer(settings *config.Config, engine *bulk.Engine, log *slog.Logger) *ops.Server {
	server := ops.NewServer(ops.Options{Addr: settings.HTTP, Pprof: settings.Pprof, Logger: log})
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
	return server
}
