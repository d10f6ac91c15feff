package redisstore

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Backlog implements bulk.Store. It brings the mirror up to date first. Jobs of silent shards do
// not wait, but count against limits as far as they were known.
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
	v := s.view(&values, now)
	b := bulk.Backlog{
		Now: now, WindowEnds: bulk.WindowStart(window+1, s.config.Window), Left: v.left("all"),
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
	v.end(&b.WindowEnds, "all")
	for name := range b.Targets {
		v.end(&b.WindowEnds, "g:"+name)
	}
	for _, line := range b.Lines {
		if line.Left != bulk.NoLimit {
			v.end(&b.WindowEnds, "t:"+line.Tenant)
		}
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
	now      time.Time
	window   int64
	length   time.Duration
}

// view returns a view of the mirror, whose mutex must be held while it is used.
func (s *Store) view(values *settings, now time.Time) *view {
	return &view{mirror: &s.mirror, settings: values, now: now, window: bulk.WindowIndex(now, s.config.Window), length: s.config.Window}
}

// use is the use of a limit, or of a limiter.
type use struct{ started, ready, flight, booked int64 }

func (u *use) add(other use) {
	u.started, u.ready, u.flight = u.started+other.started, u.ready+other.ready, u.flight+other.flight
}

// useOf returns what a shard uses of a limit. The ready jobs of a silent shard may hold slots like
// those in flight, but start nothing: in a new window the hub has given it no part of a rate.
func (v *view) useOf(m *shardMirror, name string) use {
	u := v.countOf(m, name)
	if m.silent {
		u.flight, u.ready = u.flight+u.ready, 0
	}
	return u
}

func (v *view) countOf(m *shardMirror, name string) (u use) {
	l := v.mirror.limitOf(v.settings, name)
	window := bulk.WindowIndex(v.now, l.Window(v.length))
	ready := func(kind string, n int64) {
		if !m.state.Kinds[kind].idle(v.window) {
			u.ready += n
		}
	}
	if name == "all" {
		u.started = startedIn(window, m.state.Window, m.state.Started)
		for kind, k := range m.state.Kinds {
			u.flight += k.Flight
			ready(kind, k.Ready)
		}
		return u
	}
	if t := m.tenants[name[2:]]; t != nil && name[:2] == "t:" {
		u.started, u.flight = startedIn(window, t.Window, t.Started), t.Flight
		for kind, line := range t.Lines {
			ready(kind, line.Ready)
		}
	}
	if g := m.targets[name[2:]]; g != nil && name[:2] == "g:" {
		u.started, u.flight = startedIn(window, g.Window, g.Started), g.Flight
		for kind, n := range g.Ready {
			ready(kind, n)
		}
	}
	return u
}

// left returns how many more jobs a limit admits.
func (v *view) left(name string) int64 {
	l := v.mirror.limitOf(v.settings, name)
	if l.RequestsPerSecond <= 0 && l.Concurrency <= 0 {
		return bulk.NoLimit
	}
	var u use
	for i := range v.mirror.shards {
		u.add(v.useOf(&v.mirror.shards[i], name))
	}
	return v.remains(l, u)
}

// end lowers a time to the end of a limit's present window.
func (v *view) end(at *time.Time, name string) {
	length := v.mirror.limitOf(v.settings, name).Window(v.length)
	if ends := bulk.WindowStart(bulk.WindowIndex(v.now, length)+1, length); ends.Before(*at) {
		*at = ends
	}
}

// remains returns what a limit leaves.
func (v *view) remains(l bulk.Limit, u use) int64 {
	left := l.Budget(v.length, bulk.WindowIndex(v.now, l.Window(v.length)))
	if left != bulk.NoLimit {
		left -= u.started + u.ready
	}
	if l.Concurrency > 0 {
		left = min(left, int64(l.Concurrency)-u.flight-u.ready)
	}
	return max(0, left)
}

// knownFor is how long the workers of an instance count that does not ask for jobs.
const knownFor = 5 * time.Second

// types returns the state of each type over all shards. Shards are busy at the same time, so
// Busy is the maximum over the shards. Jobs that are ready on a silent shard keep no worker busy.
func (v *view) types(now time.Time) map[string]bulk.TypeState {
	types := map[string]bulk.TypeState{}
	busy := map[string]bool{}
	pools := map[string]map[string]int64{}
	for i := range v.mirror.shards {
		for name, k := range v.mirror.shards[i].state.Kinds {
			if v.mirror.shards[i].silent {
				k.Ready = 0
			}
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
	uses := v.usesOfTargets()
	for _, name := range v.settings.limitedTargets() {
		if n := v.remains(v.mirror.limitOf(v.settings, "g:"+name), uses[name]); n != bulk.NoLimit {
			left[name] = n
		}
	}
	for name, u := range uses {
		if v.mirror.limitOf(v.settings, "g:"+name).RequestsPerSecond > 0 {
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

func (v *view) usesOfTargets() map[string]use {
	all := map[string]use{}
	for i := range v.mirror.shards {
		m := &v.mirror.shards[i]
		for name := range m.targets {
			u := all[name]
			u.add(v.useOf(m, "g:"+name))
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

// lines returns the lines of one shard that have waiting jobs; none if it is silent.
func (v *view) lines(m *shardMirror) (lines []bulk.Line) {
	if m.silent {
		return nil
	}
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
	settings, set := v.settings.tenants.get(a.Tenant)
	if !set {
		settings = bulk.Tenant{}.WithDefaults()
	}
	line := bulk.Line{Tenant: a.Tenant, Type: a.Type, Settings: settings, Left: bulk.NoLimit}
	t := m.tenants[a.Tenant]
	if t == nil {
		t = &tenantState{}
	}
	line.Taken, line.TypeTaken, line.Granted = t.Taken, t.Lines[a.Type].Taken, t.Lines[a.Type].Granted
	if l := settings.Limit(); l.RequestsPerSecond > 0 || l.Concurrency > 0 {
		line.Left = v.remains(l, v.useOf(m, "t:"+a.Tenant))
	}
	return line
}

// leftOfLimiter returns how many more jobs congestion control admits for a tenant and a
// target: the measured rate, less the jobs that have started, are ready, or have their slot
// in the window. A tenant that was throttled in the window gets no more.
func (v *view) leftOfLimiter(m *shardMirror, target, limiter string, u use) int64 {
	if v.mirror.limitOf(v.settings, "g:"+target).RequestsPerSecond > 0 {
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
