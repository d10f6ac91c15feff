package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// autos are the rates found for targets that are set to auto. The hub keeps each rate with
// the last window that it has observed. The first instance that reaches a window observes the
// windows before it, and the others adopt the result. So all instances have the same rate in
// a window.
type autos struct {
	window   int64 // the window that the rates are for
	revision int64 // the revision of the settings that the rates are for
	of       map[string]*bulk.AutoRate
}

func (s *settings) hasAuto() bool {
	for _, t := range s.targets.all() {
		if t.Auto {
			return true
		}
	}
	return false
}

// autoOf reports whether a limit is that of a target that is set to auto, and returns its name.
func (s *settings) autoOf(limit string) (target string, auto bool) {
	target, is := strings.CutPrefix(limit, "g:")
	t, _ := s.targets.get(target)
	return target, is && t.Auto
}

// found returns the rate of a target that is set to auto; 0 for other targets.
func (a *autos) found(target string) float64 {
	if rate := a.of[target]; rate != nil {
		return rate.Rate()
	}
	return 0
}

// findRates finds the rates for a window. mirror.mu must be held, and the tallies of earlier
// windows must have been read.
func (s *Store) findRates(ctx context.Context, values *settings, revision, window int64) error {
	a := &s.mirror.autos
	if !values.hasAuto() {
		a.window, a.revision, a.of = window, revision, nil
		return nil
	}
	key := s.hub + "autos"
	stored, err := ask(ctx, s, s.db.B().Hgetall().Key(key).Build(), asMap)
	if err != nil {
		return err
	}
	of := map[string]*bulk.AutoRate{}
	for name, t := range values.targets.all() {
		if !t.Auto {
			continue
		}
		upTo, rate, err := readAuto(stored[name], window)
		if err == nil && upTo < window-1 {
			s.mirror.learnRate(rate, name, t.Limit(), upTo, window, s.config.Window)
		}
		if err == nil && (upTo < window-1 || stored[name] == "") {
			rate, err = s.putAuto(ctx, key, name, window, rate)
		}
		if err != nil {
			return fmt.Errorf("redis: the rate of target %q: %w", name, err)
		}
		of[name] = rate
	}
	a.window, a.revision, a.of = window, revision, of
	return nil
}

// readAuto parses a rate and the last window that it has observed. A new rate observes
// windows from now on.
func readAuto(text string, window int64) (upTo int64, rate *bulk.AutoRate, err error) {
	rate = &bulk.AutoRate{}
	if text == "" {
		return window - 1, rate, nil
	}
	at, learned, _ := strings.Cut(text, " ")
	if upTo, err = strconv.ParseInt(at, 10, 64); err == nil {
		err = json.Unmarshal([]byte(learned), rate)
	}
	return upTo, rate, err
}

// putAuto stores a rate, and returns the rate that is stored then.
func (s *Store) putAuto(ctx context.Context, key, name string, window int64, rate *bulk.AutoRate) (*bulk.AutoRate, error) {
	learned, err := json.Marshal(rate)
	if err != nil {
		return nil, err
	}
	text, err := exec(ctx, s, autoPutScript, key, []string{name, number(window - 1), string(learned)}, asText)
	if err != nil {
		return nil, err
	}
	_, rate, err = readAuto(text, window)
	return rate, err
}

// dropAuto deletes the rate of a target that is no longer set to auto.
func (s *Store) dropAuto(ctx context.Context, target string) error {
	_, err := ask(ctx, s, s.db.B().Hdel().Key(s.hub+"autos").Field(target).Build(), asInt)
	return err
}

// learnRate makes a rate observe the windows after upTo that have ended. It takes the number
// of jobs in flight, and whether any wait, from the present instead of the end of each
// window.
func (m *mirror) learnRate(rate *bulk.AutoRate, target string, limit bulk.Limit, upTo, window int64, length time.Duration) {
	flight, waits := int64(0), false
	for i := range m.shards {
		if g := m.shards[i].targets[target]; g != nil {
			flight += g.Flight
		}
		for _, a := range m.shards[i].actions {
			waits = waits || a.Target == target && (a.Ready > 0 || a.Status == bulk.Running && a.Paused == 0 && a.waiting() > 0)
		}
	}
	for w := max(upTo+1, window-tallied); w < window; w++ {
		limit.RequestsPerSecond = rate.Rate()
		t := m.congestion.recent[w][target]
		rate.Observe(bulk.AutoSample{
			Window: w, Length: length, Started: t.started, Passed: t.passed, Throttled: t.throttled,
			Took: t.took, ThrottledTook: t.throttledTook, InFlight: flight,
			Held: waits && t.started >= bulk.Budget(limit.Paced(), length, w),
		})
	}
}
