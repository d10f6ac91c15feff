package top

import (
	"bytes"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// sample is what a server measured at one moment.
type sample struct {
	at       time.Time
	families map[string]*dto.MetricFamily
}

func parse(at time.Time, text []byte) (sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return sample{}, fmt.Errorf("read /metrics: %w: is it a sluice server?", err)
	}
	return sample{at, families}, nil
}

// key names a series, or a group of them, by the values of up to three labels.
type key [3]string

// sum adds up the series of a metric that have the same values of the labels.
func (s *sample) sum(metric string, labels ...string) map[key]float64 {
	sums := map[key]float64{}
	for _, m := range s.families[metric].GetMetric() {
		var k key
		for _, pair := range m.GetLabel() {
			for i, label := range labels {
				if pair.GetName() == label {
					k[i] = pair.GetValue()
				}
			}
		}
		sums[k] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	return sums
}

// one returns the sum of all series of a metric.
func (s *sample) one(metric string) float64 { return s.sum(metric)[key{}] }

// offsets returns the committed offset of each group, topic and partition.
func (s *sample) offsets() map[key]float64 {
	ends := s.sum("topic_partition_end_offset", "topic", "partition")
	committed := map[key]float64{}
	for of, lag := range s.sum("topic_group_lag", "group", "topic", "partition") {
		committed[of] = ends[key{of[1], of[2]}] - lag
	}
	return committed
}
