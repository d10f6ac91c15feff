package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/lifecycle"
)

// The bounds of the history: an hour.
const (
	interval = 10 * time.Second
	kept     = 360
	// recent is how many snapshots are kept whole, for rates of the last minute.
	recent = 7
)

// snapshot has the metrics of one moment.
type snapshot struct {
	at time.Time
	// total sums each metric over all its labels; labeled sums those of byLabel by the values of that label.
	total   map[string]float64
	labeled map[string]map[string]float64
	// lags has the lag of each group in each topic, by topic.
	lags map[string]map[string]float64
}

// byLabel are the metrics that are kept by a label, and which. Each has at most some thousand values.
var byLabel = map[string]string{
	"bulk_action_jobs_total":               "tenant",
	"bulk_action_attempts_total":           "type",
	"bulk_action_target_down":              "target",
	"bulk_action_target_found_concurrency": "target",
	"topic_partition_end_offset":           "topic",
	"topic_partition_bytes":                "topic",
	"topic_group_lag":                      "group",
}

// charted are the metrics of the charts, in the order of a point. Counters are shown as rates.
var charted = [...]string{
	"room_waiting", "room_inside", "room_admitted_total",
	"bulk_action_waiting_size", "bulk_action_in_flight_size", "bulk_action_jobs_total", failedJobs,
	"topic_partition_end_offset", "topic_kafka_sent_bytes_total", "topic_group_lag",
}

// failedJobs is the part of bulk_action_jobs_total with the outcome "failed".
const failedJobs = "bulk_action_jobs_total failed"

// point has the totals of the charted metrics at one moment.
type point struct {
	at     time.Time
	values [len(charted)]float64
}

// history has the figures of the last hour, each 10 s. It is safe for concurrent use.
type history struct {
	metrics prometheus.Gatherer

	mu     sync.Mutex
	points []point     // up to kept, the oldest first
	whole  []*snapshot // up to recent, the oldest first
	last   *snapshot
	fresh  time.Time // until when last is good
}

func newHistory(metrics prometheus.Gatherer) *history { return &history{metrics: metrics} }

// grow adds a point each interval until ctx ends.
func (h *history) grow(ctx context.Context) error {
	for {
		h.add()
		if !lifecycle.Sleep(ctx, nil, interval) {
			return ctx.Err()
		}
	}
}

// add adds the present metrics, unless they are those of the last point: they take long to collect.
func (h *history) add() {
	s := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.whole) > 0 && h.whole[len(h.whole)-1] == s {
		return
	}
	p := point{at: s.at}
	for i, name := range charted {
		p.values[i] = s.total[name]
	}
	h.points = append(h.points[max(0, len(h.points)-kept+1):], p)
	h.whole = append(h.whole[max(0, len(h.whole)-recent+1):], s)
}

// now returns the present metrics. They are collected at most each 2 s, and for at most a twentieth
// of the time, however many ask.
func (h *history) now() *snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	began := time.Now()
	if began.Before(h.fresh) {
		return h.last
	}
	h.last = collect(h.metrics, began)
	took := time.Since(began)
	h.fresh = began.Add(max(2*time.Second, 20*took) - time.Second/2)
	return h.last
}

// collect returns the metrics at a moment. Those of a collector that fails are missing.
func collect(metrics prometheus.Gatherer, at time.Time) *snapshot {
	s := &snapshot{at: at, total: map[string]float64{}, labeled: map[string]map[string]float64{}, lags: map[string]map[string]float64{}}
	families, _ := metrics.Gather() // it returns what it could collect
	for _, family := range families {
		name := family.GetName()
		label := byLabel[name]
		if label != "" {
			s.labeled[name] = map[string]float64{}
		}
		for _, m := range family.GetMetric() {
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			s.total[name] += v
			topic, group := "", ""
			for _, pair := range m.GetLabel() {
				switch pair.GetName() {
				case "topic":
					topic = pair.GetValue()
				case "group":
					group = pair.GetValue()
				}
				if pair.GetName() == label {
					s.labeled[name][pair.GetValue()] += v
				}
				if name == "bulk_action_jobs_total" && pair.GetValue() == "failed" && pair.GetName() == "outcome" {
					s.total[failedJobs] += v
				}
			}
			if name == "topic_group_lag" {
				s.addLag(topic, group, v)
			}
		}
	}
	return s
}

// addLag adds the lag of a group in a partition to that in its topic.
func (s *snapshot) addLag(topic, group string, lag float64) {
	if s.lags[topic] == nil {
		s.lags[topic] = map[string]float64{}
	}
	s.lags[topic][group] += lag
}

// minute returns the present metrics and those of about a minute ago; before is nil until there
// are any.
func (h *history) minute() (now, before *snapshot) {
	now = h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.whole) > 0 && h.whole[0] != now {
		before = h.whole[0]
	}
	return now, before
}

// rate returns by how much a counter grows in a second, over the last minute; 0 if it has begun again.
func rate(now, before *snapshot, of func(*snapshot) float64) float64 {
	if before == nil {
		return 0
	}
	return grown(of(before), of(now)) / now.at.Sub(before.at).Seconds()
}

func grown(before, now float64) float64 {
	if now < before {
		return 0
	}
	return now - before
}

// total returns a function that reads a metric.
func total(name string) func(*snapshot) float64 {
	return func(s *snapshot) float64 { return s.total[name] }
}

// of returns a function that reads a metric of one label.
func of(name, label string) func(*snapshot) float64 {
	return func(s *snapshot) float64 { return s.labeled[name][label] }
}

// series returns the values of charted metrics, each the oldest first, with the times of all; those of a
// counter by second.
func (h *history) series(lines ...line) (times []time.Time, values [][]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	values = make([][]float64, len(lines))
	for n := 1; n < len(h.points); n++ {
		before, p := &h.points[n-1], &h.points[n]
		times = append(times, p.at)
		for i, l := range lines {
			at := slices.Index(charted[:], l.metric)
			v := p.values[at]
			if l.counter {
				v = grown(before.values[at], v) / p.at.Sub(before.at).Seconds()
			}
			values[i] = append(values[i], v)
		}
	}
	return times, values
}

// growing returns some of the labels of a metric that has grown in each snapshot of the last minute.
func (h *history) growing(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.whole) < recent {
		return nil
	}
	return first(h.whole[recent-1].labeled[name], func(label string) bool {
		for i := 1; i < recent; i++ {
			if h.whole[i].labeled[name][label] <= h.whole[i-1].labeled[name][label] {
				return false
			}
		}
		return true
	})
}
