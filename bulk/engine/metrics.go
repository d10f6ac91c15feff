package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/bulk"
)

// maxLabels bounds the values of each of the labels "tenant", "type" and "target"; the
// rest is counted under "other".
const maxLabels = 200

const otherLabel = "other"

// metrics are bulk's metrics.
type metrics struct {
	mu      sync.Mutex
	tenants labels
	types   labels
	targets labels
	state   bulk.Backlog
	loads   *loads
	quotas  quotas

	allowed, denied, attempts, jobs, actions  *prometheus.CounterVec
	refused                                   *prometheus.CounterVec
	moved, skipped, rejected, received, cycle prometheus.Counter
	admittedTo                                *prometheus.CounterVec
	cycleDuration                             prometheus.Histogram
	attemptDuration                           *prometheus.HistogramVec
	waiting, readySize                        *prometheus.Desc
	nonReadySize, inFlightSize                *prometheus.Desc
	published                                 *prometheus.CounterVec
	publishFailures                           prometheus.Counter
	runs                                      *prometheus.CounterVec
	outboxSize, outboxAge                     *prometheus.Desc
	foundRate, foundConcurrency, down         *prometheus.Desc
}

func newMetrics(loads *loads, quotas quotas) *metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bulk_action_" + name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "bulk_action_" + name, Help: help})
	}
	buckets := prometheus.ExponentialBuckets(1, 4, 9)
	return &metrics{
		tenants:    labels{},
		types:      labels{},
		targets:    labels{},
		loads:      loads,
		quotas:     quotas,
		allowed:    counters("rate_limit_allowed_total", "Jobs that the limits let into the ready queue.", "tenant"),
		denied:     counters("rate_limit_denied_total", "Looks at the fair queue in which a limit held a tenant's jobs back; they wait, nothing is turned back.", "tenant", "reason"),
		moved:      counter("dispatch_moved_total", "Jobs that returned to their line because they were due or their lease had expired."),
		skipped:    counter("dispatch_skip_total", "Looks at the fair queue that admitted nothing because the ready queue was full."),
		admittedTo: counters("backpressure_admitted_total", "Jobs that entered the ready queue, or were turned back to the non-ready queue.", "destination"),
		rejected:   counter("backpressure_rejected_total", "Jobs that were refused at upload."),
		received:   counter("received_total", "Jobs that were received."),
		cycle:      counter("dispatch_cycles_total", "Looks for due jobs."),
		attempts:   counters("attempts_total", "Attempts that ended, by outcome.", "type", "outcome"),
		jobs:       counters("jobs_total", "Jobs that finished, by outcome.", "tenant", "outcome"),
		refused:    counters("settlements_refused_total", "Outcomes that changed nothing, by verdict: their lease was settled before, has ended, or was never given.", "verdict"),
		actions:    counters("finished_total", "Actions that finished, by status.", "status"),
		cycleDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bulk_action_dispatch_cycle_duration_ms", Help: "Duration of one look for due jobs.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9)}),
		attemptDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bulk_action_attempt_duration_ms", Help: "Duration of one attempt.", Buckets: buckets}, []string{"type"}),
		waiting:      prometheus.NewDesc("bulk_action_waiting_size", "Jobs that wait in line, ready ones not included.", []string{"type"}, nil),
		readySize:    prometheus.NewDesc("bulk_action_ready_queue_size", "Jobs that are ready.", []string{"type"}, nil),
		nonReadySize: prometheus.NewDesc("bulk_action_non_ready_queue_size", "Jobs that were turned back and wait until they are due.", []string{"reason"}, nil),
		inFlightSize: prometheus.NewDesc("bulk_action_in_flight_size", "Jobs that are in flight.", []string{"type"}, nil),
		published:    counters("events_published_total", "Events that were published, of actions or of jobs.", "of"),
		publishFailures: counter("publish_failures_total",
			"Attempts to publish events that failed; they are made again."),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bulk_schedule_runs_total",
			Help: "Runs of schedules that were due or asked for, by what became of them."}, []string{"outcome"}),
		outboxSize: prometheus.NewDesc("bulk_action_outbox_size", "Events that wait to be published.", nil, nil),
		outboxAge: prometheus.NewDesc("bulk_action_outbox_oldest_age_seconds",
			"For how long the oldest event waits to be published; 0 if none does.", nil, nil),
		foundRate: prometheus.NewDesc("bulk_action_target_found_requests_per_second",
			"The rate that was found of a target which is set to auto.", []string{"target"}, nil),
		foundConcurrency: prometheus.NewDesc("bulk_action_target_found_concurrency",
			"How many webhooks at a time this instance has found that a target can take.", []string{"target"}, nil),
		down: prometheus.NewDesc("bulk_action_target_down",
			"1 while this instance takes a target of webhooks for down, and holds its jobs back.", []string{"target"}, nil),
	}
}

