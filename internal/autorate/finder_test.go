package autorate

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The runs last autoRunSeconds. The rate is checked from autoFound on; if the target halves
// its capacity, not in the seconds after a change.
const (
	autoRunSeconds = 300.0
	autoFound      = 40.0
	autoHalves     = 100.0
	autoRecovers   = 200.0
	autoHalvedIn   = 10.0
	autoRisesIn    = 50.0
)

// halving has half the capacity from autoHalves to autoRecovers.
func halving(rate float64) func(at float64) float64 {
	return func(at float64) float64 {
		if at >= autoHalves && at < autoRecovers {
			return rate / 2
		}
		return rate
	}
}

// autoTargets has the targets whose rate must be found, by name.
var autoTargets = map[string]func(rate func(float64) float64, latency func() float64) target{
	"token bucket": func(rate func(float64) float64, latency func() float64) target {
		return &bucketTarget{rate: rate, seconds: 1, latency: latency, tokens: rate(0)}
	},
	"fixed windows": func(rate func(float64) float64, latency func() float64) target {
		return &windowTarget{rate: rate, seconds: 1, phase: 0.37, latency: latency}
	},
	"queue": func(rate func(float64) float64, latency func() float64) target {
		return &queueTarget{rate: rate, noise: noisy(1, 3), latency: latency}
	},
}

// TestIsFound runs the policy against targets of all kinds. The rate must be within
// 10 % of the true rate on average, with at most 2 % of throttles over the whole run.
func TestIsFound(t *testing.T) {
	for kind, target := range autoTargets {
		for _, rate := range []float64{50, 500, 5000} {
			for name, capacity := range map[string]func(float64) float64{"": always(rate), ", halved": halving(rate)} {
				t.Run(fmt.Sprintf("%s of %g%s", kind, rate, name), func(t *testing.T) {
					t.Parallel()
					for _, latency := range []float64{0.01, 0.2, 2} {
						for _, run := range []run{
							{time.Second, 0.01, autoRunSeconds, nil}, {time.Second, 1, autoRunSeconds, nil},
							{100 * time.Millisecond, 1, autoRunSeconds, nil},
						} {
							if rate == 5000 && (latency != 0.2 || run.window < time.Second) {
								continue // like the targets of 500, and slow
							}
							points := run.against(target(capacity, noisy(latency, 1)), &Finder{})
							checkAutoRun(t, fmt.Sprintf("%v, %v after %g s", run.window, run.spread, latency), points, capacity, name != "")
						}
					}
				})
			}
		}
	}
}

func checkAutoRun(t *testing.T, name string, points []point, capacity func(float64) float64, halved bool) {
	var attempts, throttles, found, counted float64
	for _, p := range points {
		attempts += float64(p.started)
		throttles += float64(p.throttled)
		changing := p.at >= autoHalves && p.at < autoHalves+autoHalvedIn || p.at >= autoRecovers && p.at < autoRecovers+autoRisesIn
		if p.at >= autoFound && !(halved && changing) {
			found += p.rate / capacity(p.at)
			counted++
		}
	}
	t.Logf("%s: %.3f of the true rate, %.2f %% throttled", name, found/counted, 100*throttles/attempts)
	if ratio := found / counted; ratio < 0.9 || ratio > 1.1 {
		t.Errorf("%s: the rate found is %.3f of the true one, want 0.9 to 1.1", name, ratio)
	}
	if throttles/attempts > 0.02 {
		t.Errorf("%s: %.4f of the attempts were throttled, want at most 0.02", name, throttles/attempts)
	}
}

// TestStaysWithoutEvidence checks that an hour at a fifth of a found rate does not
// change it, though the target would sustain more.
func TestStaysWithoutEvidence(t *testing.T) {
	a := &Finder{}
	run := run{window: time.Second, spread: 1, seconds: 60}
	run.against(&bucketTarget{rate: always(500), seconds: 1, latency: exactly(0.05), tokens: 500}, a)
	before := a.Rate()
	run.seconds, run.load = 3600, func(float64) int64 { return 100 }
	idle := *a
	idle.Window = -1
	run.against(&bucketTarget{rate: always(1e6), seconds: 1, latency: exactly(0.05), tokens: 1e6}, &idle)
	if idle.Rate() != before {
		t.Errorf("the rate went from %g to %g while it was not made use of", before, idle.Rate())
	}
	first := &Finder{Window: -1}
	run.load = func(at float64) int64 { return int64(at) % 3 }
	run.against(&bucketTarget{rate: always(1e6), seconds: 1, latency: exactly(0.05), tokens: 1e6}, first)
	if first.Rate() != First {
		t.Errorf("the rate went from %g to %g with two attempts a second", First, first.Rate())
	}
}

// autoOutageTarget throttles everything for some seconds.
type autoOutageTarget struct {
	target
	from, to float64
}

func (o *autoOutageTarget) attempt(at float64) (float64, bool) {
	if at >= o.from && at < o.to {
		return at + 0.005, true
	}
	return o.target.attempt(at)
}

// TestAfterAnOutage checks that the rate recovers soon after an outage, in which the
// target answers all requests with 503.
func TestAfterAnOutage(t *testing.T) {
	for _, rate := range []float64{50, 500, 5000} {
		target := &autoOutageTarget{&bucketTarget{rate: always(rate), seconds: 1, latency: exactly(0.05), tokens: rate}, 100, 130}
		points := run{window: time.Second, spread: 1, seconds: 200}.against(target, &Finder{})
		asked := int64(0)
		for _, p := range points[105:130] {
			asked += p.started
		}
		if asked > int64(0.02*rate*25)+30 {
			t.Errorf("%g/s: %d attempts in the last 25 s of an outage", rate, asked)
		}
		if p := points[145]; p.rate < 0.9*rate {
			t.Errorf("%g/s: 15 s after an outage the rate is %g", rate, p.rate)
		}
	}
}

