package kafka

import (
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics are the metrics of a server.
type metrics struct {
	received, sent                         prometheus.Counter
	requests, failures, throttled          *prometheus.CounterVec
	produce, fetch                         prometheus.Histogram
	connections, requestMemory, answerSize prometheus.GaugeFunc
	// byKind are the counters of requests, so that no request looks one up.
	byKind map[int16]prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "topic_kafka_" + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "topic_kafka_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, value func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "topic_kafka_" + name, Help: help}, value)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "topic_kafka_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.125, 2, 16)})
	}
	m := &metrics{
		received:    counter("received_bytes_total", "Bytes of requests that came."),
		sent:        counter("sent_bytes_total", "Bytes of answers that were sent."),
		requests:    counters("requests_total", "Requests that came, by kind.", "request"),
		failures:    counters("errors_total", "Errors in answers, by kind of request and error; one answer may have several.", "request", "error"),
		throttled:   counters("throttled_total", "Answers that told a client to wait, since its account has used its quota, by kind of request.", "request"),
		produce:     histogram("produce_duration_ms", "Time from a Produce request's arrival to its answer: with acks 1 or all until it is durable."),
		fetch:       histogram("fetch_duration_ms", "Time from a Fetch request's arrival to its answer: waiting for records included."),
		connections: gauge("connections", "Connections that are open.", func() float64 { return float64(s.connected()) }),
		requestMemory: gauge("request_memory_bytes", "Memory that requests under way hold of RequestMemory.",
			func() float64 { return float64(s.requests.Used()) }),
		answerSize: gauge("fetch_memory_bytes", "Memory that answers with records hold of FetchMemory.",
			func() float64 { return float64(s.answers.Used()) }),
		byKind: map[int16]prometheus.Counter{},
	}
	for key := range s.kinds {
		m.byKind[key] = m.requests.WithLabelValues(requestName(key))
	}
	return m
}

// Collector returns the server's metrics for Prometheus.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.received, m.sent, m.requests, m.failures, m.throttled, m.produce, m.fetch,
		m.connections, m.requestMemory, m.answerSize,
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}

func (m *metrics) request(key int16) { m.byKind[key].Inc() }

// answered records an answer: its duration and errors.
func (m *metrics) answered(x *exchange, response kmsg.Response) {
	took := float64(time.Since(x.began)) / float64(time.Millisecond)
	switch x.key {
	case keyProduce:
		m.produce.Observe(took)
	case keyFetch:
		m.fetch.Observe(took)
	}
	if response == nil {
		return
	}
	if fetched, ok := response.(framed); ok {
		response = fetched.plain()
	}
	countErrors(reflect.ValueOf(response).Elem(), func(code int16) { m.failed(x.key, code) })
}

func (m *metrics) failed(key, code int16) {
	m.failures.WithLabelValues(requestName(key), errorName(code)).Inc()
}

// countErrors calls found for each error in an answer.
func countErrors(value reflect.Value, found func(code int16)) {
	shape := value.Type()
	for i := range shape.NumField() {
		field := value.Field(i)
		switch {
		case field.Kind() == reflect.Int16 && shape.Field(i).Name == "ErrorCode":
			if code := int16(field.Int()); code != 0 {
				found(code)
			}
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			for j := range field.Len() {
				countErrors(field.Index(j), found)
			}
		}
	}
}

// errorName returns the error's name in the protocol.
func errorName(code int16) string {
	if err := kerr.TypedErrorForCode(code); err != nil {
		return err.Message
	}
	return "UNKNOWN"
}