// Collector returns bulk's metrics for Prometheus.
func (e *Engine) Collector() prometheus.Collector { return e.metrics }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.allowed, m.denied, m.moved, m.skipped, m.admittedTo, m.rejected, m.received, m.cycle,
		m.attempts, m.refused, m.jobs, m.actions, m.cycleDuration, m.attemptDuration, m.published, m.publishFailures,
		m.runs,
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	to <- m.waiting
	to <- m.readySize
	to <- m.nonReadySize
	to <- m.inFlightSize
	to <- m.outboxSize
	to <- m.outboxAge
	to <- m.foundRate
	to <- m.foundConcurrency
	to <- m.down
	to <- m.quotas.stored
	to <- m.quotas.most
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	concurrency, down := m.loads.show()
	m.mu.Lock()
	state := m.state
	waiting, ready, inFlight := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(state.Types)) {
		label := m.types.of(name)
		waiting[label] += state.Types[name].Waiting
		ready[label] += state.Types[name].Ready
		inFlight[label] += state.Types[name].InFlight
	}
	ofTargets := map[*prometheus.Desc]map[string]float64{
		m.foundRate: m.targets.add(state.Found), m.foundConcurrency: m.targets.add(concurrency), m.down: m.targets.add(down),
	}
	tenants := slices.Collect(maps.Keys(m.tenants))
	m.mu.Unlock()
	m.quotas.collect(to, tenants)
	for gauge, values := range ofTargets {
		for label, value := range values {
			to <- prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, value, label)
		}
	}
	for label := range ready {
		to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting[label]), label)
		to <- prometheus.MustNewConstMetric(m.readySize, prometheus.GaugeValue, float64(ready[label]), label)
		to <- prometheus.MustNewConstMetric(m.inFlightSize, prometheus.GaugeValue, float64(inFlight[label]), label)
	}
	age := time.Duration(0)
	if !state.OldestEvent.IsZero() {
		age = max(0, time.Since(state.OldestEvent))
	}
	to <- prometheus.MustNewConstMetric(m.outboxSize, prometheus.GaugeValue, float64(state.Outbox))
	to <- prometheus.MustNewConstMetric(m.outboxAge, prometheus.GaugeValue, age.Seconds())
	for reason, jobs := range state.NonReady {
		to <- prometheus.MustNewConstMetric(m.nonReadySize, prometheus.GaugeValue, float64(jobs), bulk.NonReadyReason(reason).String())
	}
}

// labels are the names that have their own label.
type labels map[string]bool

// of returns the label of a name: the name itself, up to maxLabels names.
func (l labels) of(name string) string {
	if !l[name] {
		if len(l) >= maxLabels {
			return otherLabel
		}
		l[name] = true
	}
	return name
}

// add returns the sums of values by label, given them by name.
func (l labels) add(values map[string]float64) map[string]float64 {
	sums := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		sums[l.of(name)] += values[name]
	}
	return sums
}

func (m *metrics) tenant(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tenants.of(name)
}

func (m *metrics) jobType(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.types.of(name)
}

func (m *metrics) appended(err error, jobs int) {
	if err != nil {
		m.rejected.Add(float64(jobs))
		return
	}
	m.received.Add(float64(jobs))
}

