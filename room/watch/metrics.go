package watch

import "github.com/prometheus/client_golang/prometheus"

// metrics are a hub's. It is a prometheus.Collector.
type metrics struct {
	open                  prometheus.GaugeFunc
	events, refused, slow prometheus.Counter
}

func newMetrics(h *Hub) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "room_" + name, Help: help})
	}
	return &metrics{
		open: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "room_streams", Help: "Event streams that are open.",
		}, func() float64 { return float64(h.Streams()) }),
		events:  counter("stream_events_total", "Events written to streams."),
		refused: counter("streams_refused_total", "Streams refused because as many were open as there may be."),
		slow:    counter("streams_slow_total", "Streams closed because the client did not read."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.open, m.events, m.refused, m.slow} {
		c.Collect(out)
	}
}
