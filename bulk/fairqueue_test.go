package bulk

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// lineBounds are the Bounds of a backlog with Lines.
type lineBounds struct{ *Backlog }

func (b lineBounds) line(tenant string) *Line {
	return &b.Lines[slices.IndexFunc(b.Lines, func(l Line) bool { return l.Tenant == tenant })]
}

func (b lineBounds) Tenant(name string) (settings Tenant, left int64, ends time.Time) {
	line := b.line(name)
	return line.Settings, line.Left, b.WindowEnds
}

func (b lineBounds) Target(name string) int64 { return limitOr(b.Targets, name) }

func (b lineBounds) Limiter(of Holder) int64 {
	for _, line := range b.Lines {
		for _, w := range line.Waiting {
			if (Holder{line.Tenant, line.Type, w.Target}) == of {
				return w.Left
			}
		}
	}
	return NoLimit
}

// queued returns a backlog with the queue and the bounds that its lines say.
func queued(b Backlog) *Backlog {
	b.Queue, b.Bounds = NewFairQueue(), lineBounds{&b}
	for _, line := range b.Lines {
		charged := map[keyName]bool{}
		for _, w := range line.Waiting {
			granted, key := int64(0), keyName{nil, ClassRank(w.Class), w.Key}
			if w.HadTurn && !charged[key] {
				granted, charged[key] = 1, true
			}
			q := &Queued{Number: w.Number, Class: w.Class, Key: w.Key}
			b.Queue.Set(q, Holder{line.Tenant, line.Type, w.Target}, LineTags{line.Taken, line.TypeTaken, line.Granted}, w.Priority, w.Jobs, granted)
		}
	}
	b.Queue.Advance(b.Now, b.Virtual, func(name string) float64 { return b.Types[name].Virtual })
	return &b
}

// scanned is an action with the bounds that it shares with others.
type scanned struct {
	Waiting
	tag, typeTag *float64
	granted      *int64
	turns        *int64
	weight       float64
	bounds       []*int64
	place        place
}

// scan divides as Divide does, by a look at all actions for each job.
func scan(b Backlog, free Free) (grants []uint64) {
	counters, tags := map[string]*int64{}, map[string]*float64{}
	counter := func(name string, left int64) *int64 {
		if counters[name] == nil {
			counters[name] = &left
		}
		return counters[name]
	}
	var all []*scanned
	demand := map[string]int64{}
	for _, line := range b.Lines {
		if tags[line.Tenant] == nil {
			tags[line.Tenant] = new(max(line.Taken, b.Virtual))
		}
		typeTag := new(max(line.TypeTaken, b.Types[line.Type].Virtual))
		granted := new(line.Granted)
		for _, w := range line.Waiting {
			demand[line.Type] += w.Jobs
			turns := counter(fmt.Sprint("key ", line.Tenant, line.Type, w.Class, w.Key), w.Turns())
			all = append(all, &scanned{Waiting: w, tag: tags[line.Tenant], typeTag: typeTag, granted: granted, turns: turns, weight: line.Settings.Weight, bounds: []*int64{
				counter("tenant "+line.Tenant, line.Left), counter("type "+line.Type, free.Types[line.Type]), counter("target "+w.Target, limitOr(b.Targets, w.Target)),
				counter("limiter "+line.Tenant+" "+line.Type+" "+w.Target, w.Left),
			}})
		}
	}
	capacity, wanted, order := min(free.Total, b.Left), int64(0), byLine
	for name, jobs := range demand {
		wanted += min(jobs, free.Types[name])
	}
	if capacity < wanted {
		order = byTenant
	}
	for ; capacity > 0; capacity-- {
		var next *scanned
		for _, a := range all {
			if a.Jobs <= 0 || slices.ContainsFunc(a.bounds, func(left *int64) bool { return *left <= 0 }) {
				continue
			}
			q := Queued{Number: a.Number, priority: a.Priority}
			a.place = placeOf(order, *a.typeTag, *a.tag, precedenceOf(ClassRank(a.Class), *a.turns, &q, lowsTurn(*a.granted)))
			if next == nil || a.place.before(next.place) {
				next = a
			}
		}
		if next == nil {
			break
		}
		grants = append(grants, next.Number)
		next.Jobs--
		*next.granted++
		*next.turns++
		*next.tag += 1 / next.weight
		*next.typeTag += 1 / next.weight
		for _, left := range next.bounds {
			*left--
		}
	}
	return grants
}

