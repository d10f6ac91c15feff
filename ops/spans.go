package ops

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// spanCounter wraps a batching processor and its exporter, and counts the outcome of
// each span. It bounds the waiting spans, so that the processor's own queue of that
// size never drops one uncounted.
type spanCounter struct {
	next     sdk.SpanProcessor
	sender   sdk.SpanExporter
	all      context.Context // ends when the time to send is over
	log      *slog.Logger
	waiting  atomic.Int64
	closed   atomic.Bool
	sent     prometheus.Counter
	failed   prometheus.Counter
	dropped  prometheus.Counter
	queued   prometheus.GaugeFunc
	outcomes *prometheus.CounterVec

	mu     sync.Mutex
	logged time.Time
	silent int // failures since then
	lost   int // spans of them
	last   error
}

func newSpanCounter(all context.Context, sender sdk.SpanExporter, log *slog.Logger) *spanCounter {
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tracing_spans_total",
		Help: "Spans by outcome: exported, failed (the collector did not accept them), dropped (too many waited).",
	}, []string{"outcome"})
	c := &spanCounter{
		sender: sender, all: all, log: log, outcomes: outcomes, sent: outcomes.WithLabelValues("exported"),
		failed: outcomes.WithLabelValues("failed"), dropped: outcomes.WithLabelValues("dropped"),
	}
	c.queued = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tracing_queue_size", Help: "Spans that wait to be sent, or are being sent.",
	}, func() float64 { return float64(c.waiting.Load()) })
	return c
}

// Describe implements prometheus.Collector.
func (c *spanCounter) Describe(to chan<- *prometheus.Desc) {
	c.outcomes.Describe(to)
	c.queued.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *spanCounter) Collect(to chan<- prometheus.Metric) {
	c.outcomes.Collect(to)
	c.queued.Collect(to)
}

// OnStart implements sdk.SpanProcessor.
func (c *spanCounter) OnStart(ctx context.Context, span sdk.ReadWriteSpan) {
	c.next.OnStart(ctx, span)
}

// OnEnd implements sdk.SpanProcessor.
func (c *spanCounter) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if c.closed.Load() {
		c.dropped.Inc()
		return
	}
	if c.waiting.Add(1) > MaxQueuedSpans {
		c.waiting.Add(-1)
		c.dropped.Inc()
		return
	}
	c.next.OnEnd(span)
}

// ForceFlush implements sdk.SpanProcessor.
func (c *spanCounter) ForceFlush(ctx context.Context) error { return c.next.ForceFlush(ctx) }

// Shutdown implements sdk.SpanProcessor.
func (c *spanCounter) Shutdown(ctx context.Context) error {
	c.closed.Store(true)
	return c.next.Shutdown(ctx)
}

// spanSender is the exporter of a spanCounter.
type spanSender struct{ *spanCounter }

func (c *spanCounter) exporter() sdk.SpanExporter { return spanSender{c} }

// ExportSpans implements sdk.SpanExporter. A failure is logged here and not returned,
// because the processor would report it to the whole process.
func (s spanSender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.all, cancel)()
	err := s.sender.ExportSpans(ctx, spans)
	s.waiting.Add(int64(-len(spans)))
	if err != nil {
		s.failed.Add(float64(len(spans)))
		s.failure(err, len(spans))
		return nil
	}
	s.sent.Add(float64(len(spans)))
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (s spanSender) Shutdown(ctx context.Context) error { return s.sender.Shutdown(ctx) }

// logInterval is the least time between two reports of failures.
const logInterval = time.Minute

func (c *spanCounter) failure(err error, spans int) {
	c.mu.Lock()
	c.silent, c.lost, c.last = c.silent+1, c.lost+spans, err
	due := time.Since(c.logged) >= logInterval
	c.mu.Unlock()
	if due {
		c.report()
	}
}

// report logs the failures that are not logged yet.
func (c *spanCounter) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent == 0 {
		return
	}
	c.log.Warn("spans could not be sent", "requests", c.silent, "spans", c.lost, "error", c.last)
	c.logged, c.silent, c.lost = time.Now(), 0, 0
}
