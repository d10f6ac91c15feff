package storetest

import "github.com/sluice-project/sluice/bulk"

// memAuto finds the rate of one target.
type memAuto struct {
	rate   bulk.AutoRate
	sample bulk.AutoSample
}

func (m *memory) setAuto(target string, on bool) {
	switch {
	case !on && !m.is("auto outlives its setting"):
		delete(m.autos, target)
	case on && (m.autos[target] == nil || m.is("auto starts anew")):
		m.autos[target] = &memAuto{}
	}
}

func (m *memory) observe(a *memAction, s bulk.Settlement) {
	auto := m.autos[a.TargetName()]
	switch {
	case auto == nil || s.Kind == bulk.Released:
	case s.Kind != bulk.Throttled:
		auto.sample.Passed++
		auto.sample.Took += s.Took
	case !m.is("auto ignores throttles"):
		auto.sample.Throttled++
		auto.sample.ThrottledTook += s.Took
	}
	if auto != nil && m.is("auto learns at once") {
		m.learn(a.TargetName(), auto)
	}
}

// findRates ends the window before the one of that index.
func (m *memory) findRates(int64) {
	for name, auto := range m.autos {
		if !m.is("auto learns nothing") && !m.is("auto learns at once") {
			m.learn(name, auto)
		}
	}
}

func (m *memory) learn(target string, auto *memAuto) {
	s := &auto.sample
	s.Window, s.Length, s.Started = m.window, m.config.Window, m.started["target "+target]
	for _, a := range m.actions {
		if a.TargetName() == target {
			s.InFlight += a.InFlight
			s.Held = s.Held || a.Status == bulk.Running && a.Pending+a.Ready > 0
		}
	}
	s.Held = s.Held && s.Started >= budget(auto.rate.Rate(), m.config.Window, m.window)
	if m.is("auto rises when idle") {
		s.Held = true
	}
	auto.rate.Observe(*s)
	auto.sample = bulk.AutoSample{}
}

func (m *memory) found() map[string]float64 {
	found := map[string]float64{}
	for name, auto := range m.autos {
		found[name] = auto.rate.Rate()
	}
	return found
}
