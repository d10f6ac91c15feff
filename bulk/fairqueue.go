package bulk

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-project/sluice/internal/ranks"
)

// FairQueue has the actions with jobs that wait, in the order in which Divide serves them: so a
// division costs what it serves, and not what waits. A change costs the logarithm of what waits.
// It is for one store, which protects it by a mutex.
//
// The actions of one tenant, type and target are a lane: all of them are held back together.
// Lanes of one type and target are a pool, so that a target which takes no more holds back all of
// them at once. Lanes whose attempts may be long have pools of their own: these share places that
// may all be taken. Lanes and pools have two orders, by the tags of the type and by those of the
// limit. Tags below virtual time count as virtual time, so a lane whose tag virtual time passes
// changes its place: ahead has the tags that it has not passed.
type FairQueue struct {
	tenants map[string]*queuedTenant
	types   map[string]*queuedType
	ahead   ranks.Heap[*queuedTenant]
	parked  ranks.Heap[*queuedTenant]
	virtual float64
	// fresh has tenants whose since is not known yet, and unmeasured new lanes.
	fresh      []*queuedTenant
	unmeasured []*lane
}

// Queued is the place of one action in a FairQueue. The zero value is in none.
type Queued struct {
	// Number is the store's number of the action, set by the store.
	Number   uint64
	class    int // its place in classes
	priority float64
	jobs     int64
	lane     *lane
	at       int
}

// LineTags are the tags of a line; see Line.
type LineTags struct {
	Taken, TypeTaken float64
	Granted          int64
}

type queuedTenant struct {
	name  string
	taken float64
	lines map[string]*queuedLine
	// since is from when on some of its jobs have waited.
	since time.Time
	ahead int // in FairQueue.ahead
	// A tenant in FairQueue.parked is left out until then.
	parked int
	until  time.Time
}

type queuedLine struct {
	tenant  *queuedTenant
	of      *queuedType
	taken   float64
	granted int64
	lanes   map[string]*lane
	ahead   int // in queuedType.ahead
}

type queuedType struct {
	name    string
	virtual float64
	ahead   ranks.Heap[*queuedLine]
	pools   map[poolKey]*lanePool
	// orders are those of pools with lanes that are not left out: of short and of long attempts.
	orders [2][2]ranks.Heap[*lanePool]
	jobs   int64
	lines  int
}

type poolKey struct {
	target string
	long   bool
}

type lanePool struct {
	poolKey
	orders [2]ranks.Heap[*lane]
	at     [2]int // in queuedType.orders
	lanes  int
}

// lane has two queues: that of class Low goes last, except in every tenth place.
type lane struct {
	holder  Holder
	line    *queuedLine
	pool    *lanePool
	queues  [2]ranks.Heap[*Queued]
	at      [2]int
	tags    [2]float64 // of the line and of the tenant; -Inf is virtual time
	present precedence // of the action that goes first, when the lane got its place
}

// precedence orders actions whose lines have equal tags, and those of one line.
type precedence struct {
	class    int
	priority float64
	number   uint64
}

// compare orders by class, then by Priority, and then the oldest first.
func (p precedence) compare(o precedence) int {
	return cmp.Or(cmp.Compare(p.class, o.class), cmp.Compare(o.priority, p.priority), cmp.Compare(p.number, o.number))
}

// lowsTurn reports whether the next grant of a line, after so many, is for the low class first.
func lowsTurn(granted int64) bool { return granted%lowEvery == lowEvery-1 }

// precedence returns the precedence of an action. In its turn the low class goes before all others.
func (q *Queued) precedence(lowsTurn bool) precedence {
	p := precedence{q.class, q.priority, q.Number}
	if lowsTurn && q.class == classRank(Low) {
		p.class = -1
	}
	return p
}

// NewFairQueue returns an empty FairQueue.
func NewFairQueue() *FairQueue {
	return &FairQueue{
		tenants: map[string]*queuedTenant{}, types: map[string]*queuedType{},
		ahead:  ranks.New(func(a, b *queuedTenant) bool { return a.taken < b.taken }, func(t *queuedTenant) *int { return &t.ahead }),
		parked: ranks.New(func(a, b *queuedTenant) bool { return a.until.Before(b.until) }, func(t *queuedTenant) *int { return &t.parked }),
	}
}

