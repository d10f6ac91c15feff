package serve

import (
	"context"
	"log/slog"
	"runtime/debug"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
)

// traces sends the spans of this process; provider is nil if tracing is off.
type traces struct {
	part
	provider trace.TracerProvider
}

// openTracing starts to send spans if an endpoint is set.
func openTracing(ctx context.Context, settings *config.Config, server *ops.Server, log *slog.Logger) (*traces, error) {
	url := settings.Tracing.URL()
	if url == "" {
		return &traces{part: *noPart()}, nil
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