// TestDivideIsThatOfAScan compares Divide with a look at all actions for each job, in markets with
// every kind of bound.
func TestDivideIsThatOfAScan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMarket(t)
		drawMarket(rt, m, true)
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			m.targets["x"] = rapid.Int64Range(0, 60).Draw(rt, "target x")
			left, free := drawWindow(rt, m)
			b := m.backlog(left)
			want := scan(b, free)
			grants, _ := Divide(queued(b), free)
			var got []uint64
			for _, g := range grants {
				got = append(got, slices.Repeat([]uint64{g.Number}, int(g.Jobs))...)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("granted %v, want %v", got, want)
			}
			for _, number := range want {
				m.advance(m.actions[number-1], 1)
			}
		}
	})
}

// indexed is an action of the naive index.
type indexed struct {
	Queued
	of       Holder
	priority float64
	jobs     int64
	granted  int64
}

// keyModel has the tags of the keys of a line in one class, as numbers, and their virtual time.
type keyModel struct {
	tags, charged map[string]int64
	virtual       int64
}

func (m *indexModel) keysOf(a *indexed) *keyModel {
	name := keyName{nil, ClassRank(a.Class), a.of.Tenant + a.of.Type}
	if m.keys[name] == nil {
		m.keys[name] = &keyModel{map[string]int64{}, map[string]int64{}, 0}
	}
	return m.keys[name]
}

// advance charges keys, from virtual time on, and lets virtual time pass when all that wait have a
// tag after it.
func (k *keyModel) advance(waiting map[string]bool) {
	before := k.virtual
	for name, n := range k.charged {
		k.tags[name] = max(k.tags[name], before) + n
		k.virtual = max(k.virtual, k.tags[name]-1)
	}
	clear(k.charged)
	for name := range waiting {
		if k.tags[name] <= k.virtual {
			return
		}
	}
	k.virtual++
}

// indexModel is a FairQueue and what it should have.
type indexModel struct {
	x       *FairQueue
	now     time.Time
	actions []*indexed
	tags    map[string]float64 // by tenant, and by tenant and type
	granted map[string]int64
	virtual map[string]float64 // by type; "" is that of the limit
	parked  map[string]time.Time
	keys    map[keyName]*keyModel
}

func (m *indexModel) set(a *indexed) {
	tags := LineTags{m.tags[a.of.Tenant], m.tags[a.of.Tenant+a.of.Type], m.granted[a.of.Tenant+a.of.Type]}
	m.x.Set(&a.Queued, a.of, tags, a.priority, a.jobs, a.granted)
	delete(m.parked, a.of.Tenant)
}

// place returns the place of an action.
func (m *indexModel) place(a *indexed, order int) place {
	line := a.of.Tenant + a.of.Type
	q := Queued{Number: a.Number, priority: a.priority}
	k := m.keysOf(a)
	turns := max(0, k.tags[a.Key]-k.virtual)
	p := precedenceOf(ClassRank(a.Class), turns, &q, lowsTurn(m.granted[line]))
	return placeOf(order, max(m.tags[line], m.virtual[a.of.Type]), max(m.tags[a.of.Tenant], m.virtual[""]), p)
}

// inOrder returns the first actions of all lanes that are not left out.
func (m *indexModel) inOrder(order int) (firsts []uint64) {
	lanes := map[Holder]*indexed{}
	for _, a := range m.actions {
		if _, parked := m.parked[a.of.Tenant]; a.jobs > 0 && !parked && (lanes[a.of] == nil || m.place(a, order).before(m.place(lanes[a.of], order))) {
			lanes[a.of] = a
		}
	}
	for _, a := range slices.SortedFunc(maps.Values(lanes), func(a, b *indexed) int {
		if m.place(a, order).before(m.place(b, order)) {
			return -1
		}
		return 1
	}) {
		firsts = append(firsts, a.Number)
	}
	return firsts
}

