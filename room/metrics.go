package room

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are room's metrics. Those of a room are from its last count: several instances
// on one store export the same numbers, so do not sum them. There are at most MaxRooms of
// each.
type metrics struct {
	catalog *catalog

	moves           *prometheus.HistogramVec
	failures        *prometheus.CounterVec
	limited         prometheus.Counter
	published       prometheus.Counter
	publishFailures prometheus.Counter
	ofRoom          []roomMetric
}

// roomMetric is a number of each room.
type roomMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*Status) int64
}

func newMetrics(c *catalog) *metrics {
	gauge := func(name, help string, of func(*Status) int64) roomMetric {
		return roomMetric{prometheus.NewDesc("room_"+name, help, []string{"room"}, nil), prometheus.GaugeValue, of}
	}
	counter := func(name, help string, of func(*Status) int64) roomMetric {
		return roomMetric{prometheus.NewDesc("room_"+name+"_total", help, []string{"room"}, nil), prometheus.CounterValue, of}
	}
	return &metrics{
		catalog: c,
		moves: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "room_move_duration_seconds", Help: "Duration of one move, the store's part included.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10)}, []string{"move"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "room_store_failures_total", Help: "Moves that the store did not make because it was away, full or broken."}, []string{"move"}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "room_joins_limited_total", Help: "Visitors who were refused because too many came from their address."}),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "room_events_published_total", Help: "Events that were published from here."}),
		publishFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "room_publish_failures_total", Help: "Attempts to publish events that failed; they are made again."}),
		ofRoom: []roomMetric{
			gauge("waiting", "Visitors in line who are not called.", func(s *Status) int64 { return s.Waiting }),
			gauge("inside", "Visitors who have a slot, those included who are called and have not come yet.", func(s *Status) int64 { return s.Inside }),
			gauge("called", "Visitors who are called and have not come yet.", func(s *Status) int64 { return s.Called }),
			counter("entered", "Visitors who entered.", func(s *Status) int64 { return s.Entered }),
			counter("admitted", "Visitors who were called; once more for each time that they did not come.", func(s *Status) int64 { return s.Admitted }),
			counter("missed", "Visitors who were called and did not come in time.", func(s *Status) int64 { return s.NoShows }),
			counter("departed", "Visitors who were gone while they waited.", func(s *Status) int64 { return s.Departed }),
			counter("expired", "Passes that ended by time.", func(s *Status) int64 { return s.Expired }),
			gauge("events_waiting", "Events that wait to be published.", func(s *Status) int64 { return s.EventsWaiting }),
			counter("events_dropped", "Events that were not kept because the outbox was full.", func(s *Status) int64 { return s.EventsDropped }),
		},
	}
}

// Collector returns room's metrics for Prometheus.
func (e *Engine) Collector() prometheus.Collector { return e.metrics }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.moves, m.failures, m.limited, m.published, m.publishFailures}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	for _, metric := range m.ofRoom {
		to <- metric.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	for _, k := range m.catalog.all() {
		last := k.measured.Load()
		if last == nil {
			continue
		}
		for _, metric := range m.ofRoom {
			to <- prometheus.MustNewConstMetric(metric.desc, metric.kind, float64(metric.of(&last.status)), k.name)
		}
	}
}

// observe records an operation. Refusals of visitors are no failures of the store.
func (m *metrics) observe(kind string, took time.Duration, err error) {
	m.moves.WithLabelValues(kind).Observe(took.Seconds())
	for _, failure := range []error{ErrUnavailable, ErrFull, ErrBroken, context.DeadlineExceeded} {
		if errors.Is(err, failure) {
			m.failures.WithLabelValues(kind).Inc()
			return
		}
	}
}
