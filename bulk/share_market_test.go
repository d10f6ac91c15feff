package bulk

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

// market is a small in-memory store: it gives Divide a Backlog, and applies grants to tags
// and lines by the rules for Store implementations.
type market struct {
	t       testing.TB
	virtual float64
	types   map[string]*marketType
	tenants map[string]*marketTenant
	targets map[string]int64 // the remainder of limited targets in this window
	actions []*marketAction
	alpha   time.Duration
}

type marketType struct {
	virtual float64
	granted int64
}

type marketTenant struct {
	settings Tenant
	taken    float64
	limit    int64 // per window; 0 is no limit
	left     int64
	granted  int64
	lines    map[string]*marketLine
}

type marketLine struct {
	taken   float64
	granted int64
	keys    [len(classes)]*marketKeys
}

// marketKeys has the tags of the keys of a line in one class, by start-time fair queueing.
type marketKeys struct {
	tags    map[string]float64
	virtual float64
}

type marketAction struct {
	tenant, kind string
	waiting      Waiting // without its priority
	entered      time.Time
	total, done  int64
	granted      int64
}

// marketStart is when the first action enters; each further one enters a second later.
var marketStart = time.Unix(1_700_000_000, 0)

func newMarket(t testing.TB) *market {
	return &market{t: t, types: map[string]*marketType{}, tenants: map[string]*marketTenant{}, targets: map[string]int64{}, alpha: time.Second}
}

// tenant adds or changes a tenant; a limit of 0 is no limit.
func (m *market) tenant(name string, weight float64, limit int64) *marketTenant {
	p := m.tenants[name]
	if p == nil {
		p = &marketTenant{taken: m.virtual, lines: map[string]*marketLine{}}
		m.tenants[name] = p
	}
	p.settings, p.limit, p.left = Tenant{Weight: weight}, limit, limit
	return p
}

// submit adds an action and returns it, so that tests can change it.
func (m *market) submit(tenant, kind string, class Class, jobs int64) *marketAction {
	if m.tenants[tenant] == nil {
		m.tenant(tenant, 1, 0)
	}
	if m.types[kind] == nil {
		m.types[kind] = &marketType{}
	}
	if m.tenants[tenant].lines[kind] == nil {
		m.tenants[tenant].lines[kind] = &marketLine{taken: m.types[kind].virtual}
	}
	n := len(m.actions)
	a := &marketAction{
		tenant: tenant, kind: kind, entered: marketStart.Add(time.Duration(n) * time.Second), total: jobs,
		waiting: Waiting{Number: uint64(n) + 1, Class: class, Jobs: jobs, Target: "type " + kind, Left: NoLimit},
	}
	m.actions = append(m.actions, a)
	return a
}

// backlog returns the backlog at the beginning of a window; left is the global limit's
// remainder.
func (m *market) backlog(left int64) Backlog {
	b := Backlog{Left: left, Virtual: m.virtual, Types: map[string]TypeState{}, Targets: maps.Clone(m.targets)}
	for name, k := range m.types {
		b.Types[name] = TypeState{Virtual: k.virtual}
	}
	for _, name := range slices.Sorted(maps.Keys(m.tenants)) {
		p := m.tenants[name]
		for _, kind := range slices.Sorted(maps.Keys(p.lines)) {
			line := Line{Tenant: name, Type: kind, Settings: p.settings, Taken: p.taken,
				TypeTaken: p.lines[kind].taken, Granted: p.lines[kind].granted, Left: NoLimit}
			if p.limit > 0 {
				line.Left = p.left
			}
			for _, a := range m.actions {
				if a.tenant == name && a.kind == kind && a.waiting.Jobs > 0 {
					w := a.waiting
					w.HadTurn = m.hadTurn(a)
					w.Priority = Priority(a.entered, p.settings.BasePriority, a.total, a.done, m.alpha)
					line.Waiting = append(line.Waiting, w)
				}
			}
			if len(line.Waiting) > 0 {
				b.Lines = append(b.Lines, line)
			}
		}
	}
	return b
}

// keys has the tags of the keys of an action's line and class.
func (m *market) keys(a *marketAction) *marketKeys {
	l := m.tenants[a.tenant].lines[a.kind]
	if l.keys[a.waiting.Class] == nil {
		l.keys[a.waiting.Class] = &marketKeys{tags: map[string]float64{}}
	}
	return l.keys[a.waiting.Class]
}