// compare checks the queue against a scan of all actions.
func (m *indexModel) compare(t *rapid.T) {
	m.x.Advance(m.now, m.virtual[""], func(name string) float64 { return m.virtual[name] })
	maps.DeleteFunc(m.parked, func(_ string, until time.Time) bool { return !until.After(m.now) })
	waiting := map[*keyModel]map[string]bool{}
	for _, k := range m.keys {
		waiting[k] = map[string]bool{}
	}
	jobs, lines := map[string]int64{}, map[string]map[string]bool{"a": {}, "b": {}}
	for _, a := range m.actions {
		if a.jobs > 0 {
			jobs[a.of.Type] += a.jobs
			lines[a.of.Type][a.of.Tenant] = true
			waiting[m.keysOf(a)][a.Key] = true
		}
	}
	for k, names := range waiting {
		k.advance(names)
	}
	for name := range lines {
		if n, in := m.x.Waiting(name); n != jobs[name] || in != len(lines[name]) {
			t.Fatalf("type %s: %d jobs in %d lines, want %d in %d", name, n, in, jobs[name], len(lines[name]))
		}
	}
	for order := range 2 {
		var got []uint64
		w := m.x.walk(order, func(*queuedType, bool, *lanePool) bool { return false })
		for l, at := w.first(); l != nil; l, at = w.first() {
			got = append(got, at.number)
			w.next()
		}
		if want := m.inOrder(order); !slices.Equal(got, want) {
			t.Fatalf("order %d: %d, want %d", order, got, want)
		}
	}
	if len(jobs) == 0 && len(m.x.tenants)+len(m.x.types)+len(m.x.keys)+len(m.x.places) != 0 {
		t.Fatalf("without actions it has %d tenants, %d types, %d keys at %d places", len(m.x.tenants), len(m.x.types), len(m.x.keys), len(m.x.places))
	}
}

// pick returns one of the actions; nil if there is none.
func (m *indexModel) pick(t *rapid.T) *indexed {
	if len(m.actions) == 0 {
		return nil
	}
	return rapid.SampledFrom(m.actions).Draw(t, "action")
}

func drawName(t *rapid.T, names ...string) string { return rapid.SampledFrom(names).Draw(t, "name") }

func (m *indexModel) add(t *rapid.T) {
	a := &indexed{
		of:   Holder{drawName(t, "t", "u", "v", "w", "x"), drawName(t, "a", "b"), drawName(t, "y", "z")},
		jobs: 1,
	}
	a.Class, a.Key = rapid.SampledFrom(classes[:]).Draw(t, "class"), drawName(t, "", "k", "l")
	a.Number, a.priority = uint64(len(m.actions)), float64(rapid.IntRange(0, 3).Draw(t, "priority"))
	m.actions = append(m.actions, a)
	m.keysOf(a)
	m.set(a)
}

func (m *indexModel) change(t *rapid.T) {
	if a := m.pick(t); a != nil {
		a.jobs = rapid.Int64Range(0, 3).Draw(t, "jobs")
		a.priority += float64(rapid.IntRange(0, 2).Draw(t, "boost"))
		m.set(a)
	}
}

func (m *indexModel) charge(t *rapid.T) {
	a := m.pick(t)
	if a == nil {
		return
	}
	line := a.of.Tenant + a.of.Type
	n := rapid.Int64Range(1, 4).Draw(t, "jobs")
	a.granted += n
	if t := m.x.tenants[a.of.Tenant]; t != nil && t.lines[a.of.Type] != nil { // some of the line waited
		m.keysOf(a).charged[a.Key] += n
	}
	m.tags[a.of.Tenant], m.virtual[""] = Charge(m.tags[a.of.Tenant], m.virtual[""], n, 2)
	m.tags[line], m.virtual[a.of.Type] = Charge(m.tags[line], m.virtual[a.of.Type], n, 1)
	m.granted[line] += n
	m.set(a)
}

func (m *indexModel) chargeSeveral(t *rapid.T) {
	for range rapid.IntRange(2, 6).Draw(t, "several") {
		m.charge(t)
		m.change(t)
	}
}

func (m *indexModel) park(t *rapid.T) {
	name := drawName(t, "t", "u", "v", "w")
	if m.x.tenants[name] != nil {
		m.parked[name] = m.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "for")) * time.Second)
		m.x.park(name, m.parked[name])
	}
}

