package gate

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of a [Gate] and of the proxies behind it. It is a prometheus.Collector. The
// label room has the rooms that the sites have named since the start, of which there are at most
// MaxSites · MaxRules at a time.
type Metrics struct {
	pages, checks, upstreamErrors *prometheus.CounterVec
	waits, upstream               *prometheus.HistogramVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "room_gate_" + name + "_total", Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "room_gate_" + name + "_seconds", Help: help, Buckets: buckets}, []string{"room"})
	}
	return &Metrics{
		pages:  counter("pages", "Pages that were shown, by their kind.", "room", "kind"),
		checks: counter("checks", "Answers to other proxies that asked about a request.", "room", "outcome"),
		waits: histogram("wait", "Time from joining to coming in, of visitors who saw the waiting page.",
			prometheus.ExponentialBuckets(1, 2, 15)),
		upstream: histogram("upstream", "Time until the answer of the upstream began.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}),
		upstreamErrors: counter("upstream_errors", "Requests that the upstream did not answer, or answered with an error.", "room", "kind"),
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.pages, m.checks, m.waits, m.upstream, m.upstreamErrors}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}

// checked counts an answer to a proxy; the door is nil if the proxy's question was wrong.
func (m *Metrics) checked(d *door, c *verdict) {
	name, outcome := "", "invalid"
	if d != nil {
		name, outcome = d.room, c.outcome()
	}
	m.checks.WithLabelValues(name, outcome).Inc()
}

// observed is a transport to an upstream, whose answers metrics count.
type observed struct {
	http.RoundTripper
	metrics *Metrics
}

// RoundTrip implements http.RoundTripper.
func (t observed) RoundTrip(r *http.Request) (*http.Response, error) {
	name, began := r.Header.Get(RoomHeader), time.Now()
	answer, err := t.RoundTripper.RoundTrip(r)
	if r.Context().Err() != nil { // The visitor has gone.
		return answer, err
	}
	if err == nil {
		t.metrics.upstream.WithLabelValues(name).Observe(time.Since(began).Seconds())
	}
	if kind := failureOf(answer, err); kind != "" {
		t.metrics.upstreamErrors.WithLabelValues(name, kind).Inc()
	}
	return answer, err
}

// failureOf returns what is wrong with an upstream's answer; "" if nothing is.
func failureOf(answer *http.Response, err error) string {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return "connect"
	case err != nil && timedOut(err):
		return "timeout"
	case err != nil:
		return "broken"
	case tooBusy[answer.StatusCode]:
		return "busy"
	case answer.StatusCode >= http.StatusInternalServerError:
		return "error"
	}
	return ""
}

// timedOut reports whether an upstream took too long.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