// Set records the state of an action and of its line, whichever of it has changed: its class,
// its Priority, and how many of its jobs can be admitted. With 0 jobs it leaves. A tenant whose
// limit was used up is looked at again.
func (x *FairQueue) Set(q *Queued, of Holder, tags LineTags, class Class, priority float64, jobs int64) {
	l := q.lane
	switch {
	case jobs > 0:
		if l == nil {
			l = x.laneOf(of, tags)
		}
		l.line.of.jobs += jobs - q.jobs
		q.lane, q.jobs, q.class, q.priority = l, jobs, classRank(class), priority
		l.queues[queueOf(q)].Set(q)
	case l != nil:
		l.queues[queueOf(q)].Remove(q)
		l.line.of.jobs -= q.jobs
		q.lane, q.jobs = nil, 0
	}
	t := x.tenants[of.Tenant]
	if t == nil {
		return
	}
	x.tag(t, t.lines[of.Type], l, tags)
	x.Unpark(of.Tenant)
	if l != nil {
		x.place(l)
	}
}

func queueOf(q *Queued) int {
	if q.class == classRank(Low) {
		return 1
	}
	return 0
}

func (x *FairQueue) laneOf(of Holder, tags LineTags) *lane {
	t := x.tenants[of.Tenant]
	if t == nil {
		t = &queuedTenant{name: of.Tenant, lines: map[string]*queuedLine{}, taken: math.Inf(-1)}
		x.tenants[of.Tenant] = t
		x.fresh = append(x.fresh, t)
	}
	line := t.lines[of.Type]
	if line == nil {
		line = &queuedLine{tenant: t, of: x.typeOf(of.Type), taken: math.Inf(-1), granted: tags.Granted, lanes: map[string]*lane{}}
		line.of.lines++
		t.lines[of.Type] = line
	}
	l := line.lanes[of.Target]
	if l == nil {
		l = &lane{holder: of, line: line, pool: line.of.poolOf(poolKey{of.Target, true})}
		l.pool.lanes++
		x.unmeasured = append(x.unmeasured, l)
		for i := range l.queues {
			l.queues[i] = ranks.New(func(a, b *Queued) bool { return a.precedence(false).compare(b.precedence(false)) < 0 }, func(q *Queued) *int { return &q.at })
		}
		line.lanes[of.Target] = l
	}
	return l
}

func (x *FairQueue) typeOf(name string) *queuedType {
	k := x.types[name]
	if k == nil {
		k = &queuedType{name: name, pools: map[poolKey]*lanePool{}, virtual: math.Inf(-1), ahead: ranks.New(
			func(a, b *queuedLine) bool { return a.taken < b.taken }, func(l *queuedLine) *int { return &l.ahead })}
		for order := range 2 {
			for long := range k.orders {
				k.orders[long][order] = ranks.New(func(a, b *lanePool) bool {
					return a.orders[order].First().compare(b.orders[order].First(), order) < 0
				}, func(p *lanePool) *int { return &p.at[order] })
			}
		}
		x.types[name] = k
	}
	return k
}

// ofPools returns the order of a type's pools of long attempts, or of those of short ones.
func (k *queuedType) ofPools(long bool, order int) *ranks.Heap[*lanePool] {
	if long {
		return &k.orders[1][order]
	}
	return &k.orders[0][order]
}

func (k *queuedType) poolOf(key poolKey) *lanePool {
	p := k.pools[key]
	if p == nil {
		p = &lanePool{poolKey: key}
		for order := range p.orders {
			p.orders[order] = ranks.New(func(a, b *lane) bool { return a.compare(b, order) < 0 }, func(l *lane) *int { return &l.at[order] })
		}
		k.pools[key] = p
	}
	return p
}

// compare orders the lanes of one type by the tags of their lines (order 0), or of their tenants
// (order 1), as Divide does.
func (l *lane) compare(o *lane, order int) int {
	return cmp.Or(
		cmp.Compare(l.tags[order], o.tags[order]), cmp.Compare(l.tags[1-order], o.tags[1-order]),
		l.present.compare(o.present))
}

// tag records the tags of a tenant, and of one of its lines unless it is nil. All lanes that
// they concern are placed again but one, which the caller places.
func (x *FairQueue) tag(t *queuedTenant, line *queuedLine, but *lane, tags LineTags) {
	if line != nil && (line.taken != tags.TypeTaken || line.granted != tags.Granted) {
		line.taken, line.granted = tags.TypeTaken, tags.Granted
		line.of.ahead.SetIf(line, line.taken > line.of.virtual)
		x.placeLine(line, but)
	}
	if t.taken != tags.Taken {
		t.taken = tags.Taken
		x.ahead.SetIf(t, t.taken > x.virtual)
		for _, line := range t.lines {
			x.placeLine(line, but)
		}
	}
}

