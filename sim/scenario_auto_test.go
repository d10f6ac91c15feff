package sim

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// autoTarget is the target of the scenarios in which the engine finds the rate.
type autoTarget struct {
	// rate is how many attempts per second the target accepts, by the time since the start.
	rate func(since time.Duration) float64
	// kind is the behaviour above the rate.
	kind    autoKind
	latency time.Duration

	mu        sync.Mutex
	began     time.Time
	level     float64 // tokens, or attempts of the target's window
	counted   time.Time
	free      time.Time // when the queue will be empty
	attempts  int
	throttled int
}

type autoKind int

const (
	// tokenBucket holds the tokens of a second; above them it throttles.
	tokenBucket autoKind = iota
	// fixedWindows are windows of a second with an offset from the engine's; attempts above the
	// rate of a window are throttled.
	fixedWindows
	// queued attempts wait; none is throttled.
	queued
)

var _ bulk.Handler = (*autoTarget)(nil)

// Handle makes one attempt.
func (t *autoTarget) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	wait, err := t.arrive(time.Now())
	if err != nil {
		return nil, err
	}
	if err := pass(ctx, wait); err != nil {
		return nil, err
	}
	return job.Payload, nil
}

// arrive returns how long an attempt that arrives now takes, or throttles it.
func (t *autoTarget) arrive(now time.Time) (time.Duration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts++
	rate := t.rate(now.Sub(t.began))
	switch t.kind {
	case queued:
		if t.free.Before(now) {
			t.free = now
		}
		t.free = t.free.Add(time.Duration(float64(time.Second) / rate))
		return t.free.Sub(now) + t.latency, nil
	case tokenBucket:
		t.level = min(rate, t.level+now.Sub(t.counted).Seconds()*rate)
		t.counted = now
		if t.level < 1 {
			return 0, t.throttle()
		}
		t.level--
	case fixedWindows:
		if window := now.Add(-targetPhase).Truncate(time.Second); !window.Equal(t.counted) {
			t.counted, t.level = window, 0
		}
		if t.level >= rate {
			return 0, t.throttle()
		}
		t.level++
	}
	return t.latency, nil
}

func (t *autoTarget) throttle() error {
	t.throttled++
	return &bulk.ThrottledError{Reason: "asked too often"}
}

// seen returns how many attempts were made, and how many of them were throttled.
func (t *autoTarget) seen() (attempts, throttled float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.attempts), float64(t.throttled)
}

// autoScenario is a run against one target.
type autoScenario struct {
	name    string
	kind    autoKind
	rate    func(since time.Duration) float64
	latency time.Duration
	workers int
	// jobs are more than the run has time for.
	seconds, jobs int
	// changes has the seconds at which the rate changes, and for how long after each the found rate
	// is not judged.
	changes map[int]int
}

func steady(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// halves returns a rate that drops to half for a while.
func halves(rate float64) func(time.Duration) float64 {
	return func(since time.Duration) float64 {
		if since >= 100*time.Second && since < 180*time.Second {
			return rate / 2
		}
		return rate
	}
}

// autoSettles is the number of seconds after which the rate is judged.
const autoSettles = 30

// autoScenarios are the scenarios of docs/bulk/auto.svg.
var autoScenarios = []autoScenario{
	{"50 requests/s, fixed windows", fixedWindows, steady(50), 20 * time.Millisecond, 100, 180, 10_000, nil},
	{"500 requests/s, token bucket", tokenBucket, steady(500), 40 * time.Millisecond, 100, 120, 62_000, nil},
	{"5,000 requests/s, token bucket", tokenBucket, steady(5000), 20 * time.Millisecond, 400, 90, 460_000, nil},
	{"200 requests/s, half of it for 80 seconds", fixedWindows, halves(200), 40 * time.Millisecond, 100, 270, 50_000, map[int]int{100: 10, 180: 45}},
	{"200 requests/s, slow answers instead of 429s", queued, steady(200), 50 * time.Millisecond, 600, 150, 31_000, nil},
}

// autoSecond is the record of one second: the found rate, the true one, and the attempts that were
// not throttled.
type autoSecond struct{ Found, True, Passed float64 }

// run runs the real engine and store against the target.
func (s *autoScenario) run(t *testing.T) (seconds []autoSecond, throttled float64) {
	target := &autoTarget{kind: s.kind, rate: s.rate, latency: s.latency}
	mux := bulk.NewMux()
	mux.Handle(bulk.WebhookType, target)
	config := bulk.Config{RequestsPerSecond: -1, Workers: s.workers}
	simulate(t, config, 300*time.Millisecond, mux, func(w *world) {
		w.set(bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{Auto: true}})
		target.began = time.Now()
		target.level = s.rate(0)
		if s.kind == fixedWindows {
			target.level = 0
		}
		for tenant := range 2 {
			w.submit(bulk.Spec{Tenant: fmt.Sprint("tenant-", tenant), Target: &bulk.Target{Name: "api", URL: "http://api/"}}, s.jobs/2)
		}
		for i := range s.seconds {
			found, err := w.engine.FoundRate(t.Context(), "api")
			if err != nil {
				t.Fatal(err)
			}
			attempts, throttles := target.seen()
			time.Sleep(time.Second)
			after, afterThrottles := target.seen()
			seconds = append(seconds, autoSecond{
				found, s.rate(time.Duration(i) * time.Second), after - afterThrottles - attempts + throttles,
			})
			throttled = afterThrottles / after
		}
	})
	return seconds, throttled
}

// settled reports whether the rate is judged in a second.
func (s *autoScenario) settled(second int) bool {
	for change, takes := range s.changes {
		if second >= change && second < change+takes {
			return false
		}
	}
	return second >= autoSettles
}

// The real engine and store find the rate of each target: within 10 % on average, with at most 2 %
// of the attempts throttled, the first seconds included.
func TestAutoFindsTheRate(t *testing.T) {
	var results []autoResult
	for i := range autoScenarios {
		s := &autoScenarios[i]
		if os.Getenv("SLUICE_LONG") == "" && !*update && s.jobs >= 50_000 {
			continue // they take seconds each
		}
		t.Run(s.name, func(t *testing.T) {
			seconds, throttled := s.run(t)
			results = append(results, autoResult{s, seconds, throttled})
			found, passed, n := 0.0, 0.0, 0.0
			for i, second := range seconds {
				if s.settled(i) {
					found, passed, n = found+second.Found/second.True, passed+second.Passed/second.True, n+1
				}
			}
			t.Logf("%.3f of the true rate, %.3f passed, %.2f %% throttled", found/n, passed/n, 100*throttled)
			if mean := found / n; mean < 0.9 || mean > 1.1 {
				t.Errorf("the rate found is %.3f of the true one, want 0.9 to 1.1", mean)
			}
			if mean := passed / n; mean < 0.9 || mean > 1.1 {
				t.Errorf("attempts passed at %.3f of the true rate, want 0.9 to 1.1", mean)
			}
			if throttled > 0.02 {
				t.Errorf("%.4f of the attempts were throttled, want at most 0.02", throttled)
			}
		})
	}
	if len(results) == len(autoScenarios) { // not with some of them
		checkPlot(t, results)
	}
}
