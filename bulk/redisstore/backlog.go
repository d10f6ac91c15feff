package redisstore

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Backlog implements bulk.Store. It brings the mirror up to date first.
func (s *Store) Backlog(ctx context.Context) (bulk.Backlog, error) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if err := s.look(ctx); err != nil {
		return bulk.Backlog{}, err
	}
	now := s.mirror.shards[0].now
	for i := range s.mirror.shards {
		if s.mirror.shards[i].now.After(now) {
			now = s.mirror.shards[i].now
		}
	}
	window := bulk.WindowIndex(now, s.config.Window)
	if err := s.learn(ctx, window); err != nil {
		return bulk.Backlog{}, err
	}
	values, _ := s.settings.get()
	v := &view{mirror: &s.mirror, settings: &values, window: window, length: s.config.Window}
	b := bulk.Backlog{
		Now: now, WindowEnds: bulk.WindowStart(window+1, s.config.Window), Left: v.left(),
		Types: v.types(now), Targets: v.targets(), Found: map[string]float64{}, Held: map[bulk.Holder]int64{},
	}
	for name := range s.mirror.autos.of {
		b.Found[name] = s.mirror.autos.found(name)
	}
	for i := range s.mirror.shards {
		m := &s.mirror.shards[i]
		b.Virtual = max(b.Virtual, m.state.Virtual)
		for reason, n := range m.state.Aside {
			b.NonReady[reason] += n
		}
		b.Outbox += m.outbox
		if !m.oldest.IsZero() && (b.OldestEvent.IsZero() || m.oldest.Before(b.OldestEvent)) {
			b.OldestEvent = m.oldest
		}
		b.Lines = append(b.Lines, v.lines(m)...)
		for _, a := range m.actions {
			if held := a.Ready + a.Flight; held > 0 {
				b.Held[bulk.Holder{Tenant: a.Tenant, Type: a.Type, Target: a.Target}] += held
			}
		}
	}
	for _, line := range b.Lines {
		state := b.Types[line.Type]
		for _, w := range line.Waiting {
			state.Waiting += w.Jobs
		}
		b.Types[line.Type] = state
	}
	s.ready.learn(&s.mirror)
	return b, nil
}

// view reads the mirror at one moment.
type view struct {
	mirror   *mirror
	settings *settings
	window   int64
	length   time.Duration
}

// left returns how many more jobs the global limit admits.
func (v *view) left() int64 {
	rate := v.settings.globalRate()
	if rate <= 0 {
		return bulk.NoLimit
	}
	left := bulk.Budget(rate, v.length, v.window)
	for i := range v.mirror.shards {
		left -= v.used(&v.mirror.shards[i])
	}
	return max(0, left)
}

// used returns the attempts that a shard has started in the window, plus its ready jobs.
func (v *view) used(m *shardMirror) int64 {
	used := startedIn(v.window, m.state.Window, m.state.Started)
	for _, k := range m.state.Kinds {
		if !k.idle(v.window) {
			used += k.Ready
		}
	}
	return used
}

// knownFor is how long the workers of an instance count that does not ask for jobs.
const knownFor = 5 * time.Second

// types returns the state of each type over all shards. Shards are busy at the same time, so
// Busy is the maximum over the shards.
func (v *view) types(now time.Time) map[string]bulk.TypeState {
	types := map[string]bulk.TypeState{}
	busy := map[string]bool{}
	pools := map[string]map[string]int64{}
	for i := range v.mirror.shards {
		for name, k := range v.mirror.shards[i].state.Kinds {
			t := types[name]
			t.Ready, t.InFlight, t.Finished = t.Ready+k.Ready, t.InFlight+k.Flight, t.Finished+k.Finished
			ms := k.Busy
			if k.Flight > 0 {
				ms += max(0, now.UnixMilli()-k.Since)
			}
			t.Busy = max(t.Busy, time.Duration(ms)*time.Millisecond)
			t.Virtual = max(t.Virtual, k.Virtual)
			if pools[name] == nil {
				pools[name] = map[string]int64{}
			}
			for instance, pool := range k.Pools {
				if now.UnixMilli()-pool[0] <= knownFor.Milliseconds() {
					pools[name][instance] = max(pools[name][instance], pool[1])
				}
			}
			busy[name] = busy[name] || k.Ready > 0 && !k.idle(v.window)
			types[name] = t
		}
	}
	for name, t := range types {
		for _, workers := range pools[name] {
			t.Workers += workers
		}
		t.Idle = t.Ready > 0 && !busy[name]
		types[name] = t
	}
	return types
}