func (m *indexModel) unpark(t *rapid.T) {
	name := drawName(t, "t", "u")
	m.x.Unpark(name)
	delete(m.parked, name)
}

func (m *indexModel) measure(t *rapid.T) {
	m.x.ClassifyNew(nil, func(of Holder) bool { return of.Tenant < "v" })
	if a := m.pick(t); a != nil && a.in != nil {
		m.x.classify(a.in.lane, rapid.Bool().Draw(t, "long"))
	}
}

// TestFairQueueIsInOrder makes random changes, and compares the queue with a scan.
func TestFairQueueIsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &indexModel{
			x: NewFairQueue(), now: time.Unix(1_700_000_000, 0), tags: map[string]float64{}, granted: map[string]int64{},
			virtual: map[string]float64{}, parked: map[string]time.Time{}, keys: map[keyName]*keyModel{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": m.compare, "add": m.add, "change": m.change, "charge": m.charge, "charge several": m.chargeSeveral, "park": m.park, "unpark": m.unpark, "measure": m.measure,
			"wait": func(*rapid.T) { m.now = m.now.Add(time.Second) },
		})
	})
}

// earlyEnds are bounds of tenants whose windows end early.
type earlyEnds struct {
	lineBounds
	at time.Time
}

func (b earlyEnds) Tenant(name string) (settings Tenant, left int64, ends time.Time) {
	settings, left, _ = b.lineBounds.Tenant(name)
	return settings, left, b.at
}

// TestTheWindowEndsWhenATenantIsLookedAtAgain checks the end of the window that the fetcher waits for, also where
// nobody asks for the bound of the tenant again.
func TestTheWindowEndsWhenATenantIsLookedAtAgain(t *testing.T) {
	m := newMarket(t)
	m.submit("limited", "send", Normal, 5)
	m.tenant("limited", 1, 1).left = 0
	now := time.Unix(1_700_000_000, 0)
	b := queued(m.backlog(NoLimit))
	b.Bounds = earlyEnds{lineBounds{b}, now.Add(10 * time.Millisecond)}
	for round := range 2 {
		b.Now, b.WindowEnds = now, now.Add(time.Second)
		if grants, _ := Divide(b, m.freeFor(10)); len(grants) > 0 || !b.WindowEnds.Equal(now.Add(10*time.Millisecond)) {
			t.Errorf("round %d: granted %v, the window ends after %v, want nothing and 10ms", round, grants, b.WindowEnds.Sub(now))
		}
	}
}

// TestDivideCostsWhatItServes checks how many lanes a division looks at.
func TestDivideCostsWhatItServes(t *testing.T) {
	m := newMarket(t)
	for i := range 3000 {
		a := m.submit(fmt.Sprint("t", i), "send", Normal, 5)
		a.waiting.Target = cmp.Or(map[int]string{0: "shut", 1: fmt.Sprint("own ", i)}[i%3], "busy")
		if i%100 == 2 {
			m.tenant(a.tenant, 1, 1).left = 0
		}
	}
	m.targets["shut"] = 0
	m.types["call"], m.tenants["t2"].lines["call"] = &marketType{}, &marketLine{}
	for i := range 1000 {
		m.submit(fmt.Sprint("t", i), "call", Normal, 5)
	}
	b := queued(m.backlog(NoLimit))
	asked := map[Holder]int{}
	free := Free{Total: 1000, Types: map[string]int64{"send": 40}, Measured: func(of Holder) Measured {
		asked[of]++
		return Measured{Target: NoLimit}
	}}
	for round := range 3 {
		clear(asked)
		grants, _ := Divide(b, free)
		if jobs := int64(0); len(grants) > 0 {
			for _, g := range grants {
				jobs += g.Jobs
			}
			if jobs != 40 || round > 0 && len(asked) > 45 {
				t.Errorf("round %d: %d jobs granted, want 40; %d lanes looked at", round, jobs, len(asked))
			}
		}
		for of, times := range asked {
			if times > 1 || of.Target == "shut" || of.Type == "call" {
				t.Errorf("%v was looked at %d times", of, times)
			}
		}
	}
}
