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
//
// In a lane the actions of each class are grouped by Spec.Key. The keys of a line take turns, in all
// its lanes: see turns.
type FairQueue struct {
	tenants map[string]*queuedTenant
	types   map[string]*queuedType
	ahead   ranks.Heap[*queuedTenant]
	parked  ranks.Heap[*queuedTenant]
	virtual float64
	keys    map[keyName]*queuedKey
	places  map[keyPlace]*laneKey
	// fresh has tenants whose since is not known yet, and unmeasured new lanes.
	fresh      []*queuedTenant
	unmeasured []*lane
	// The next Advance places the moved lanes, and looks at the changed keys.
	moved   []*lane
	changed []*queuedKey
	// divisions counts the calls of Divide.
	divisions uint64
}

// Queued is the place of one action in a FairQueue. The zero value is in none.
type Queued struct {
	// Number is the store's number of the action. Class and Key are those of its Spec. The store
	// sets them before the first Set.
	Number uint64
	Class  Class
	Key    string

	priority float64
	jobs     int64
	granted  int64
	in       *laneKey
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
	share  share // of the last division
}

type queuedLine struct {
	tenant  *queuedTenant
	of      *queuedType
	taken   float64
	granted int64
	lanes   map[string]*lane
	turns   [len(classes)]turns
	ahead   int       // in queuedType.ahead
	share   lineShare // of the last division
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

// lane has a queue of keys for each class. That of class Low goes last, except in every tenth place.
type lane struct {
	holder  Holder
	line    *queuedLine
	pool    *lanePool
	queues  [len(classes)]ranks.Heap[*laneKey]
	at      [2]int
	tags    [2]float64 // of the line and of the tenant; -Inf is virtual time
	present precedence // of the action that goes first, when the lane got its place
	moved   bool       // it is in FairQueue.moved
}

// precedence orders actions whose lines have equal tags, and those of one line.
type precedence struct {
	class int
	// turns counts the jobs that the action's key was served in the present round of its line, and
	// in a division from the round in which it begins.
	turns    int64
	priority float64
	number   uint64
}

// compare orders by class, then by the turns of keys, then by Priority, and then the oldest first.
func (p precedence) compare(o precedence) int {
	switch {
	case p.class != o.class:
		return cmp.Compare(p.class, o.class)
	case p.turns != o.turns:
		return cmp.Compare(p.turns, o.turns)
	case p.priority != o.priority:
		return cmp.Compare(o.priority, p.priority)
	}
	return cmp.Compare(p.number, o.number)
}

// lowsTurn reports whether the next grant of a line, after so many, is for the low class first.
func lowsTurn(granted int64) bool { return granted%lowEvery == lowEvery-1 }

// precedenceOf returns the precedence of an action. In its turn the low class goes before all others.
func precedenceOf(class int, turns int64, q *Queued, lowsTurn bool) precedence {
	if lowsTurn && class == lowRank {
		class = -1
	}
	return precedence{class, turns, q.priority, q.Number}
}

// NewFairQueue returns an empty FairQueue.
func NewFairQueue() *FairQueue {
	return &FairQueue{
		tenants: map[string]*queuedTenant{}, types: map[string]*queuedType{}, keys: map[keyName]*queuedKey{}, places: map[keyPlace]*laneKey{},
		ahead:  ranks.New(func(a, b *queuedTenant) bool { return a.taken < b.taken }, func(t *queuedTenant) *int { return &t.ahead }),
		parked: ranks.New(func(a, b *queuedTenant) bool { return a.until.Before(b.until) }, func(t *queuedTenant) *int { return &t.parked }),
	}
}

// Set records the state of an action and of its line, whichever of it has changed: its Priority,
// how many of its jobs can be admitted, and how many were admitted so far; one that returned and was
// admitted again counts again. A store may count from when it was opened. With 0 jobs it leaves. A
// tenant whose limit was used up is looked at again. The changes take effect with the next Advance.
func (x *FairQueue) Set(q *Queued, of Holder, tags LineTags, priority float64, jobs, granted int64) {
	if jobs > 0 && q.in == nil {
		q.in = x.enter(x.laneOf(of, tags), q)
	}
	more := granted - q.granted
	q.granted = granted
	t, line := x.lineOf(q, of)
	if t == nil {
		return
	}
	if line != nil {
		x.charge(line, q, more)
	}
	if k := q.in; k != nil {
		line.of.jobs += jobs - q.jobs
		q.jobs, q.priority = jobs, priority
		if k.actions.SetIf(q, jobs > 0); jobs <= 0 {
			q.in = nil
		}
		x.settle(k)
	}
	x.tag(t, line, tags)
	x.unpark(t)
}

// lineOf returns the tenant and the line of an action, as far as any of their jobs wait.
func (x *FairQueue) lineOf(q *Queued, of Holder) (*queuedTenant, *queuedLine) {
	if q.in != nil {
		return q.in.lane.line.tenant, q.in.lane.line
	}
	t := x.tenants[of.Tenant]
	if t == nil {
		return nil, nil
	}
	return t, t.lines[of.Type]
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
			l.queues[i] = ranks.New(func(a, b *laneKey) bool { return a.precedence(false).compare(b.precedence(false)) < 0 }, func(k *laneKey) *int { return &k.at })
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
	for _, tag := range [...]int{order, 1 - order} {
		if l.tags[tag] != o.tags[tag] {
			return cmp.Compare(l.tags[tag], o.tags[tag])
		}
	}
	return l.present.compare(o.present)
}

// tag records the tags of a tenant, and of one of its lines unless it is nil.
func (x *FairQueue) tag(t *queuedTenant, line *queuedLine, tags LineTags) {
	if line != nil && (line.taken != tags.TypeTaken || line.granted != tags.Granted) {
		line.taken, line.granted = tags.TypeTaken, tags.Granted
		line.of.ahead.SetIf(line, line.taken > line.of.virtual)
		x.moveLine(line)
	}
	if t.taken != tags.Taken {
		t.taken = tags.Taken
		x.ahead.SetIf(t, t.taken > x.virtual)
		x.moveAll(t)
	}
}

// move notes a lane to be placed by Advance.
func (x *FairQueue) move(l *lane) {
	if !l.moved {
		l.moved = true
		x.moved = append(x.moved, l)
	}
}

func (x *FairQueue) moveLine(line *queuedLine) {
	for _, l := range line.lanes {
		x.move(l)
	}
}

func (x *FairQueue) moveAll(t *queuedTenant) {
	for _, line := range t.lines {
		x.moveLine(line)
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

// head returns the key of a lane that goes first; nil if none waits.
func (l *lane) head(lowsTurn bool) *laneKey {
	if low := l.queues[lowRank].First(); lowsTurn && low != nil {
		return low
	}
	for i := range l.queues {
		if first := l.queues[i].First(); first != nil {
			return first
		}
	}
	return nil
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

// ClassifyNew calls long for lanes that are new, and for those of holders that were thought to be
// long.
func (x *FairQueue) ClassifyNew(holders []Holder, long func(Holder) bool) {
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
// before a Fetch, after what has changed was Set.
func (x *FairQueue) Advance(now time.Time, virtual float64, ofType func(string) float64) {
	for _, t := range x.fresh {
		t.since = now
	}
	clear(x.fresh)
	x.fresh, x.virtual = x.fresh[:0], virtual
	x.takeTurns()
	x.placeMoved()
	for t := x.ahead.First(); t != nil && t.taken <= virtual; t = x.ahead.First() {
		x.ahead.Remove(t)
		x.moveAll(t)
	}
	for name, k := range x.types {
		k.virtual = ofType(name)
		for line := k.ahead.First(); line != nil && line.taken <= k.virtual; line = k.ahead.First() {
			k.ahead.Remove(line)
			x.moveLine(line)
		}
	}
	for t := x.parked.First(); t != nil && !t.until.After(now); t = x.parked.First() {
		x.unpark(t)
	}
	x.placeMoved()
}

func (x *FairQueue) placeMoved() {
	for _, l := range x.moved {
		l.moved = false
		x.place(l)
	}
	clear(x.moved)
	x.moved = x.moved[:0]
}

// park leaves a tenant out, as its limit is used up, until then or until one of its actions is Set.
func (x *FairQueue) park(name string, until time.Time) {
	if t := x.tenants[name]; t != nil {
		t.until = until
		x.parked.Set(t)
		x.moveAll(t)
		x.placeMoved()
	}
}

// Unpark looks at a tenant again from the next Advance on, as its limit may have changed.
func (x *FairQueue) Unpark(name string) {
	if t := x.tenants[name]; t != nil {
		x.unpark(t)
	}
}

func (x *FairQueue) unpark(t *queuedTenant) {
	if t.parked > 0 {
		x.parked.Remove(t)
		x.moveAll(t)
	}
}

// Waiting returns how many jobs of a type wait, and in how many lines.
func (x *FairQueue) Waiting(jobType string) (jobs int64, lines int) {
	if k := x.types[jobType]; k != nil {
		return k.jobs, k.lines
	}
	return 0, 0
}

// WaitingSince returns the weights of up to most tenants of which some jobs have waited since then.
func (b *Backlog) WaitingSince(then time.Time, most int) map[string]float64 {
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

// Others reports whether jobs of a type wait of tenants besides the one that there may be.
func (x *FairQueue) Others(jobType string, one map[string]bool) bool {
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

// SomeTenants returns the names of up to most tenants with waiting jobs.
func (x *FairQueue) SomeTenants(most int) (names []string) {
	for name := range x.tenants {
		if len(names) == most {
			break
		}
		names = append(names, name)
	}
	return names
}

// SomeUsedUp returns the names of up to most tenants with waiting jobs whose limit is used up.
func (x *FairQueue) SomeUsedUp(most int) (names []string) {
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
	for class, queue := range l.queues {
		for _, k := range queue.Items() {
			for _, q := range k.actions.Items() {
				waiting = append(waiting, Waiting{
					Number: q.Number, Class: classes[class], Key: q.Key, HadTurn: k.had,
					Priority: q.priority, Jobs: q.jobs, Target: target, Left: limiter,
				})
			}
		}
	}
	return waiting
}

// LinesWaiting returns how many lines have waiting jobs.
func (b *Backlog) LinesWaiting() (lines int64) {
	for _, state := range b.Types {
		lines += int64(state.Lines)
	}
	return lines
}

// Turns returns how many turns the action's key has had in the present round.
func (w *Waiting) Turns() int64 {
	if w.HadTurn {
		return 1
	}
	return 0
}

// GoesBefore reports whether an action goes before another one whose key has had as many turns.
func (w *Waiting) GoesBefore(o *Waiting) bool {
	return cmp.Or(cmp.Compare(o.Priority, w.Priority), cmp.Compare(w.Number, o.Number)) < 0
}