// targets returns how many more jobs each limited target admits, by its configured limits or
// its found rate.
func (v *view) targets() map[string]int64 {
	left := map[string]int64{}
	use := v.useOfTargets()
	for name, t := range v.settings.Targets {
		u := use[name]
		if rate := v.mirror.rateOf(v.settings, name); rate > 0 {
			left[name] = max(0, bulk.Budget(rate, v.length, v.window)-u.started-u.ready)
		}
		if t.Concurrency > 0 {
			n := max(0, int64(t.Concurrency)-u.flight-u.ready)
			if before, limited := left[name]; limited {
				n = min(n, before)
			}
			left[name] = n
		}
	}
	for name, u := range use {
		if v.mirror.rateOf(v.settings, name) > 0 {
			continue
		}
		if allowed := v.mirror.congestion.allowance(name, v.window); allowed != bulk.NoLimit {
			n := max(0, allowed-u.started-u.ready-u.booked)
			if v.mirror.saturated(name) {
				n = 0
			}
			if before, limited := left[name]; limited {
				n = min(n, before)
			}
			left[name] = n
		}
	}
	return left
}

// use is the use of a target or a limiter.
type use struct{ started, ready, flight, booked int64 }

func (v *view) useOfTargets() map[string]use {
	all := map[string]use{}
	for i := range v.mirror.shards {
		m := &v.mirror.shards[i]
		for name, g := range m.targets {
			u := all[name]
			u.started += startedIn(v.window, g.Window, g.Started)
			u.flight += g.Flight
			for kind, n := range g.Ready {
				if !m.state.Kinds[kind].idle(v.window) {
					u.ready += n
				}
			}
			all[name] = u
		}
		for key, l := range m.limiters {
			_, name := splitLimiter(key)
			u := all[name]
			u.booked += l.At[number(v.window)]
			all[name] = u
		}
	}
	return all
}

// lines returns the lines of one shard that have waiting jobs.
func (v *view) lines(m *shardMirror) (lines []bulk.Line) {
	at := map[[2]string]int{}
	uses := map[string]use{}
	for _, a := range m.actions {
		u := uses[a.Tenant+"\n"+a.Target]
		u.started += startedIn(v.window, a.Window, a.Started)
		u.ready += a.Ready
		uses[a.Tenant+"\n"+a.Target] = u
	}
	for n, a := range m.actions {
		if a.Status != bulk.Running || a.Paused == 1 || a.waiting() <= 0 {
			continue
		}
		key := [2]string{a.Tenant, a.Type}
		i, known := at[key]
		if !known {
			i = len(lines)
			at[key] = i
			lines = append(lines, v.line(m, a))
		}
		limiter := a.Tenant + "\n" + a.Target
		lines[i].Waiting = append(lines[i].Waiting, bulk.Waiting{
			Number: n, Class: a.spec.Class, EnteredAt: time.UnixMilli(a.Entered), Total: a.size(),
			Done: a.Succeeded + a.Failed + a.Canceled, Jobs: a.waiting(), Target: a.Target,
			Left: v.leftOfLimiter(m, a.Target, limiter, uses[limiter]),
		})
	}
	return lines
}

func (v *view) line(m *shardMirror, a *mirrored) bulk.Line {
	settings, set := v.settings.Tenants[a.Tenant]
	if !set {
		settings = bulk.Tenant{}.WithDefaults()
	}
	line := bulk.Line{Tenant: a.Tenant, Type: a.Type, Settings: settings, Left: bulk.NoLimit}
	t := m.tenants[a.Tenant]
	if t == nil {
		t = &tenantState{}
	}
	line.Taken, line.TypeTaken, line.Granted = t.Taken, t.Lines[a.Type].Taken, t.Lines[a.Type].Granted
	if settings.RequestsPerSecond > 0 {
		line.Left = bulk.Budget(settings.RequestsPerSecond, v.length, v.window) - startedIn(v.window, t.Window, t.Started)
		for kind, l := range t.Lines {
			if !m.state.Kinds[kind].idle(v.window) {
				line.Left -= l.Ready
			}
		}
		line.Left = max(0, line.Left)
	}
	return line
}

// leftOfLimiter returns how many more jobs congestion control admits for a tenant and a
// target: the measured rate, less the jobs that have started, are ready, or have their slot
// in the window. A tenant that was throttled in the window gets no more.
func (v *view) leftOfLimiter(m *shardMirror, target, limiter string, u use) int64 {
	if v.mirror.rateOf(v.settings, target) > 0 {
		return bulk.NoLimit
	}
	if m.throttled[limiter] {
		return 0
	}
	allowed := v.mirror.congestion.allowance(limiter, v.window)
	if allowed == bulk.NoLimit {
		return bulk.NoLimit
	}
	if l := m.limiters[limiter]; l != nil {
		u.booked = l.At[number(v.window)]
	}
	return max(0, allowed-u.started-u.ready-u.booked)
}
