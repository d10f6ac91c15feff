package engine

import (
	"maps"
	"math"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// firstLoad is the concurrency at which a target begins, and the least that durations
	// lead to: they vary for other reasons too. Failures may lead to leastLoad. MostLoad is
	// the most.
	firstLoad = 16
	leastLoad = 2
	mostLoad  = 1000
	// loadInterval is how often a target's concurrency is adjusted.
	loadInterval = 100 * time.Millisecond
	// downAfter is the number of attempts without an answer in a row after which a target
	// that has answered before is taken for down, for downMost at the longest.
	downAfter = 10
	downMost  = time.Hour
	// probeInterval is the time between two attempts against a target that is down, and how
	// long jobs that it failed wait.
	probeInterval = 2 * time.Second
	// forgetLoad is when a target without attempts is forgotten.
	forgetLoad = 10 * time.Minute
)

// loads finds how many attempts each target of webhooks can take at a time, and which targets
// are down. It is safe for concurrent use.
type loads struct {
	mu    sync.Mutex
	of    map[string]*load
	swept time.Time
}

// load is the state of one target.
type load struct {
	concurrencyFinder
	used time.Time
	// answered reports whether it ever did: what never has is wrong, not down. Silent counts
	// the last attempts without an answer, in a row.
	answered bool
	silent   int
	// downSince is when the target was taken for down, zero if it is not; probeAt is when
	// the next attempt may start.
	downSince, probeAt time.Time
	// probes counts the probes that have not ended: they may hang long after the target has
	// recovered, and take no place from others.
	probes int64
}

func (l *loads) get(name string, now time.Time) *load {
	k := l.of[name]
	if k == nil {
		k = &load{concurrencyFinder: concurrencyFinder{limit: firstLoad}}
		l.of[name] = k
	}
	k.used = now
	return k
}

// start reports whether an attempt may start now: always, unless the target is down. Then one
// may in each probeInterval, as a probe.
func (l *loads) start(name string) (may, probe bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.get(name, now)
	if k.downSince.IsZero() {
		return true, false
	}
	if now.Before(k.probeAt) {
		return false, false
	}
	k.probeAt = now.Add(probeInterval)
	k.probes++
	return true, true
}

// end records how an attempt ended, and whether it got no answer, and reports whether that is
// because the target is down.
// A probe may end long after the target has recovered, so one that fails says nothing new.
func (l *loads) end(name string, probe bool, kind bulk.SettlementKind, silent bool, took time.Duration) (failedDown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.get(name, now)
	if probe {
		k.probes--
	}
	switch {
	case kind == bulk.Released:
	case silent:
		if probe {
			return k.downSince.IsZero() || now.Sub(k.downSince) < downMost
		}
		k.failed++
		if k.silent++; k.silent == downAfter && k.answered {
			k.downSince, k.probeAt = now, now.Add(probeInterval)
		}
		return !k.downSince.IsZero()
	default:
		if !k.downSince.IsZero() {
			k.concurrencyFinder = concurrencyFinder{limit: firstLoad}
		}
		k.answered, k.silent, k.downSince = true, 0, time.Time{}
		switch kind {
		case bulk.Throttled:
		case bulk.FailedForNow:
			k.failed++
		default:
			k.passed++
			k.took += took
		}
	}
	return false
}

// left returns how many more jobs a target of webhooks can take, of which it has held; and ends
// the memory of targets that were not asked for.
func (l *loads) left(name string, held int64, limits bulk.TargetLimits, now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > forgetLoad {
		l.swept = now
		maps.DeleteFunc(l.of, func(_ string, k *load) bool { return now.Sub(k.used) > forgetLoad })
	}
	k := l.get(name, now)
	switch {
	case !k.downSince.IsZero() && now.Before(k.probeAt):
		return 0
	case !k.downSince.IsZero():
		return 1
	case limits.Concurrency == 0 && !limits.Auto:
		held = max(0, held-k.probes)
		return max(0, k.find(now, held)-held)
	}
	return bulk.NoLimit
}

// FoundLoad is what an instance has found out about a target of webhooks.
type FoundLoad struct {
	// Concurrency is how many attempts it can take at a time; 0 if nothing is known.
	Concurrency int
	// DownSince is when it was taken for down; zero if it is not.
	DownSince time.Time
}