// hadTurn reports whether an action's key has a tag after those of others that wait, and of what
// was served last.
func (m *market) hadTurn(a *marketAction) bool {
	keys := m.keys(a)
	least := math.Inf(1)
	for _, o := range m.actions {
		if o.waiting.Jobs > 0 && o.tenant == a.tenant && o.kind == a.kind && o.waiting.Class == a.waiting.Class {
			least = min(least, max(keys.tags[o.waiting.Key], keys.virtual))
		}
	}
	keys.virtual = max(keys.virtual, least)
	return keys.tags[a.waiting.Key] > keys.virtual
}

// freeFor returns a Free that bounds only the total.
func (m *market) freeFor(total int64) Free {
	free := Free{Total: total, Types: map[string]int64{}}
	for name := range m.types {
		free.Types[name] = math.MaxInt32
	}
	return free
}

// window divides a limit in one window, renews the tenants' limits, and returns the jobs
// granted to each tenant.
func (m *market) window(left int64) map[string]int64 {
	m.t.Helper()
	for _, p := range m.tenants {
		p.left = p.limit
	}
	return m.divide(left, m.freeFor(math.MaxInt32))
}

// divide applies one Divide, after checking that its grants respect every bound.
func (m *market) divide(left int64, free Free) map[string]int64 {
	m.t.Helper()
	b := m.backlog(left)
	grants, passed := Divide(queued(b), free)
	m.check(b, free, grants)
	got := map[string]int64{}
	for _, g := range grants {
		a := m.actions[g.Number-1]
		m.advance(a, g.Jobs)
		got[a.tenant] += g.Jobs
	}
	if !maps.Equal(passed, got) {
		m.t.Fatalf("it says that %v were granted, and has granted %v", passed, got)
	}
	return got
}

// advance updates tags and counts, like advance in pebblestore.
func (m *market) advance(a *marketAction, n int64) {
	p, k := m.tenants[a.tenant], m.types[a.kind]
	l, step := p.lines[a.kind], 1/p.settings.Weight
	begin := max(p.taken, m.virtual)
	p.taken = begin + float64(n)*step
	m.virtual = max(m.virtual, begin+float64(n-1)*step)
	begin = max(l.taken, k.virtual)
	l.taken = begin + float64(n)*step
	k.virtual = max(k.virtual, begin+float64(n-1)*step)
	l.granted += n
	keys := m.keys(a)
	keys.tags[a.waiting.Key], keys.virtual = Charge(keys.tags[a.waiting.Key], keys.virtual, n, 1)
	p.granted += n
	k.granted += n
	a.granted += n
	p.left -= n
	a.waiting.Jobs -= n
	a.done += n
	if _, limited := m.targets[a.waiting.Target]; limited {
		m.targets[a.waiting.Target] -= n
	}
}

// check checks grants against each bound of the backlog and of free.
func (m *market) check(b Backlog, free Free, grants []Grant) {
	m.t.Helper()
	var total int64
	used := map[string]int64{}
	bound := map[string]int64{}
	for _, g := range grants {
		a := m.actions[g.Number-1]
		if g.Jobs <= 0 {
			m.t.Fatalf("a grant of %d jobs", g.Jobs)
		}
		total += g.Jobs
		for name, most := range map[string]int64{
			fmt.Sprint("action ", g.Number):                   a.waiting.Jobs,
			"workers of type " + a.kind:                       free.Types[a.kind],
			"tenant " + a.tenant:                              m.limitOf(a.tenant),
			"limiter " + a.tenant + " of " + a.waiting.Target: a.waiting.Left,
			"target " + a.waiting.Target:                      limitOr(b.Targets, a.waiting.Target),
		} {
			bound[name] = most
			if used[name] += g.Jobs; used[name] > most {
				m.t.Fatalf("%s: %d granted of at most %d", name, used[name], most)
			}
		}
	}
	if most := max(0, min(b.Left, free.Total)); total > most {
		m.t.Fatalf("%d granted of at most %d", total, most)
	}
}

func (m *market) limitOf(tenant string) int64 {
	if p := m.tenants[tenant]; p.limit > 0 {
		return p.left
	}
	return NoLimit
}

func limitOr(limits map[string]int64, name string) int64 {
	if n, limited := limits[name]; limited {
		return max(0, n)
	}
	return NoLimit
}
