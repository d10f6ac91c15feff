package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// tallied is the number of windows whose tallies a new instance reads.
const tallied = 20

// congestion is the measured congestion of targets and limiters. All instances observe the
// same tallies, window by window, and so measure the same. A new instance begins with the
// tallies of the last windows.
type congestion struct {
	window int64 // the last observed window
	of     map[string]*learned
	// recent has the tallies of targets in the last windows.
	recent map[int64]map[string]tally
}

type learned struct {
	bulk.Congestion
	last int64 // the last window with attempts
}

// forgetAfter is after how many windows without attempts a measurement is dropped.
const forgetAfter = 600

func splitLimiter(key string) (tenant, target string) {
	tenant, target, _ = strings.Cut(key, "\n")
	return tenant, target
}

// allowance returns what congestion control allows a target or a limiter in a window.
func (c *congestion) allowance(key string, window int64) int64 {
	l := c.of[key]
	if l == nil {
		return bulk.NoLimit
	}
	// Observe closes the windows before, as Allowance requires.
	l.Observe(window, 0, 0)
	return l.Allowance(window)
}

// tally counts the attempts that started in one window, and those that ended, by outcome.
type tally struct {
	passed, throttled, started int64
	took, throttledTook        time.Duration
}

func (t *tally) add(other *tally) {
	t.passed, t.throttled, t.started = t.passed+other.passed, t.throttled+other.throttled, t.started+other.started
	t.took, t.throttledTook = t.took+other.took, t.throttledTook+other.throttledTook
}

// learn observes the windows that have ended. mirror.mu must be held.
func (s *Store) learn(ctx context.Context, window int64) error {
	c := &s.mirror.congestion
	if c.of == nil {
		c.of, c.window, c.recent = map[string]*learned{}, window-1-tallied, map[int64]map[string]tally{}
	}
	values, revision := s.settings.get()
	if a := &s.mirror.autos; c.window >= window-1 && a.window >= window && a.revision == revision {
		return nil
	}
	for w := max(c.window+1, window-tallied); w < window; w++ {
		limiters, err := s.tallies(ctx, w)
		if err != nil {
			return err
		}
		c.observe(w, limiters)
		c.window = w
	}
	for w := range c.recent {
		if w < window-tallied {
			delete(c.recent, w)
		}
	}
	for key, l := range c.of {
		if window-l.last > forgetAfter {
			delete(c.of, key)
		}
	}
	return s.findRates(ctx, &values, revision, window)
}

// tallies reads the tallies of a window, by limiter, over all shards that answer.
func (s *Store) tallies(ctx context.Context, window int64) (map[string]*tally, error) {
	found, err := do(ctx, s, func(ctx context.Context) ([]map[string]string, error) {
		var commands rueidis.Commands
		for i, base := range s.shards {
			if s.mirror.shards[i].silent {
				continue
			}
			commands = append(commands, s.db.B().Hgetall().Key(base+"tally:"+number(window)).Build())
		}
		var found []map[string]string
		for _, answer := range s.db.DoMulti(ctx, commands...) {
			fields, err := answer.AsStrMap()
			if err != nil {
				return nil, err
			}
			found = append(found, fields)
		}
		return found, nil
	})
	limiters := map[string]*tally{}
	for _, fields := range found {
		for field, text := range fields {
			at := len(field) - 2 // "\n" and a letter
			count, err := strconv.ParseInt(text, 10, 64)
			if at < 0 || err != nil {
				continue
			}
			t := limiters[field[:at]]
			if t == nil {
				t = &tally{}
				limiters[field[:at]] = t
			}
			switch field[at+1:] {
			case "p":
				t.passed += count
			case "t":
				t.throttled += count
			case "s":
				t.started += count
			case "d":
				t.took += time.Duration(count) * time.Microsecond
			case "e":
				t.throttledTook += time.Duration(count) * time.Microsecond
			}
		}
	}
	return limiters, err
}

// observe observes a window that has ended. If most tenants were throttled, the target
// reached a limit that they share; if few were, each of these reached a limit of its own.
func (c *congestion) observe(window int64, limiters map[string]*tally) {
	type sum struct {
		tally
		tenants, turned int
	}
	targets := map[string]*sum{}
	for key, t := range limiters {
		_, target := splitLimiter(key)
		if targets[target] == nil {
			targets[target] = &sum{}
		}
		all := targets[target]
		all.add(t)
		if t.passed+t.throttled > 0 {
			all.tenants++
		}
		if t.throttled > 0 {
			all.turned++
		}
	}
	c.recent[window] = map[string]tally{}
	for target, t := range targets {
		c.recent[window][target] = t.tally
	}
	for key, t := range limiters {
		_, target := splitLimiter(key)
		if t.passed+t.throttled == 0 {
			continue
		}
		throttled := t.throttled
		if bulk.Saturated(targets[target].tenants, targets[target].turned) {
			throttled = 0
		}
		c.learned(key, window).Observe(window, t.passed, throttled)
	}
	for target, t := range targets {
		if t.tenants == 0 {
			continue
		}
		throttled := t.throttled
		if !bulk.Saturated(t.tenants, t.turned) {
			throttled = 0
		}
		c.learned(target, window).Observe(window, t.passed, throttled)
	}
}

func (c *congestion) learned(key string, window int64) *learned {
	l := c.of[key]
	if l == nil {
		l = &learned{}
		c.of[key] = l
	}
	l.last = window
	return l
}

// sharing returns how many tenants have throttled jobs that wait for each target.
func (s *Store) sharing() map[string]float64 {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	sharing := map[string]float64{}
	for i := range s.mirror.shards {
		for key, l := range s.mirror.shards[i].limiters {
			if _, target := splitLimiter(key); l.Waiting > 0 {
				sharing[target]++
			}
		}
	}
	return sharing
}

// ratePerSecond returns the rate of a limiter: its own limit if one was measured, else its
// part of the target's rate, which is configured or measured, among the tenants that share it.
// Passed is the number of attempts that passed in the present window, which is not observed yet.
func (s *Store) ratePerSecond(tenant, target string, sharing float64, passed int64) float64 {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	sharing = max(1, sharing)
	values, _ := s.settings.get()
	if rate := s.mirror.limitOf(&values, "g:"+target).Paced(); rate > 0 {
		return rate / sharing
	}
	c := &s.mirror.congestion
	seconds := s.config.Window.Seconds()
	if l := c.of[tenant+"\n"+target]; l != nil && l.Known() {
		return max(l.PerWindow(), float64(passed)) / seconds
	}
	part := 1.0
	if l := c.of[target]; l != nil {
		part = l.PerWindow() / sharing
	}
	return max(part, float64(passed), 1) / seconds
}

// limitOf returns the limit of a name, as settings.limitOf does, with the rate that was found.
func (m *mirror) limitOf(values *settings, name string) bulk.Limit {
	l := values.limitOf(name)
	if target, is := values.autoOf(name); is {
		l.RequestsPerSecond = m.autos.found(target)
	}
	return l
}
