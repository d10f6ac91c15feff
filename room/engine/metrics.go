package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/room"
)

// metrics are room's metrics. Those of a room are from its last count: several instances
// on one store export the same numbers, so do not sum them. There are at most MaxRooms of
// each.
type metrics struct {
	catalog *catalog

	moves           *prometheus.HistogramVec
	took            [kinds]prometheus.Observer // of moves, which looks them up by name
	failures        *prometheus.CounterVec
	limited         prometheus.Counter
	published       prometheus.Counter
	publishFailures prometheus.Counter
	ofRoom          []roomMetric
	gaveUp          *prometheus.Desc
}

// roomMetric is a number of each room.
type roomMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*room.Status) int64
}

func newMetrics(c *catalog) *metrics {
	gauge := func(name, help string, of func(*room.Status) int64) roomMetric {
		return roomMetric{prometheus.NewDesc("room_"+name, help, []string{"room"}, nil), prometheus.GaugeValue, of}
	}
	counter := func(name, help string, of func(*room.Status) int64) roomMetric {
		return roomMetric{prometheus.NewDesc("room_"+name+"_total", help, []string{"room"}, nil), prometheus.CounterValue, of}
	}
	m := &metrics{
		catalog: c,
		gaveUp: prometheus.NewDesc("room_gave_up_total",
			"Visitors who left the line by themselves, at this instance, by their position.", []string{"room", "position"}, nil),
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
			gauge("waiting", "Visitors in line who are not called.", func(s *room.Status) int64 { return s.Waiting }),
			gauge("inside", "Visitors who have a slot, those included who are called and have not come yet.", func(s *room.Status) int64 { return s.Inside }),
			gauge("called", "Visitors who are called and have not come yet.", func(s *room.Status) int64 { return s.Called }),
			counter("entered", "Visitors who entered.", func(s *room.Status) int64 { return s.Entered }),
			counter("admitted", "Visitors who came in.", (*room.Status).CameIn),
			counter("missed", "Visitors who were called and did not come.", func(s *room.Status) int64 { return s.NoShows }),
			counter("departed", "Visitors who were gone before they came in.", func(s *room.Status) int64 { return s.Departed }),
			counter("expired", "Passes that ended by time.", func(s *room.Status) int64 { return s.Expired }),
			gauge("events_waiting", "Events that wait to be published.", func(s *room.Status) int64 { return s.EventsWaiting }),
			counter("events_dropped", "Events that were not kept because the outbox was full.", func(s *room.Status) int64 { return s.EventsDropped }),
		},
	}
	for of, name := range kindNames {
		m.took[of] = m.moves.WithLabelValues(name)
	}
	return m
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
	to <- m.gaveUp
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	for _, k := range m.catalog.all() {
		for i := range k.gaveUp {
			if n := k.gaveUp[i].Load(); n > 0 {
				to <- prometheus.MustNewConstMetric(m.gaveUp, prometheus.CounterValue, float64(n), k.name, positionLabels[i])
			}
		}
		last := k.measured.Load()
		if last == nil {
			continue
		}
		for _, metric := range m.ofRoom {
			to <- prometheus.MustNewConstMetric(metric.desc, metric.kind, float64(metric.of(&last.status)), k.name)
		}
	}
}

// positionLabels are the groups by which positions are counted.
var positionLabels = [...]string{"1-10", "11-100", "101-1000", "1001-10000", "10001-100000", "100001-"}

// positions are counts by position.
type positions [len(positionLabels)]atomic.Int64

// add counts a visitor with so many ahead.
func (p *positions) add(ahead int64) {
	i := 0
	for ; ahead >= 10 && i < len(p)-1; i++ {
		ahead /= 10
	}
	p[i].Add(1)
}

// observe records an operation. Refusals of visitors are no failures of the store.
func (m *metrics) observe(what kind, took time.Duration, err error) {
	m.took[what].Observe(took.Seconds())
	if err == nil {
		return
	}
	for _, failure := range []error{room.ErrUnavailable, room.ErrFull, room.ErrBroken, context.DeadlineExceeded} {
		if errors.Is(err, failure) {
			m.failures.WithLabelValues(kindNames[what]).Inc()
			return
		}
	}
}