// fetched counts what one read of the fair queue has found, and what limited it.
func (m *metrics) fetched(seen fetched, admitted int) {
	m.mu.Lock()
	m.state = seen.backlog
	m.mu.Unlock()
	if admitted > 0 {
		m.admittedTo.WithLabelValues("ready").Add(float64(admitted))
	}
	if seen.backlog.LinesWaiting() > 0 && (seen.free.Total <= 0 || admitted == 0 && seen.backlog.Left > 0) {
		m.skipped.Inc()
	}
	for reason, tenants := range seen.denied {
		for _, tenant := range tenants {
			m.denied.WithLabelValues(m.tenant(tenant), reason).Inc()
		}
	}
	for tenant, jobs := range seen.passed {
		m.allowed.WithLabelValues(m.tenant(tenant)).Add(float64(jobs))
	}
}

func (m *metrics) dispatched(moved int, took time.Duration) {
	m.cycle.Inc()
	m.moved.Add(float64(moved))
	m.cycleDuration.Observe(float64(took) / float64(time.Millisecond))
}

var outcomeLabels = map[bulk.SettlementKind]string{
	bulk.Succeeded: "succeeded", bulk.FailedForGood: "failed", bulk.FailedForNow: "retry", bulk.Throttled: "throttled",
	bulk.Released: "released", bulk.Extended: "extended",
}

// settled counts outcomes. Counters are looked up once for each tenant, type and
// outcome of a batch, not for each job.
func (m *metrics) settled(batch []attemptOutcome, verdicts []bulk.Verdict) {
	type key struct {
		spec *bulk.Spec
		kind bulk.SettlementKind
	}
	counts := map[key]int{}
	refused := [bulk.Unknown + 1]int{}
	var last key
	var run int
	for i := range batch {
		refused[verdicts[i]]++
		if verdicts[i] != bulk.Accepted || batch[i].spec == nil {
			continue
		}
		k := key{batch[i].spec, batch[i].kind()}
		if k != last {
			counts[last] += run
			last, run = k, 0
		}
		run++
	}
	counts[last] += run
	for k, n := range counts {
		if k.spec == nil || n == 0 {
			continue
		}
		label := outcomeLabels[k.kind]
		m.attempts.WithLabelValues(m.jobType(k.spec.Type), label).Add(float64(n))
		switch k.kind {
		case bulk.Succeeded, bulk.FailedForGood:
			m.jobs.WithLabelValues(m.tenant(k.spec.Tenant), label).Add(float64(n))
		case bulk.FailedForNow, bulk.Throttled:
			m.admittedTo.WithLabelValues("non_ready").Add(float64(n))
		}
	}
	for verdict := bulk.Duplicate; verdict <= bulk.Unknown; verdict++ {
		m.refused.WithLabelValues(verdict.String()).Add(float64(refused[verdict]))
	}
	m.timed(batch, verdicts)
}

// timed observes the durations of a batch's attempts that were recorded; of a large batch, a sample.
func (m *metrics) timed(batch []attemptOutcome, verdicts []bulk.Verdict) {
	const samples = 64
	for i := 0; i < len(batch); i += 1 + len(batch)/samples {
		if e := &batch[i]; e.spec != nil && e.settlement.Kind < bulk.Released && verdicts[i] != 0 {
			m.attemptDuration.WithLabelValues(m.jobType(e.spec.Type)).Observe(float64(e.settlement.Took) / float64(time.Millisecond))
		}
	}
}

// publishedEvents counts events of actions and of jobs.
func (m *metrics) publishedEvents(events []bulk.Event) {
	jobs := 0
	for i := range events {
		if events[i].Type == bulk.JobSucceeded || events[i].Type == bulk.JobFailed {
			jobs++
		}
	}
	if jobs > 0 {
		m.published.WithLabelValues("job").Add(float64(jobs))
	}
	if actions := len(events) - jobs; actions > 0 {
		m.published.WithLabelValues("action").Add(float64(actions))
	}
}

func (m *metrics) finished(a bulk.Action) { m.actions.WithLabelValues(string(a.Status)).Inc() }

// Outcomes of a run of a schedule.
const (
	runStarted = "started"
	runSkipped = "skipped"
	runMissed  = "missed"
	runFailed  = "failed"
)

func (m *metrics) run(outcome string) { m.runs.WithLabelValues(outcome).Inc() }

func (m *metrics) missedRuns(runs int) {
	if runs > 0 {
		m.runs.WithLabelValues(runMissed).Add(float64(runs))
	}
}
