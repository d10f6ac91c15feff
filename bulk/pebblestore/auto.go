package pebblestore

import (
	"encoding/json"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// auto finds the rate of one target. The rate is written with the first lease of each
// window, so that it needs no write of its own.
type auto struct {
	rate   bulk.AutoRate
	sample bulk.AutoSample // of the present window
	// learned reports whether the rate has changed since it was written.
	learned bool
}

// passed and throttled count an ended attempt. A target that is not set to Auto has no auto.
func (a *auto) passed(took time.Duration) {
	if a != nil {
		a.sample.Passed++
		a.sample.Took += took
	}
}

func (a *auto) throttled(took time.Duration) {
	if a != nil {
		a.sample.Throttled++
		a.sample.ThrottledTook += took
	}
}

// started counts an attempt that starts.
func (a *auto) started() {
	if a != nil {
		a.sample.Started++
	}
}

// adoptAuto starts or stops finding a target's rate. Setting it again changes nothing.
func (s *Store) adoptAuto(t *target, on bool) {
	switch {
	case !on:
		t.auto = nil
		delete(s.autos, t.name)
		return
	case t.auto == nil:
		t.auto = &auto{}
		s.autos[t.name] = t
	}
	t.limit.RequestsPerSecond = t.auto.rate.Rate()
}

// findRates observes the windows that have ended, and finds the rates of the next.
func (s *Store) findRates(window int64) {
	if window == s.autoWindow {
		return
	}
	ended := s.autoWindow
	s.autoWindow = window
	if len(s.autos) == 0 || ended == 0 { // or the store was just opened
		return
	}
	for _, t := range s.autos {
		t.observe(s.config.Window, ended, t.waiting > 0 || t.ready > 0)
		if window < ended { // the clock was set back: keep the rate
			t.auto.rate.Window = window - 1
		}
		t.limit.RequestsPerSecond = t.auto.rate.Rate()
	}
}

// observe adds a window that has ended, with whether jobs waited at its end.
func (t *target) observe(length time.Duration, window int64, waits bool) {
	s := &t.auto.sample
	s.Window, s.Length, s.InFlight = window, length, t.inFlight
	s.Held = waits && s.Started >= bulk.Budget(t.limit.Paced(), length, window)
	t.auto.rate.Observe(*s)
	t.auto.sample, t.auto.learned = bulk.AutoSample{}, true
}

// found returns the rates of the targets set to Auto.
func (s *Store) found() map[string]float64 {
	found := make(map[string]float64, len(s.autos))
	for name, t := range s.autos {
		found[name] = t.limit.RequestsPerSecond
	}
	return found
}

func autoKey(target string) []byte { return append([]byte{keyAuto}, target...) }

// writeAuto writes the rates that have changed.
func (c *call) writeAuto() {
	for name, t := range c.s.autos {
		if !t.auto.learned {
			continue
		}
		t.auto.learned = false
		encoded, err := json.Marshal(&t.auto.rate)
		c.keep(err)
		c.keep(c.batch.Set(autoKey(name), encoded, &pebble.WriteOptions{}))
	}
}

// loadAuto reads the rates of the targets set to Auto.
func (s *Store) loadAuto() error {
	return pebblekv.Scan(s.db, []byte{keyAuto}, []byte{keyAuto + 1}, func(key, value []byte) (bool, error) {
		t := s.autos[string(key[1:])]
		if t == nil {
			return true, nil
		}
		err := pebblekv.Unmarshal(key, value, &t.auto.rate)
		t.limit.RequestsPerSecond = t.auto.rate.Rate()
		return true, err
	})
}
