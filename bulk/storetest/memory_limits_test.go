package storetest

import (
	"slices"

	"github.com/sluice-project/sluice/bulk"
)

// limiter is one bound on starts: of everything, of a tenant, or of a target.
type limiter struct {
	key         string
	rate        float64
	concurrency int
}

func (m *memory) limiters(a *memAction) []limiter {
	global := m.config.RequestsPerSecond
	if m.settings.Limits != nil {
		global = m.settings.Limits.RequestsPerSecond
	}
	target := m.settings.Targets[a.TargetName()]
	if auto := m.autos[a.TargetName()]; auto != nil && !m.is("auto without a limit") {
		target.RequestsPerSecond = auto.rate.Rate()
	}
	return []limiter{
		{key: "", rate: global},
		{key: "tenant " + a.Tenant, rate: m.settings.Tenants[a.Tenant].RequestsPerSecond},
		{key: "target " + a.TargetName(), rate: target.RequestsPerSecond, concurrency: target.Concurrency},
	}
}

func (m *memory) under(a *memAction, key string) bool {
	return slices.ContainsFunc(m.limiters(a), func(l limiter) bool { return l.key == key })
}

// left is what a limiter lets into the ready queue, or in flight.
func (m *memory) left(l limiter, countReady bool) int64 {
	var ready, inFlight int64
	for _, a := range m.actions {
		if m.under(a, l.key) {
			inFlight += a.InFlight
			if !m.idle(a.Type) {
				ready += a.Ready
			}
		}
	}
	if !countReady || m.is("ready not counted") {
		ready = 0
	}
	left := bulk.NoLimit
	if l.rate > 0 {
		left = max(0, budget(l.rate, m.config.Window, m.window)-m.started[l.key]-ready)
	}
	if l.concurrency > 0 && !m.is("concurrency ignored") {
		left = min(left, max(0, int64(l.concurrency)-inFlight-ready))
	}
	return left
}

// idle tells whether jobs of a type are ready and nobody asks for them.
func (m *memory) idle(jobType string) bool {
	isReady := func(j *memJob) bool { return j.action.Type == jobType }
	return m.window > m.asked[jobType]+1 && slices.ContainsFunc(m.ready, isReady) && !m.is("idle types hold slots")
}

func (m *memory) allowed(a *memAction, countReady bool) bool {
	for _, l := range m.limiters(a) {
		if m.left(l, countReady) == 0 {
			return false
		}
	}
	return true
}