func (x *FairQueue) placeAll(t *queuedTenant) {
	for _, line := range t.lines {
		x.placeLine(line, nil)
	}
}

func (x *FairQueue) placeLine(line *queuedLine, but *lane) {
	for _, l := range line.lanes {
		if l != but {
			x.place(l)
		}
	}
}

// place puts a lane where it belongs now; nowhere if its tenant is parked. An empty one is
// removed, with all that only it uses.
func (x *FairQueue) place(l *lane) {
	line, t := l.line, l.line.tenant
	head := l.head(lowsTurn(line.granted))
	l.tags = [2]float64{math.Inf(-1), math.Inf(-1)}
	if line.ahead > 0 {
		l.tags[0] = line.taken
	}
	if t.ahead > 0 {
		l.tags[1] = t.taken
	}
	if head != nil {
		l.present = head.precedence(lowsTurn(line.granted))
	}
	for order := range l.pool.orders {
		l.pool.orders[order].SetIf(l, head != nil && t.parked == 0)
		line.of.ofPools(l.pool.long, order).SetIf(l.pool, l.pool.orders[order].First() != nil)
	}
	if head == nil {
		x.drop(l)
	}
}

// head returns the action of a lane that goes first; nil if none waits.
func (l *lane) head(lowsTurn bool) *Queued {
	first, low := l.queues[0].First(), l.queues[1].First()
	if first == nil || lowsTurn && low != nil {
		return low
	}
	return first
}

func (x *FairQueue) drop(l *lane) {
	of, line, t := l.holder, l.line, l.line.tenant
	if line.lanes[of.Target] != l {
		return
	}
	delete(line.lanes, of.Target)
	line.of.leavePool(l)
	if len(line.lanes) > 0 {
		return
	}
	line.of.ahead.Remove(line)
	delete(t.lines, of.Type)
	if line.of.lines--; line.of.lines == 0 {
		delete(x.types, of.Type)
	}
	if len(t.lines) == 0 {
		x.ahead.Remove(t)
		x.parked.Remove(t)
		delete(x.tenants, of.Tenant)
	}
}

// leavePool takes a lane out of its pool.
func (k *queuedType) leavePool(l *lane) {
	for order := range l.pool.orders {
		l.pool.orders[order].Remove(l)
		k.ofPools(l.pool.long, order).SetIf(l.pool, l.pool.orders[order].First() != nil)
	}
	if l.pool.lanes--; l.pool.lanes == 0 {
		delete(k.pools, l.pool.poolKey)
	}
}

// classify records whether the attempts of a lane may be long.
func (x *FairQueue) classify(l *lane, long bool) {
	if l.pool.long == long {
		return
	}
	k := l.line.of
	k.leavePool(l)
	l.pool = k.poolOf(poolKey{l.holder.Target, long})
	l.pool.lanes++
	x.place(l)
}

// classifyNew calls long for lanes that are new, and for those of holders that were thought to be
// long.
func (x *FairQueue) classifyNew(holders []Holder, long func(Holder) bool) {
	for _, of := range holders {
		if t := x.tenants[of.Tenant]; t != nil && t.lines[of.Type] != nil && t.lines[of.Type].lanes[of.Target] != nil {
			x.unmeasured = append(x.unmeasured, t.lines[of.Type].lanes[of.Target])
		}
	}
	for _, l := range x.unmeasured {
		if l.line.lanes[l.holder.Target] == l { // it has not left
			x.classify(l, long(l.holder))
		}
	}
	clear(x.unmeasured)
	x.unmeasured = x.unmeasured[:0]
}

// Advance tells the time, and virtual times: of the limit, and of each type by its name. It comes
// before a Fetch.
func (x *FairQueue) Advance(now time.Time, virtual float64, ofType func(string) float64) {
	for _, t := range x.fresh {
		t.since = now
	}
	clear(x.fresh)
	x.fresh, x.virtual = x.fresh[:0], virtual
	for t := x.ahead.First(); t != nil && t.taken <= virtual; t = x.ahead.First() {
		x.ahead.Remove(t)
		x.placeAll(t)
	}
	for name, k := range x.types {
		k.virtual = ofType(name)
		for line := k.ahead.First(); line != nil && line.taken <= k.virtual; line = k.ahead.First() {
			k.ahead.Remove(line)
			x.placeLine(line, nil)
		}
	}
	for t := x.parked.First(); t != nil && !t.until.After(now); t = x.parked.First() {
		x.Unpark(t.name)
	}
}

