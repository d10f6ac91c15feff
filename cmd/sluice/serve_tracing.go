package main

import (
	"context"
	"log/slog"
	"runtime/debug"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
)

// traces are those that this process sends; provider is nil if it sends none.
type traces struct {
	part
	provider trace.TracerProvider
}

// openTracing begins to send spans, if there is where to.
func openTracing(ctx context.Context, settings *config.Config, server *ops.Server, log *slog.Logger) (*traces, error) {
	none := &traces{part: *noPart()}
	url := settings.Tracing.URL()
	if url == "" {
		return none, nil
	}
	headers, err := settings.Tracing.HeaderMap()
	if err != nil {
		return nil, err
	}
	options := ops.TracingOptions{Endpoint: url, Headers: headers, SampleRatio: settings.Tracing.Ratio(), Logger: log}
	if info, ok := debug.ReadBuildInfo(); ok {
		options.Version = info.Main.Version
	}
	sender, err := ops.NewTracing(ctx, options)
	if err != nil {
		return nil, err
	}
	server.Registry().MustRegister(sender.Collector())
	return &traces{
		part: part{
			services: []lifecycle.Service{sender},
			close:    func() error { return sender.Stop(context.WithoutCancel(ctx)) },
		},
		provider: sender.Provider(),
	}, nil
}
