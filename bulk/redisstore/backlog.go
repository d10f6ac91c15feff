package redisstore

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Fetch implements bulk.Store. It brings the mirror up to date first. Jobs of silent shards do
// not wait, but count against limits as far as they were known.
func (s *Store) Fetch(ctx context.Context, f func(*bulk.Backlog)) error {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if err := s.look(ctx); err != nil {
		return err
	}
	now := s.mirror.shards[0].now
	for i := range s.mirror.shards {
		if s.mirror.shards[i].now.After(now) {
			now = s.mirror.shards[i].now
		}
	}
	window := bulk.WindowIndex(now, s.config.Window)
	if err := s.learn(ctx, window); err != nil {
		return err
	}
	values, _ := s.settings.get()
	s.mirror.prioritize(&values, s.settings.changedTenants())
	s.mirror.requeue(&values, max(0, s.config.Alpha))
	v := s.view(&values, now)
	b := bulk.Backlog{
		Now: now, WindowEnds: bulk.WindowStart(window+1, s.config.Window), Left: v.left("all"), Queue: s.mirror.fair,
		Types: v.types(now), Found: map[string]float64{}, Held: s.mirror.held,
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
	}
	b.Queue.Advance(now, b.Virtual, func(name string) float64 { return b.Types[name].Virtual })
	for name, t := range b.Types {
		t.Waiting, t.Lines = b.Queue.Waiting(name)
		b.Types[name] = t
	}
	v.end(&b.WindowEnds, "all")
	b.Bounds = &bounds{view: v, s: s, b: &b}
	f(&b)
	s.ready.learn(&s.mirror)
	return nil
}

// requeue brings the fair queue up to date with the mirror.
func (m *mirror) requeue(values *settings, alpha time.Duration) {
	for i := range m.shards {
		shard := &m.shards[i]
		for _, a := range shard.dropped {
			m.queue(shard, a, values, 0, alpha)
			m.hold(a, 0)
		}
		shard.dropped = nil
		for n := range shard.stale {
			a, jobs := shard.actions[n], int64(0)
			if a == nil {
				continue
			}
			if a.Status == bulk.Running && a.Paused != 1 && !shard.silent {
				jobs = max(0, a.waiting())
			}
			m.queue(shard, a, values, jobs, alpha)
			m.hold(a, a.Ready+a.Flight)
		}
		clear(shard.stale)
	}
}

// prioritize notes the settings of tenants that have changed, and the actions of those whose base
// priority has.
func (m *mirror) prioritize(values *settings, tenants map[string]bool) {
	changed := map[string]bool{}
	for name := range tenants {
		m.fair.Unpark(name)
		t, _ := values.tenants.get(name)
		if m.priorities[name] != t.BasePriority {
			m.priorities[name], changed[name] = t.BasePriority, true
		}
	}
	if len(changed) == 0 {
		return
	}
	for i := range m.shards {
		for n, a := range m.shards[i].actions {
			if changed[a.Tenant] {
				m.shards[i].stale[n] = true
			}
		}
	}
}

func (m *mirror) queue(shard *shardMirror, a *mirrored, values *settings, jobs int64, alpha time.Duration) {
	tags := bulk.LineTags{}
	if t := shard.tenants[a.Tenant]; t != nil {
		tags = bulk.LineTags{Taken: t.Taken, TypeTaken: t.Lines[a.Type].Taken, Granted: t.Lines[a.Type].Granted}
	}
	settings, _ := values.tenants.get(a.Tenant)
	priority := bulk.Priority(time.UnixMilli(a.Entered), settings.BasePriority, a.size(), a.Succeeded+a.Failed+a.Canceled, alpha)
	m.fair.Set(&a.queued, a.holder(), tags, priority, jobs, a.Granted)
}

// hold counts the jobs of an action that are ready or in flight.
func (m *mirror) hold(a *mirrored, jobs int64) {
	of := a.holder()
	if m.held[of] += jobs - a.held; m.held[of] == 0 {
		delete(m.held, of)
	}
	a.held = jobs
}

func (a *mirrored) holder() bulk.Holder {
	return bulk.Holder{Tenant: a.Tenant, Type: a.Type, Target: a.Target}
}

// bounds implements bulk.Bounds.
type bounds struct {
	*view
	s     *Store
	b     *bulk.Backlog
	found *throttlings // once they were needed
}