// TestOfATargetThatBecameSlower checks that the rate soon recovers if the target has
// become slower at any rate.
func TestOfATargetThatBecameSlower(t *testing.T) {
	slower := 0.0
	target := &bucketTarget{rate: always(500), seconds: 1, tokens: 500}
	target.latency = func() float64 {
		if target.counted > 100 {
			slower = 3
		}
		return 0.1 + slower
	}
	points := run{window: time.Second, spread: 1, seconds: 200}.against(target, &Finder{})
	if p := points[125]; p.rate < 450 {
		t.Errorf("25 s after attempts began to take 3 s longer, the rate is %g of 500", p.rate)
	}
}

// TestBounds uses a target that passes nothing and one without a limit.
func TestBounds(t *testing.T) {
	never := &bucketTarget{rate: always(0), latency: exactly(0.05)}
	for _, p := range (run{window: time.Second, spread: 1, seconds: 100}).against(never, &Finder{})[50:] {
		if p.rate != 1 {
			t.Fatalf("a target that throttles everything is asked %g times a second, want once", p.rate)
		}
	}
	a := &Finder{}
	for i := range int64(100) {
		n := budget(a.Rate(), time.Second, i)
		a.Observe(Sample{Window: i, Length: time.Second, Started: n, Passed: n, Held: true})
	}
	if a.Rate() != most {
		t.Errorf("the rate of a target that bears anything is %g, want %g", a.Rate(), float64(most))
	}
}

// TestWaitsForAnswers checks that the rate does not double before the attempts of the
// previous rate have ended.
func TestWaitsForAnswers(t *testing.T) {
	target := &bucketTarget{rate: always(1e6), seconds: 1, tokens: 1e6, latency: exactly(5)}
	points := run{window: time.Second, spread: 1, seconds: 30}.against(target, &Finder{})
	for i, want := range map[int]float64{0: 10, 4: 10, 7: 20, 10: 20, 14: 40} {
		if points[i].rate != want {
			t.Errorf("second %d: %g attempts a second, want %g, where answers take 5 s", i, points[i].rate, want)
		}
	}
}

// drawSample draws a random sample, including unlikely ones.
func drawSample(t *rapid.T, window int64) Sample {
	count := rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64Range(0, 1_000_000))
	return Sample{
		Window: window, Length: rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 700 * time.Millisecond, time.Second, time.Minute}).Draw(t, "length"),
		Started: count.Draw(t, "started"), Passed: count.Draw(t, "passed"), Throttled: rapid.OneOf(rapid.Just(int64(0)), count).Draw(t, "throttled"),
		Took: time.Duration(count.Draw(t, "took_ms")) * time.Millisecond, ThrottledTook: time.Duration(count.Draw(t, "throttled_took_ms")) * time.Millisecond,
		InFlight: count.Draw(t, "in flight"), Held: rapid.Bool().Draw(t, "held"),
	}
}

// TestProperties checks that the rate stays within its bounds; that it rises only if
// it was used up, and at most doubles in a round (a window may end two rounds); and that
// storing it changes nothing.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, window := &Finder{}, rapid.Int64Range(-5, 1<<40).Draw(t, "first window")
		for range rapid.IntRange(1, 120).Draw(t, "windows") {
			s := drawSample(t, window)
			before, drained, held := a.Rate(), a.Drain, a.Round.Held
			stored := &Finder{}
			raw, err := json.Marshal(a)
			if err == nil {
				err = json.Unmarshal(raw, stored)
			}
			if err != nil {
				t.Fatal(err)
			}
			stored.Observe(s)
			a.Observe(s)
			if *a != *stored {
				t.Fatalf("observed after it was stored: %+v, want %+v", *stored, *a)
			}
			rate := a.Rate()
			if math.IsNaN(rate) || rate <= 0 || rate > most {
				t.Fatalf("the rate is %g", rate)
			}
			// The minimum rate, one attempt in a round, rises to 1 if rounds become shorter.
			if drained == 0 && rate > max(4*before, 2) || !s.Held && held == 0 && a.Drain == 0 && drained == 0 && rate > max(before, 1) {
				t.Fatalf("the rate went from %g to %g in a window", before, rate)
			}
			window += rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 50}).Draw(t, "windows on")
		}
	})
}

// TestAddsUpShards checks that a window's sample may come in parts, as from shards.
// The last part decides when the round ends.
func TestAddsUpShards(t *testing.T) {
	const window = 400 * time.Millisecond
	whole, parts := &Finder{}, &Finder{}
	for i := range int64(60) {
		n := budget(whole.Rate(), window, i)
		s := Sample{Window: i, Length: window, Started: n, Passed: min(n, 100), Throttled: max(0, n-100), Held: true}
		whole.Observe(s)
		if i%3 == 2 { // the window that ends a round must be complete
			parts.Observe(s)
			continue
		}
		for range 2 {
			half := s
			half.Started, half.Passed, half.Throttled = n/2, s.Passed/2, s.Throttled/2
			parts.Observe(half)
			s.Started, s.Passed, s.Throttled = n-half.Started, s.Passed-half.Passed, s.Throttled-half.Throttled
			if half.Held {
				parts.Observe(s)
				break
			}
		}
	}
	if whole.Rate() != parts.Rate() {
		t.Errorf("the rate is %g, and %g from parts", whole.Rate(), parts.Rate())
	}
}
