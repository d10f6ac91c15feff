package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// tallied is how many windows of tallies are read by an instance that is new.
const tallied = 20

// congestion is what was learned of targets and limiters. All instances read the same
// tallies, window by window, so that all learn the same; one that is new begins with
// those of the last windows.
type congestion struct {
	window int64 // up to which windows are learned
	of     map[string]*learned
	// recent has the tallies of targets in the last windows.
	recent map[int64]map[string]tally
}

type learned struct {
	bulk.Congestion
	last int64 // the last window with attempts
}

// forgetAfter is how many windows without attempts what was learned is kept.
const forgetAfter = 600

func splitLimiter(key string) (tenant, target string) {
	tenant, target, _ = strings.Cut(key, "\n")
	return tenant, target
}

// allowance is what congestion control lets a target or a limiter have in a window.
func (c *congestion) allowance(key string, window int64) int64 {
	l := c.of[key]
	if l == nil {
		return bulk.NoLimit
	}
	// Observe ends the windows before, as Allowance wants it.
	l.Observe(window, 0, 0)
	return l.Allowance(window)
}

// tally is how attempts ended in one window, and how many started.
type tally struct {
	passed, throttled, started int64
	took, throttledTook        time.Duration
}

func (t *tally) add(other *tally) {
	t.passed, t.throttled, t.started = t.passed+other.passed, t.throttled+other.throttled, t.started+other.started
	t.took, t.throttledTook = t.took+other.took, t.throttledTook+other.throttledTook
}

// learn reads the tallies of windows that have ended, with mirror.mu held.
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

// tallies reads how attempts ended in a window, by limiter, of all shards.
func (s *Store) tallies(ctx context.Context, window int64) (map[string]*tally, error) {
	found, err := do(ctx, s, func(ctx context.Context) ([]map[string]string, error) {
		var commands rueidis.Commands
		for _, base := range s.shards {
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
			at := len(field) - 2 // "\n" and what it counts
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

// observe learns from a window that has ended: where most tenants were throttled the
// target's own limit was reached, which they share; where few were, each has reached a
// limit that the target has for it.
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

// saturated tells whether most of the tenants that have jobs against a target in flight
// or turned back were throttled in the present window.
func (m *mirror) saturated(target string) bool {
	tenants, throttled := map[string]bool{}, 0
	for i := range m.shards {
		for _, a := range m.shards[i].actions {
			if a.Target == target && (a.Flight > 0 || a.Started > 0) {
				tenants[a.Tenant] = true
			}
		}
		for key := range m.shards[i].throttled {
			if tenant, name := splitLimiter(key); name == target {
				tenants[tenant] = true
				throttled++
			}
		}
	}
	return throttled > 0 && bulk.Saturated(len(tenants), throttled)
}

// ratePerSecond is what a limiter is let through: its own limit where one was seen, else
// its part of the target's rate, which is configured or was seen. Passed is what has
// passed in the present window, of which nothing is learned yet.
func (s *Store) ratePerSecond(tenant, target string, passed int64) float64 {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	sharing := 0.0
	for i := range s.mirror.shards {
		for key, l := range s.mirror.shards[i].limiters {
			if _, name := splitLimiter(key); name == target && l.Waiting > 0 {
				sharing++
			}
		}
	}
	sharing = max(1, sharing)
	values, _ := s.settings.get()
	if rate := s.mirror.rateOf(&values, target); rate > 0 {
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

// rateOf is the rate of a target, set or found; 0 if it has none.
func (m *mirror) rateOf(values *settings, target string) float64 {
	t := values.Targets[target]
	if t.Auto {
		return m.autos.found(target)
	}
	return t.RequestsPerSecond
}