func (x *bounds) Tenant(name string) (settings bulk.Tenant, left int64, ends time.Time) {
	settings, set := x.settings.tenants.get(name)
	if !set {
		settings = bulk.Tenant{}.WithDefaults()
	}
	left, ends = bulk.NoLimit, x.b.WindowEnds
	if l := settings.Limit(); l.RequestsPerSecond > 0 || l.Concurrency > 0 {
		left = x.remains(l, x.useOf(&x.mirror.shards[x.s.shardOf(name)], "t:"+name))
		x.end(&ends, "t:"+name)
		x.b.WindowEnds = ends
	}
	return settings, left, ends
}

// Target counts by the configured limits of a target, or by its found rate.
func (x *bounds) Target(name string) int64 {
	key := "g:" + name
	l := x.mirror.limitOf(x.settings, key)
	var u use
	for i := range x.mirror.shards {
		u.add(x.useOf(&x.mirror.shards[i], key))
	}
	left := x.remains(l, u)
	if left != bulk.NoLimit {
		x.end(&x.b.WindowEnds, key)
	}
	allowed := x.mirror.congestion.allowance(name, x.window)
	if l.RequestsPerSecond > 0 || allowed == bulk.NoLimit {
		return left
	}
	t := x.throttlings()
	if t.saturated(name) {
		return 0
	}
	return min(left, max(0, allowed-u.started-u.ready-t.booked[name]))
}

// Limiter counts by the measured rate of a tenant and a target, less the jobs that have started,
// are ready, or have their slot in the window. A tenant that was throttled in the window gets
// no more.
func (x *bounds) Limiter(of bulk.Holder) int64 {
	if x.mirror.limitOf(x.settings, "g:"+of.Target).RequestsPerSecond > 0 {
		return bulk.NoLimit
	}
	m, limiter := &x.mirror.shards[x.s.shardOf(of.Tenant)], of.Tenant+"\n"+of.Target
	if m.throttled[limiter] {
		return 0
	}
	allowed := x.mirror.congestion.allowance(limiter, x.window)
	if allowed == bulk.NoLimit {
		return bulk.NoLimit
	}
	u := x.throttlings().uses[limiter]
	if l := m.limiters[limiter]; l != nil {
		u.booked = l.At[number(x.window)]
	}
	return max(0, allowed-u.started-u.ready-u.booked)
}

// throttlings is what the bounds of limiters follow from, found by one look at all actions: only
// while something throttles.
type throttlings struct {
	uses   map[string]use   // by limiter
	booked map[string]int64 // by target: throttled jobs that have their slot in the window
	// tenants are those with jobs in flight against a target, or throttled by it in the window;
	// turned counts the latter.
	tenants map[string]map[string]bool
	turned  map[string]int
}

func (x *bounds) throttlings() *throttlings {
	if x.found != nil {
		return x.found
	}
	t := &throttlings{map[string]use{}, map[string]int64{}, map[string]map[string]bool{}, map[string]int{}}
	x.found = t
	for i := range x.mirror.shards {
		m := &x.mirror.shards[i]
		for _, a := range m.actions {
			limiter := a.Tenant + "\n" + a.Target
			u := t.uses[limiter]
			u.started += startedIn(x.window, a.Window, a.Started)
			u.ready += a.Ready
			t.uses[limiter] = u
			if !m.silent && (a.Flight > 0 || a.Started > 0) {
				t.add(a.Tenant, a.Target)
			}
		}
		for key, l := range m.limiters {
			_, target := splitLimiter(key)
			t.booked[target] += l.At[number(x.window)]
		}
		if m.silent { // the present window is not the one that it was throttled in
			continue
		}
		for key := range m.throttled {
			tenant, target := splitLimiter(key)
			t.add(tenant, target)
			t.turned[target]++
		}
	}
	return t
}

func (t *throttlings) add(tenant, target string) {
	if t.tenants[target] == nil {
		t.tenants[target] = map[string]bool{}
	}
	t.tenants[target][tenant] = true
}

// saturated reports whether a target throttles most of its tenants in the window.
func (t *throttlings) saturated(target string) bool {
	return t.turned[target] > 0 && bulk.Saturated(len(t.tenants[target]), t.turned[target])
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
