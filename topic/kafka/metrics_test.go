package kafka

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

func TestMetricsCountRequestsAndErrors(t *testing.T) {
	s, b := serve(t, topic.Config{AutoCreateOff: true})
	create(t, b, "orders", 1)
	p := dial(t, s)
	for range 2 {
		ask[*kmsg.FetchResponse](p, 12, fetchRequest("orders", 7, 0))
	}
	ask[*kmsg.MetadataResponse](p, 9, metadataRequest("nothing", "orders"))
	produced(p, 11, produceRequest("orders", 0, batchOf([]byte("x"))))
	for _, c := range []struct {
		what string
		got  prometheus.Collector
		want float64
	}{
		{"fetches", s.metrics.requests.WithLabelValues("Fetch"), 2},
		{"produces", s.metrics.requests.WithLabelValues("Produce"), 1},
		{"errors of Fetch", s.metrics.failures.WithLabelValues("Fetch", "UNKNOWN_TOPIC_OR_PARTITION"), 2},
		{"errors of Metadata", s.metrics.failures.WithLabelValues("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"), 1},
		{"kinds of errors", s.metrics.failures, 2},
		{"connections", s.metrics.connections, 1},
	} {
		got := float64(testutil.CollectAndCount(c.got))
		if c.got != prometheus.Collector(s.metrics.failures) {
			got = testutil.ToFloat64(c.got)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "topic_kafka_produce_duration_ms", "topic_kafka_fetch_duration_ms":
				if m.GetHistogram().GetSampleCount() == 0 {
					t.Errorf("%s has no sample", family.GetName())
				}
			case "topic_kafka_received_bytes_total", "topic_kafka_sent_bytes_total":
				if m.GetCounter().GetValue() < 100 {
					t.Errorf("%s is %v", family.GetName(), m.GetCounter().GetValue())
				}
			}
		}
	}
}
