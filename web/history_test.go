package web

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fixture has metrics of which the tests set the values.
type fixture struct {
	registry *prometheus.Registry
	jobs     *prometheus.CounterVec
	inside   *prometheus.GaugeVec
	lag      *prometheus.GaugeVec
}

func newFixture() *fixture {
	f := &fixture{
		registry: prometheus.NewRegistry(),
		jobs:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bulk_action_jobs_total"}, []string{"tenant", "outcome"}),
		inside:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "room_inside"}, []string{"room"}),
		lag:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "topic_group_lag"}, []string{"group", "topic", "partition"}),
	}
	f.registry.MustRegister(f.jobs, f.inside, f.lag)
	return f
}

// run lets a history grow for a time, with a step before each point.
func run(t *testing.T, h *history, points int, step func()) {
	for range points {
		time.Sleep(interval)
		step()
		h.add()
	}
}

func TestHistoryHasRatesOfTheLastMinuteAndAnHourOfPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		h := newHistory(f.registry)
		run(t, h, 400, func() {
			f.jobs.WithLabelValues("acme", "succeeded").Add(30)
			f.jobs.WithLabelValues("acme", "failed").Add(10)
			f.jobs.WithLabelValues("other", "succeeded").Add(60)
			f.inside.WithLabelValues("shop").Inc()
			f.inside.WithLabelValues("fair").Inc()
		})
		now, before := h.minute()
		for _, test := range []struct {
			name string
			of   func(*snapshot) float64
			want float64
		}{
			{"jobs", total("bulk_action_jobs_total"), 10},
			{"failed jobs", total(failedJobs), 1},
			{"jobs of acme", of("bulk_action_jobs_total", "acme"), 4},
		} {
			if got := rate(now, before, test.of); got != test.want {
				t.Errorf("%s: %v a second, want %v", test.name, got, test.want)
			}
		}
		times, values := h.series(line{metric: "room_inside"}, line{metric: "bulk_action_jobs_total", counter: true})
		inside, jobs, last := values[0], values[1], len(times)-1
		if last != kept-2 || inside[0] != 2*42 || inside[last] != 800 || times[last].Sub(times[0]) != (kept-2)*interval {
			t.Errorf("%d points from %v to %v", len(times), inside[0], inside[last])
		}
		if jobs[0] != 10 || jobs[last] != 10 {
			t.Errorf("jobs a second: %v … %v", jobs[0], jobs[last])
		}
	})
}

// A counter that begins again, as after a restart, has no rate below zero.
func TestCountersThatBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		h := newHistory(f.registry)
		run(t, h, 3, func() { f.jobs.WithLabelValues("acme", "succeeded").Add(100) })
		f.jobs.Reset()
		run(t, h, 1, func() {})
		if now, before := h.minute(); rate(now, before, total("bulk_action_jobs_total")) != 0 {
			t.Error("the rate is below zero")
		}
	})
}

// However many pages are asked for, metrics are collected once in about two seconds.
func TestMetricsAreCollectedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collected := 0
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "collected"}, func() float64 { collected++; return 0 }))
		h := newHistory(registry)
		for range 100 {
			h.now()
			time.Sleep(100 * time.Millisecond)
		}
		if collected < 4 || collected > 8 {
			t.Errorf("collected %d times in 10 s", collected)
		}
	})
}

func TestGroupsThatFallBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		h := newHistory(f.registry)
		run(t, h, recent, func() {
			f.lag.WithLabelValues("slow", "orders", "0").Add(5)
			f.lag.WithLabelValues("even", "orders", "0").Set(100)
		})
		if growing := h.growing("topic_group_lag"); len(growing) != 1 || growing[0] != "slow" {
			t.Errorf("%v fall behind, want slow", growing)
		}
	})
}
