package autorate

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// target is a model of a target: it returns when an attempt that begins at a time, in
// seconds, ends, and whether it is throttled.
type target interface {
	attempt(at float64) (ends float64, throttled bool)
}

// bucketTarget is a token bucket that holds the tokens of some seconds.
type bucketTarget struct {
	rate            func(at float64) float64
	seconds         float64
	latency         func() float64
	tokens, counted float64
}

func (b *bucketTarget) attempt(at float64) (ends float64, throttled bool) {
	rate := b.rate(at)
	b.tokens = min(b.tokens+(at-b.counted)*rate, rate*b.seconds)
	b.counted = at
	if b.tokens < 1 {
		return at + 0.005, true
	}
	b.tokens--
	return at + b.latency(), false
}

// windowTarget counts in its own windows, which begin at a phase.
type windowTarget struct {
	rate            func(at float64) float64
	seconds, phase  float64
	latency         func() float64
	window, counted float64
}

func (w *windowTarget) attempt(at float64) (ends float64, throttled bool) {
	if window := math.Floor((at - w.phase) / w.seconds); window != w.window {
		w.window, w.counted = window, 0
	}
	if w.counted >= math.Floor(w.rate(at)*w.seconds) {
		return at + 0.005, true
	}
	w.counted++
	return at + w.latency(), false
}

// queueTarget never throttles: attempts wait until earlier ones have been served.
type queueTarget struct {
	rate    func(at float64) float64
	noise   func() float64
	latency func() float64
	free    float64
}

func (q *queueTarget) attempt(at float64) (ends float64, throttled bool) {
	q.free = max(q.free, at) + q.noise()/q.rate(at)
	return q.free + q.latency(), false
}

func always(x float64) func(float64) float64 { return func(float64) float64 { return x } }
func exactly(x float64) func() float64       { return func() float64 { return x } }

// noisy returns values that vary by up to half around x.
func noisy(x float64, seed uint64) func() float64 {
	random := rand.New(rand.NewPCG(seed, 1))
	return func() float64 { return x * (0.5 + random.Float64()) }
}

// run is a run of the policy against a target, as in a store: more jobs always wait than
// may start.
type run struct {
	window time.Duration
	// spread is the part of a window over which its attempts begin.
	spread  float64
	seconds float64
	load    func(at float64) int64 // the number of jobs in each window; nil: always enough
}

// point is the result of one window of a run.
type point struct {
	at, rate                             float64
	started, passed, throttled, inFlight int64
}

func (run run) against(target target, a *Finder) (points []point) {
	type ending struct {
		at, began float64
		throttled bool
	}
	var flying []ending
	length := run.window.Seconds()
	for i := range int64(run.seconds / length) {
		begins := float64(i) * length
		n := budget(a.Rate(), run.window, i)
		held := true
		if run.load != nil {
			held = run.load(begins) > n
			n = min(n, run.load(begins))
		}
		p := point{at: begins, rate: a.Rate(), started: n}
		for j := range n {
			at := begins + float64(j)/float64(n)*run.spread*length
			ends, throttled := target.attempt(at)
			flying = append(flying, ending{ends, at, throttled})
		}
		var took, throttledTook float64
		flying = slices.DeleteFunc(flying, func(e ending) bool {
			if e.at >= begins+length {
				return false
			}
			if e.throttled {
				p.throttled++
				throttledTook += e.at - e.began
			} else {
				p.passed++
				took += e.at - e.began
			}
			return true
		})
		p.inFlight = int64(len(flying))
		a.Observe(Sample{
			Window: i, Length: run.window, Started: n, Passed: p.passed, Throttled: p.throttled,
			Took: time.Duration(took * 1e9), ThrottledTook: time.Duration(throttledTook * 1e9), InFlight: p.inFlight, Held: held,
		})
		points = append(points, p)
	}
	return points
}

// budget returns how many attempts a rate allows in a window: fractions are carried over.
func budget(rate float64, window time.Duration, index int64) int64 {
	const scale = 1_000_000
	each := int64(math.Round(rate * window.Seconds() * scale))
	i := (index%scale + scale) % scale
	return each/scale + (i+1)*(each%scale)/scale - i*(each%scale)/scale
}