// FoundLoad returns what this instance has found out about a target.
func (e *Engine) FoundLoad(target string) FoundLoad {
	e.loads.mu.Lock()
	defer e.loads.mu.Unlock()
	if k := e.loads.of[target]; k != nil {
		return FoundLoad{int(k.limit), k.downSince}
	}
	return FoundLoad{}
}

// show returns the concurrency that was found of each target, and 1 for those that are down.
func (l *loads) show() (concurrency, down map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	concurrency, down = map[string]float64{}, map[string]float64{}
	for name, k := range l.of {
		concurrency[name], down[name] = math.Floor(k.limit), 0
		if !k.downSince.IsZero() {
			down[name] = 1
		}
	}
	return concurrency, down
}

// HeldBack returns how many of the pending jobs of an action wait because their target is
// taken for down.
func (e *Engine) HeldBack(a *bulk.Action) int64 {
	if a.Target == nil || a.Status != bulk.Running || e.FoundLoad(a.Target.Name).DownSince.IsZero() {
		return 0
	}
	return a.Pending
}

// concurrencyFinder finds how many attempts a target can take at a time, from their durations
// and failures, as Netflix's Gradient2 does (concurrency-limits, 2018): while attempts take no
// more than twice the time they take without a queue, the limit increases by its root, and
// else it decreases in proportion. Before the first decrease it doubles. A limit that was not
// needed stays, and none is far above what is held on average (Little's law): attempts
// that start together in a window need not all be in flight together.
type concurrencyFinder struct {
	limit  float64
	slowed bool // the limit was decreased before
	// least is the duration without a queue, in seconds: the least that was seen, which
	// drifts to what is seen now.
	least float64
	// since is when the present interval began; passed, failed and took are its attempts,
	// and held the most that were held at a time.
	since          time.Time
	passed, failed int64
	took           time.Duration
	held           int64
	// average is how many were held over about averageTime, until seen; then it was last.
	average float64
	seen    time.Time
	last    int64
}

const (
	// leastDrift is the part of the difference to the present duration by which least
	// drifts in an interval.
	leastDrift = 0.01
	// noQueue is a duration, in seconds, up to which no queue is assumed: short durations
	// vary with the scheduler.
	noQueue = 0.02
	// failing is the share of failures above which the limit decreases, and failingStep by
	// how much.
	failing     = 0.1
	failingStep = 0.8
	// averageTime is about as long as a window; headroom is the limit in times of what is
	// held on average.
	averageTime = time.Second
	headroom    = 4
)

// find returns the limit, given how many are held now.
func (f *concurrencyFinder) find(now time.Time, held int64) int64 {
	part := 1 - math.Exp(-now.Sub(f.seen).Seconds()/averageTime.Seconds())
	f.average += part * (float64(f.last) - f.average)
	f.seen, f.last, f.held = now, held, max(f.held, held)
	if now.Sub(f.since) >= loadInterval && f.passed+f.failed > 0 {
		f.adjust()
		f.since, f.passed, f.failed, f.took, f.held = now, 0, 0, 0, held
	}
	return int64(f.limit)
}

func (f *concurrencyFinder) adjust() {
	most := min(mostLoad, max(firstLoad, headroom*f.average))
	step, least := 1.0, float64(firstLoad)
	if f.passed > 0 {
		present := f.took.Seconds() / float64(f.passed)
		if f.least == 0 || present < f.least {
			f.least = present
		}
		f.least += (present - f.least) * leastDrift
		step = min(1, max(0.5, 2*max(f.least, noQueue/2)/present))
	}
	if float64(f.failed) > failing*float64(f.passed+f.failed) {
		step, least = min(step, failingStep), leastLoad
	}
	switch {
	case step < 1:
		f.slowed = true
		f.limit = max(min(least, f.limit), f.limit*step)
	case float64(f.held) < f.limit/2: // it was not needed
	case f.slowed:
		f.limit += math.Sqrt(f.limit)
	default:
		f.limit *= 2
	}
	f.limit = min(f.limit, most)
}
