package ops

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/lifecycle"
)

// The bounds of tracing.
const (
	// MaxQueuedSpans is the most spans that wait to be sent, or are being sent; more
	// are dropped, and counted. One uses about 2 KiB.
	MaxQueuedSpans = 8192
	// spansBatch is the most spans of one request, spansDelay the longest wait for a
	// batch to fill.
	spansBatch = 512
	spansDelay = time.Second
	// spansTimeout bounds one batch with its retries; TracingStopTime is how long Stop
	// waits for spans to be sent.
	spansTimeout    = 30 * time.Second
	TracingStopTime = 3 * time.Second
)

// TracingOptions configure Tracing.
type TracingOptions struct {
	// Endpoint is the URL of the collector, for OTLP over HTTP, such as
	// http://127.0.0.1:4318/v1/traces.
	Endpoint string
	// Headers are added to the requests. Default: OTEL_EXPORTER_OTLP_HEADERS.
	Headers map[string]string
	// SampleRatio is the share of new traces that are kept, 0 to 1. A trace that began
	// elsewhere keeps its own decision.
	SampleRatio float64
	// Version is that of the service.
	Version string
	// Logger gets failures, at most once a minute. Default slog.Default().
	Logger *slog.Logger
}

// Tracing sends spans to a collector. It is a lifecycle.Service: start it before, and
// stop it after, the services whose spans it sends. A collector that is down delays
// nothing: spans are dropped, and counted.
type Tracing struct {
	provider *sdk.TracerProvider
	spans    *spanCounter
	group    *lifecycle.Group
	endAll   context.CancelFunc
}

var _ lifecycle.Service = (*Tracing)(nil)

// NewTracing returns a Tracing whose provider is usable at once; it must be stopped.
// OpenTelemetry's variables for the exporter (certificates, compression, timeout) and
// the resource (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) apply where no option is
// set.
func NewTracing(ctx context.Context, options TracingOptions) (*Tracing, error) {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	client, err := newOTLPClient(options.Endpoint, options.Headers, options.Logger)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return newTracing(ctx, options, exporter), nil
}

func newTracing(ctx context.Context, options TracingOptions, exporter sdk.SpanExporter) *Tracing {
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("sluice"), semconv.ServiceVersion(cmp.Or(options.Version, "unknown"))),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		options.Logger.Warn("tracing: the attributes of the service are incomplete; check OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	t := &Tracing{group: lifecycle.NewGroup(context.Background())}
	var all context.Context
	all, t.endAll = context.WithCancel(context.Background())
	t.spans = newSpanCounter(all, exporter, options.Logger)
	t.spans.next = sdk.NewBatchSpanProcessor(t.spans.exporter(), sdk.WithMaxQueueSize(MaxQueuedSpans),
		sdk.WithMaxExportBatchSize(spansBatch), sdk.WithBatchTimeout(spansDelay), sdk.WithExportTimeout(spansTimeout))
	t.provider = sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithSpanProcessor(t.spans),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(options.SampleRatio))))
	return t
}

// Provider returns the provider of the spans that are sent.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Collector returns the metrics of spans by outcome.
func (t *Tracing) Collector() prometheus.Collector { return t.spans }

// Name implements lifecycle.Service.
func (t *Tracing) Name() string { return "tracing" }

// Start implements lifecycle.Service.
func (t *Tracing) Start(context.Context) error { return nil }

// Stop sends the waiting spans, for at most TracingStopTime, and drops the rest. A
// collector that is down is no error: it is logged. Stop is idempotent.
func (t *Tracing) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TracingStopTime)
	defer cancel()
	stop := context.AfterFunc(ctx, t.endAll)
	defer stop()
	// Without a deadline: endAll ends the exporter, and so the shutdown.
	err := t.provider.Shutdown(context.WithoutCancel(ctx))
	t.endAll()
	t.spans.report()
	if err != nil {
		t.spans.log.Warn("tracing", "error", err)
	}
	return t.group.Stop(ctx)
}

// Failed implements lifecycle.Service.
func (t *Tracing) Failed() <-chan struct{} { return t.group.Failed() }

// Err implements lifecycle.Service.
func (t *Tracing) Err() error { return t.group.Err() }
