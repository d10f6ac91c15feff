package broker

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of single partitions and groups have bounds: partitions and groups beyond them
// are counted only.
const (
	// maxMeasured is the most partitions with metrics of their own, maxLags the most
	// pairs of a group and a partition.
	maxMeasured = 2000
	maxLags     = 5000
	// collectWithin bounds the collection of one scrape.
	collectWithin = 5 * time.Second
)

// metrics are the broker's metrics. Those of partitions and groups are made when they are
// collected.
type metrics struct {
	gained, lost prometheus.Counter
	recovery     prometheus.Histogram

	compactions, compactionFailures, compacted prometheus.Counter
	// shared counts records of share groups by what has become of them.
	shared *prometheus.CounterVec
	// letters counts dead letters of share groups, letterFailures attempts to write some that have failed.
	letters, letterFailures prometheus.Counter

	partitions, led, offline, behind *prometheus.Desc
	size, start, end, lag, omitted   *prometheus.Desc
}

func newMetrics() *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("topic_"+name, help, labels, nil)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "topic_" + name, Help: help})
	}
	of := []string{"topic", "partition"}
	return &metrics{
		gained: counter("leaderships_gained_total", "Partitions that this node began to lead."),
		lost:   counter("leaderships_lost_total", "Partitions that this node ceased to lead."),
		recovery: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "topic_recovery_duration_ms", Help: "Time from the claim of a partition until it could be used.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 16)}),
		compactions:        counter("compactions_total", "Compactions of partitions."),
		compactionFailures: counter("compaction_failures_total", "Compactions of partitions that have failed, and are tried again."),
		compacted:          counter("compaction_removed_bytes_total", "Bytes of records that compaction has removed."),
		shared: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "topic_share_records_total",
			Help: "Records of share groups that this node has delivered, and what has become of them."}, []string{"outcome"}),

		letters:        counter("share_dead_letters_total", "Dead letters of share groups that this node has written."),
		letterFailures: counter("share_dead_letter_failures_total", "Attempts to write dead letters of share groups that have failed, and are made again."),

		partitions: desc("partitions", "Partitions of all topics."),
		led:        desc("partitions_led", "Partitions that this node leads."),
		offline:    desc("partitions_offline", "Partitions without a leader, as far as this node knows."),
		behind:     desc("partitions_under_replicated", "Partitions that this node leads and that fewer nodes than theirs have completely."),
		size:       desc("partition_bytes", "Size of a partition that this node leads.", of...),
		start:      desc("partition_start_offset", "First offset of a partition that this node leads.", of...),
		end:        desc("partition_end_offset", "High watermark of a partition that this node leads.", of...),
		lag:        desc("group_lag", "Offsets that a group has not committed yet, of a partition that this node leads.", "group", "topic", "partition"),
		omitted:    desc("metrics_omitted", "Partitions and pairs of a group and a partition that are too many to have metrics of their own.", "metric"),
	}
}

// Collector returns the broker's metrics for Prometheus.
func (b *Broker) Collector() prometheus.Collector { return collector{b} }

type collector struct{ broker *Broker }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	m := c.broker.metrics
	for _, desc := range []*prometheus.Desc{m.partitions, m.led, m.offline, m.behind, m.size, m.start, m.end, m.lag, m.omitted} {
		to <- desc
	}
	for _, own := range m.own() {
		own.Describe(to)
	}
}

func (m *metrics) own() []prometheus.Collector {
	return []prometheus.Collector{m.gained, m.lost, m.recovery, m.compactions, m.compactionFailures, m.compacted, m.shared, m.letters, m.letterFailures}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	for _, own := range c.broker.metrics.own() {
		own.Collect(to)
	}
	c.partitions(ctx, to)
	c.lags(ctx, to)
}

func gauge(to chan<- prometheus.Metric, desc *prometheus.Desc, value int64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
}

// partitions collects the metrics of partitions.
func (c collector) partitions(ctx context.Context, to chan<- prometheus.Metric) {
	b, m := c.broker, c.broker.metrics
	var all, offline, behind int64
	var led []*Partition
	for _, t := range b.Topics() {
		if t.source != nil {
			continue
		}
		for _, p := range t.Partitions() {
			all++
			switch leader := p.Leader(); {
			case leader == b.Node():
				led = append(led, p)
			case leader < 0:
				offline++
			}
		}
	}
	b.AwaitReplicas(ctx, led)
	for i, p := range led {
		if len(p.InSync()) < len(p.Target()) {
			behind++
		}
		if i >= maxMeasured {
			continue
		}
		of := []string{p.topic.name, strconv.Itoa(int(p.number))}
		ends := p.Ends()
		gauge(to, m.start, ends.Start, of...)
		gauge(to, m.end, ends.HighWatermark, of...)
		if bytes, err := p.Bytes(ctx); err == nil {
			gauge(to, m.size, bytes, of...)
		}
	}
	gauge(to, m.partitions, all)
	gauge(to, m.led, int64(len(led)))
	gauge(to, m.offline, offline)
	gauge(to, m.behind, behind)
	gauge(to, m.omitted, int64(max(0, len(led)-maxMeasured)), "partition")
}

// lags collects the lag of groups in the partitions that this node leads.
func (c collector) lags(ctx context.Context, to chan<- prometheus.Metric) {
	b, m := c.broker, c.broker.metrics
	var shown, omitted int64
	err := b.lagsHere(ctx, func(lag Lag) bool {
		if shown == maxLags || !utf8.ValidString(lag.Group) { // labels are UTF-8
			omitted++
		} else {
			shown++
			gauge(to, m.lag, lag.Lag, lag.Group, lag.Topic, strconv.Itoa(int(lag.Partition)))
		}
		return ctx.Err() == nil
	})
	if err != nil {
		b.log.Debug("lag of groups not collected", "error", err)
	}
	gauge(to, m.omitted, omitted, "group_lag")
}
