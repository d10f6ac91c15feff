package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	_ "time/tzdata" // Schedules name time zones; the host may have no database of them.

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/redisstore"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
)

// jobs are the bulk actions of this process.
type jobs struct {
	part
	engine *engine.Engine // nil: they are off
}

// openBulk opens the store of bulk and mounts its API on the server. A nil
// publisher disables events, a nil tracer disables traces.
func openBulk(ctx context.Context, settings *config.Config, server *ops.Server, disk *fsync.Watch, memory ops.MemoryBudget, publisher engine.Publisher, tracer trace.TracerProvider, log *slog.Logger) (_ *jobs, err error) {
	if settings.State.IsOff() {
		return &jobs{part: *noPart()}, nil
	}
	webhooks, err := webhook.New(settings.Webhook.Options())
	if err != nil {
		return nil, err
	}
	store, err := openBulkStore(ctx, settings, disk, log)
	if err != nil {
		webhooks.Close()
		return nil, err
	}
	opened := &jobs{part: part{
		checkpoint: checkpointOf(store),
		close: func() error {
			webhooks.Close()
			return store.Close()
		},
		secrets: func(settings *config.Config) error {
			options := settings.Webhook.Options()
			return webhooks.SetSecrets(options.Secrets, options.TargetSecrets)
		},
	}}
	mux := bulk.NewMux()
	mux.Handle(bulk.WebhookType, webhooks)
	options := []engine.Option{engine.WithLogger(log), engine.WithPublisher(publisher), engine.WithTracerProvider(tracer)}
	if !settings.InlineTargets() {
		options = append(options, engine.WithoutInlineTargets())
	}
	e, err := engine.New(store, mux, settings.Bulk, options...)
	if err != nil {
		return nil, errors.Join(err, opened.close())
	}
	opened.engine, opened.services = e, []lifecycle.Service{e}
	api.Register(server.API(), e, api.WithLogger(log), api.WithConfig(settings.Bulk), api.WithUploadMemory(memory.Share()), api.WithTracerProvider(tracer))
	server.Registry().MustRegister(e.Collector())
	server.Ready("bulk", func(ctx context.Context) error {
		if _, err := e.Settings(ctx); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
		return e.Err()
	})
	return opened, nil
}

// checkpointOf returns the checkpoint of an embedded store; nil for one elsewhere.
func checkpointOf(store any) func(ctx context.Context, dir string) error {
	if embedded, ok := store.(interface {
		Checkpoint(ctx context.Context, dir string) error
	}); ok {
		return embedded.Checkpoint
	}
	return nil
}

// openBulkStore opens the store that the settings name.
func openBulkStore(ctx context.Context, settings *config.Config, disk *fsync.Watch, log *slog.Logger) (bulk.Store, error) {
	if settings.State.IsEmbedded() {
		store, err := pebblestore.Open(settings.DataDir, pebblestore.Options{
			Bulk: settings.Bulk, Logger: log, DiskReserve: settings.DiskReserve, FS: disk.FS("bulk"),
		})
		if err != nil {
			return nil, err
		}
		return store, nil
	}
	instance, err := instanceName(settings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	store, err := redisstore.Open(ctx, redisstore.Options{
		URL: settings.State.URL(), Shards: max(0, settings.BulkShards), Instance: instance, Bulk: settings.Bulk, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open bulk at %s: %w", settings.State, err)
	}
	return store, nil
}

// instanceName returns the name of this instance among those that share a state. It has
// the address, so no two running instances have the same name.
func instanceName(settings *config.Config) (string, error) {
	if settings.Instance != "" {
		return settings.Instance, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the setting instance is not set, and the host has no name: %w", err)
	}
	return host + " " + settings.HTTP.String(), nil
}