// park leaves a tenant out, as its limit is used up, until then or until one of its actions is Set.
func (x *FairQueue) park(name string, until time.Time) {
	if t := x.tenants[name]; t != nil {
		t.until = until
		x.parked.Set(t)
		x.placeAll(t)
	}
}

// Unpark looks at a tenant again, as its limit may have changed.
func (x *FairQueue) Unpark(name string) {
	if t := x.tenants[name]; t != nil && t.parked > 0 {
		x.parked.Remove(t)
		x.placeAll(t)
	}
}

// Waiting returns how many jobs of a type wait, and in how many lines.
func (x *FairQueue) Waiting(jobType string) (jobs int64, lines int) {
	if k := x.types[jobType]; k != nil {
		return k.jobs, k.lines
	}
	return 0, 0
}

// waitingSince returns the weights of up to most tenants of which some jobs have waited since then.
func (b *Backlog) waitingSince(then time.Time, most int) map[string]float64 {
	weights := map[string]float64{}
	for name, t := range b.Queue.tenants {
		if t.since.After(then) {
			continue
		}
		settings, _, _ := b.Bounds.Tenant(name)
		if weights[name] = settings.Weight; len(weights) == most {
			break
		}
	}
	return weights
}

// others reports whether jobs of a type wait of tenants besides the one that there may be.
func (x *FairQueue) others(jobType string, one map[string]bool) bool {
	k := x.types[jobType]
	if k == nil || k.lines > 1 {
		return k != nil
	}
	for _, p := range k.pools {
		if l := p.orders[byLine].First(); l != nil {
			return len(one) > 0 && !one[l.holder.Tenant]
		}
	}
	return false
}

// Waits reports whether jobs for a target wait.
func (x *FairQueue) Waits(target string) bool {
	for _, k := range x.types {
		if k.pools[poolKey{target, false}] != nil || k.pools[poolKey{target, true}] != nil {
			return true
		}
	}
	return false
}

// someTenants returns the names of up to most tenants with waiting jobs.
func (x *FairQueue) someTenants(most int) (names []string) {
	for name := range x.tenants {
		if len(names) == most {
			break
		}
		names = append(names, name)
	}
	return names
}

// someUsedUp returns the names of up to most tenants with waiting jobs whose limit is used up.
func (x *FairQueue) someUsedUp(most int) (names []string) {
	for _, t := range x.parked.Items()[:min(most, len(x.parked.Items()))] {
		names = append(names, t.name)
	}
	return names
}

// List sets the Lines and Targets of a backlog, of one tenant or, if tenant is empty, of all. Its
// cost is that of all they have, for few callers.
func (b *Backlog) List(tenant string) {
	b.Targets = map[string]int64{}
	names := []string{tenant}
	if tenant == "" {
		names = slices.Sorted(maps.Keys(b.Queue.tenants))
	}
	for _, name := range names {
		t := b.Queue.tenants[name]
		if t == nil {
			continue
		}
		settings, left, _ := b.Bounds.Tenant(name)
		for _, kind := range slices.Sorted(maps.Keys(t.lines)) {
			line := t.lines[kind]
			l := Line{Tenant: name, Type: kind, Settings: settings, Taken: t.taken, TypeTaken: line.taken, Granted: line.granted, Left: left}
			for _, lane := range line.lanes {
				l.Waiting = append(l.Waiting, b.list(lane)...)
			}
			slices.SortFunc(l.Waiting, func(v, w Waiting) int { return cmp.Compare(v.Number, w.Number) })
			b.Lines = append(b.Lines, l)
		}
	}
}

func (b *Backlog) list(l *lane) (waiting []Waiting) {
	target, limiter := l.holder.Target, b.Bounds.Limiter(l.holder)
	if left := b.Bounds.Target(target); left != NoLimit {
		b.Targets[target] = left
	}
	for _, queue := range l.queues {
		for _, q := range queue.Items() {
			waiting = append(waiting, Waiting{Number: q.Number, Class: classes[q.class], Priority: q.priority, Jobs: q.jobs, Target: target, Left: limiter})
		}
	}
	return waiting
}
