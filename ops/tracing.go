package ops

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/lifecycle"
)

// The bounds of tracing.
const (
	// MaxQueuedSpans is the most spans that wait to be sent, or are being sent;
	// more are dropped, and counted. One takes about 2 KiB.
	MaxQueuedSpans = 8192
	// spansBatch is the most spans of one request, spansDelay the longest wait for
	// others to send with.
	spansBatch = 512
	spansDelay = time.Second
	// spansTimeout bounds one batch with all its retries; TracingStopTime is how
	// long stopping waits for spans to be sent.
	spansTimeout    = 30 * time.Second
	TracingStopTime = 3 * time.Second
)

// TracingOptions are what Tracing needs to know.
type TracingOptions struct {
	// Endpoint is the URL that spans are sent to, as OTLP over HTTP has it:
	// http://127.0.0.1:4318/v1/traces.
	Endpoint string
	// Headers are those of the requests. Default: what OTEL_EXPORTER_OTLP_HEADERS
	// says.
	Headers map[string]string
	// SampleRatio is the share of new traces that are kept, 0 to 1. Of a trace that
	// began elsewhere, its beginning decides.
	SampleRatio float64
	// Version is that of the service.
	Version string
	// Logger gets what goes wrong, at most once a minute. Default slog.Default().
	Logger *slog.Logger
}

// Tracing sends spans to a collector. It is a lifecycle.Service, to be started
// before, and stopped after, those whose spans it sends. A collector that is away
// holds up nobody: spans are dropped, and counted.
type Tracing struct {
	provider *sdk.TracerProvider
	spans    *spanCounter
	group    *lifecycle.Group
	endAll   context.CancelFunc
}

var _ lifecycle.Service = (*Tracing)(nil)

// NewTracing returns a Tracing whose provider can be used at once; it must be
// stopped. Whatever OpenTelemetry's variables say of the exporter (certificates,
// compression, timeout) and of the resource (OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES) holds where no option says otherwise.
func NewTracing(ctx context.Context, options TracingOptions) (*Tracing, error) {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	exporting := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(options.Endpoint)}
	if len(options.Headers) > 0 {
		exporting = append(exporting, otlptracehttp.WithHeaders(options.Headers))
	}
	exporter, err := otlptracehttp.New(ctx, exporting...)
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
		options.Logger.Warn("tracing: not all is known of the service, see OTEL_RESOURCE_ATTRIBUTES", "error", err)
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

// Provider makes the spans that are sent.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Collector returns the metrics of what became of spans.
func (t *Tracing) Collector() prometheus.Collector { return t.spans }

// Name implements lifecycle.Service.
func (t *Tracing) Name() string { return "tracing" }

// Start implements lifecycle.Service.
func (t *Tracing) Start(context.Context) error { return nil }

// Stop sends the spans that wait, for at most TracingStopTime; what is left then
// is dropped. A collector that is away is no error: it is logged. Stop may be
// called more than once.
func (t *Tracing) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TracingStopTime)
	defer cancel()
	stop := context.AfterFunc(ctx, t.endAll)
	defer stop()
	// Without an end of its own: once the exporter gives up, it has an end.
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
