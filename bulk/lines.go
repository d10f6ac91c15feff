package bulk

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluice-project/sluice/internal/ranks"
)

// Lines keeps actions with waiting jobs in the order in which Divide serves them, so that a
// store can return the first of them without a look at all. An operation costs the logarithm
// of what waits. It is for one store, which protects it by a mutex.
//
// The actions of one tenant, type and target are a lane: all of them are held back together.
// The lanes of one type and target are a pool. It has two orders, by the tags of the type and
// by those of the limit. Tags below virtual time count as virtual time, so a lane whose tag
// virtual time passes changes its place: ahead has those that it has not passed.
type Lines struct {
	tenants map[string]*queuedTenant
	types   map[string]*queuedType
	ahead   ranks.Heap[*queuedTenant]
	parked  []*queuedTenant
	virtual float64
	actions int
	round   uint64 // counts the calls of First
}

// Queued is the place of one action in Lines. The zero value is in none.
type Queued struct {
	// Number is the store's number of the action, set by the store.
	Number   uint64
	class    int
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
	taken  float64
	lines  map[string]*queuedLine
	at     int // in Lines.ahead
	parked bool
}

type queuedLine struct {
	tenant  *queuedTenant
	of      *queuedType
	taken   float64
	granted int64
	lanes   map[string]*lane
	at      int // in queuedType.ahead
}

type queuedType struct {
	virtual float64
	ahead   ranks.Heap[*queuedLine]
	pools   map[string]*lanePool
	jobs    int64
	lines   int
}

type lanePool struct {
	orders  [2]ranks.Heap[*lane]
	lanes   int
	actions int
}

// lane has two queues: that of class Low goes last, except in every tenth place.
type lane struct {
	holder  Holder
	line    *queuedLine
	pool    *lanePool
	queues  [2]ranks.Heap[*Queued]
	at      [2]int
	tags    [2]float64 // of the line and of the tenant; -Inf is virtual time
	head    *Queued
	present struct { // of head, when the lane got its place
		class    int
		priority float64
	}
	listed uint64 // the round
}

// NewLines returns empty Lines.
func NewLines() *Lines {
	return &Lines{tenants: map[string]*queuedTenant{}, types: map[string]*queuedType{}, ahead: ranks.New(
		func(a, b *queuedTenant) bool { return a.taken < b.taken }, func(t *queuedTenant) *int { return &t.at })}
}

// Set records the state of an action and of its line, whichever of it has changed: its class,
// its Priority, and how many of its jobs can be admitted. With 0 jobs it leaves.
func (x *Lines) Set(q *Queued, of Holder, tags LineTags, class Class, priority float64, jobs int64) {
	l := q.lane
	switch {
	case jobs > 0:
		if l == nil {
			l = x.laneOf(of, tags)
		}
		x.take(q, l, jobs)
		q.class, q.priority = classRank(class), priority
		l.queues[queueOf(q)].Set(q)
	case l != nil:
		l.queues[queueOf(q)].Remove(q)
		x.take(q, nil, 0)
	}
	if l != nil {
		x.tag(l.line.tenant, l.line, l, tags)
		x.place(l)
	} else if t := x.tenants[of.Tenant]; t != nil {
		x.tag(t, t.lines[of.Type], nil, tags)
	}
}

func queueOf(q *Queued) int {
	if q.class == classRank(Low) {
		return 1
	}
	return 0
}

// take counts an action and its jobs in a lane; nil if it leaves the one that it is in.
func (x *Lines) take(q *Queued, to *lane, jobs int64) {
	l := cmp.Or(q.lane, to)
	l.line.of.jobs += jobs - q.jobs
	q.jobs = jobs
	switch {
	case to == nil:
		x.actions--
		l.pool.actions--
	case q.lane == nil:
		x.actions++
		l.pool.actions++
	}
	q.lane = to
}

func (x *Lines) typeOf(name string) *queuedType {
	k := x.types[name]
	if k == nil {
		k = &queuedType{pools: map[string]*lanePool{}, virtual: math.Inf(-1), ahead: ranks.New(
			func(a, b *queuedLine) bool { return a.taken < b.taken }, func(l *queuedLine) *int { return &l.at })}
		x.types[name] = k
	}
	return k
}

func (x *Lines) laneOf(of Holder, tags LineTags) *lane {
	t := x.tenants[of.Tenant]
	if t == nil {
		t = &queuedTenant{lines: map[string]*queuedLine{}, taken: math.Inf(-1)}
		x.tenants[of.Tenant] = t
	}
	line := t.lines[of.Type]
	if line == nil {
		line = &queuedLine{tenant: t, of: x.typeOf(of.Type), taken: math.Inf(-1), granted: tags.Granted, lanes: map[string]*lane{}}
		line.of.lines++
		t.lines[of.Type] = line
	}
	l := line.lanes[of.Target]
	if l != nil {
		return l
	}
	pool := line.of.pools[of.Target]
	if pool == nil {
		pool = newLanePool()
		line.of.pools[of.Target] = pool
	}
	pool.lanes++
	l = &lane{holder: of, line: line, pool: pool}
	for i := range l.queues {
		l.queues[i] = ranks.New(earlier, func(q *Queued) *int { return &q.at })
	}
	line.lanes[of.Target] = l
	return l
}

func newLanePool() *lanePool {
	p := &lanePool{}
	for i := range p.orders {
		p.orders[i] = ranks.New(func(a, b *lane) bool { return a.compare(b, i) < 0 }, func(l *lane) *int { return &l.at[i] })
	}
	return p
}

// earlier orders the actions of a lane, as Divide does.
func earlier(a, b *Queued) bool {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.priority, a.priority), cmp.Compare(a.Number, b.Number)) < 0
}

// compare orders the lanes of a pool by the tags of their lines (order 0), or of their tenants
// (order 1), as Divide does.
func (l *lane) compare(o *lane, order int) int {
	return cmp.Or(
		cmp.Compare(l.tags[order], o.tags[order]), cmp.Compare(l.tags[1-order], o.tags[1-order]),
		cmp.Compare(l.present.class, o.present.class), cmp.Compare(o.present.priority, l.present.priority),
		cmp.Compare(l.holder.Tenant, o.holder.Tenant))
}

// tag records the tags of a tenant, and of one of its lines unless it is nil. All lanes that
// they concern are placed again but one, which the caller places.
func (x *Lines) tag(t *queuedTenant, line *queuedLine, but *lane, tags LineTags) {
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

func (x *Lines) placeAll(t *queuedTenant) {
	for _, line := range t.lines {
		x.placeLine(line, nil)
	}
}

func (x *Lines) placeLine(line *queuedLine, but *lane) {
	for _, l := range line.lanes {
		if l != but {
			x.place(l)
		}
	}
}

// place puts a lane where it belongs now; nowhere if its tenant is parked. An empty one is
// removed, with all that only it uses.
func (x *Lines) place(l *lane) {
	line, t := l.line, l.line.tenant
	first, low := l.queues[0].First(), l.queues[1].First()
	if l.head = first; first == nil || low != nil && line.granted%lowEvery == lowEvery-1 {
		l.head = low
	}
	l.tags = [2]float64{math.Inf(-1), math.Inf(-1)}
	if line.at > 0 {
		l.tags[0] = line.taken
	}
	if t.at > 0 {
		l.tags[1] = t.taken
	}
	if l.head != nil {
		l.present.class, l.present.priority = l.head.class, l.head.priority
	}
	for order := range l.pool.orders {
		l.pool.orders[order].SetIf(l, l.head != nil && !t.parked)
	}
	if l.head == nil {
		x.drop(l)
	}
}

func (x *Lines) drop(l *lane) {
	of, line := l.holder, l.line
	if line.lanes[of.Target] != l {
		return
	}
	delete(line.lanes, of.Target)
	if l.pool.lanes--; l.pool.lanes == 0 {
		delete(line.of.pools, of.Target)
	}
	if len(line.lanes) > 0 {
		return
	}
	line.of.ahead.Remove(line)
	delete(line.tenant.lines, of.Type)
	if line.of.lines--; line.of.lines == 0 {
		delete(x.types, of.Type)
	}
	if len(line.tenant.lines) == 0 {
		x.ahead.Remove(line.tenant)
		delete(x.tenants, of.Tenant)
	}
}

// Advance records virtual times: of the limit, and of each type by its name.
func (x *Lines) Advance(virtual float64, ofType func(string) float64) {
	x.virtual = virtual
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
}

// Park leaves a tenant's lines out of First until Unpark: none of its jobs can be admitted.
func (x *Lines) Park(tenant string) {
	if t := x.tenants[tenant]; t != nil && !t.parked {
		t.parked = true
		x.parked = append(x.parked, t)
		x.placeAll(t)
	}
}

// Unpark ends Park for a tenant, and UnparkAll for all.
func (x *Lines) Unpark(tenant string) {
	if len(x.parked) == 0 {
		return
	}
	if t := x.tenants[tenant]; t != nil && t.parked {
		t.parked = false
		x.placeAll(t)
	}
}

// UnparkAll ends Park for all tenants.
func (x *Lines) UnparkAll() {
	for _, t := range x.parked {
		if t.parked {
			t.parked = false
			x.placeAll(t)
		}
	}
	clear(x.parked)
	x.parked = x.parked[:0]
}

// Actions returns how many actions have waiting jobs.
func (x *Lines) Actions() int { return x.actions }

// Waiting returns how many jobs of a type wait, and in how many lines.
func (x *Lines) Waiting(jobType string) (jobs int64, lines int) {
	if k := x.types[jobType]; k != nil {
		return k.jobs, k.lines
	}
	return 0, 0
}

// Waits reports whether jobs for a target wait.
func (x *Lines) Waits(target string) bool {
	for _, k := range x.types {
		if k.pools[target] != nil {
			return true
		}
	}
	return false
}

// Tenants returns the names of tenants with waiting jobs, at most some.
func (x *Lines) Tenants(most int) []string {
	names := make([]string, 0, min(most, len(x.tenants)))
	for name := range x.tenants {
		if len(names) == most {
			break
		}
		names = append(names, name)
	}
	return names
}

// All calls f for all actions.
func (x *Lines) All(f func(q *Queued)) {
	for _, t := range x.tenants {
		for _, line := range t.lines {
			for _, l := range line.lanes {
				for _, queue := range l.queues {
					for _, q := range queue.Items() {
						f(q)
					}
				}
			}
		}
	}
}

// Rest is what an action that is listed stands for: itself, those that follow it in its lane, or
// in its pool; see Waiting.Rest and Line.Rest.
type Rest uint8

// The values of Rest.
const (
	NoRest Rest = iota
	RestOfLine
	RestOfLines
)

// First calls f for the about `most` actions that Divide would serve first, and at least some
// of each target, up to ten. Able reports whether jobs to a target can be admitted at all, and
// ableOf whether those of the holder of an action can; others are passed over.
func (x *Lines) First(most int, able func(target string) bool, ableOf func(*Queued) bool, f func(*Queued, Rest)) {
	var pools []*lanePool
	for _, k := range x.types {
		for target, p := range k.pools {
			if able(target) {
				pools = append(pools, p)
			}
		}
	}
	slices.SortFunc(pools, func(a, b *lanePool) int { return cmp.Compare(a.actions, b.actions) })
	x.round++
	for i, p := range pools {
		// Small pools leave their part to larger ones.
		l := listing{round: x.round, part: max(2, most/(len(pools)-i)), ableOf: ableOf, f: f}
		most = max(0, most-l.list(p))
	}
}

// listing lists the first actions of a pool.
type listing struct {
	round  uint64
	part   int
	ableOf func(*Queued) bool
	f      func(*Queued, Rest)
	count  int
}

func (s *listing) list(p *lanePool) int {
	each := max(1, s.part/(2*max(1, p.lanes)))
	lanes := max(1, s.part/(2*each))
	walks := [2]*ranks.Walk[*lane]{p.orders[0].Walk(), p.orders[1].Walk()}
	for order := range walks {
		// One at least, so that a part never begins with what it has left out. Lanes that the
		// other order has listed count as well.
		for n := 0; n < lanes && (n == 0 || s.count < s.part); n++ {
			l := s.next(walks[order], &n)
			if l == nil {
				break
			}
			l.listed = s.round
			s.lane(l, each)
		}
	}
	// The first that is left out in each order stands for the others.
	for order := range walks {
		if l := s.next(walks[order], new(int)); l != nil {
			l.listed = s.round
			s.tell(l.head, RestOfLines)
		}
	}
	return s.count
}

// next returns the next lane that can be served and is not listed; nil if there is none. It
// counts those that are listed.
func (s *listing) next(w *ranks.Walk[*lane], listed *int) *lane {
	for l := w.Next(); l != nil; l = w.Next() {
		switch {
		case l.listed == s.round:
			*listed++
		case s.ableOf(l.head):
			return l
		}
	}
	return nil
}

// lane lists the first actions of a lane, and of class Low a tenth besides.
func (s *listing) lane(l *lane, each int) {
	for queue, n := range [2]int{each, 1 + each/lowEvery} {
		if n == 1 { // without the cost of a walk
			if q := l.queues[queue].First(); q != nil {
				s.tell(q, NoRest)
			}
			if q := l.queues[queue].Second(); q != nil {
				s.tell(q, RestOfLine)
			}
			continue
		}
		w := l.queues[queue].Walk()
		for q := w.Next(); q != nil; q = w.Next() {
			if n--; n < 0 {
				s.tell(q, RestOfLine)
				break
			}
			s.tell(q, NoRest)
		}
	}
}

func (s *listing) tell(q *Queued, rest Rest) {
	s.count++
	s.f(q, rest)
}

// Cut leaves out of a whole backlog what is beyond about `most` actions, as Store.Backlog does.
func (b *Backlog) Cut(most int, alpha time.Duration) {
	type place struct{ line, waiting int }
	x := NewLines()
	var places []place
	for i := range b.Lines {
		line := &b.Lines[i]
		tags := LineTags{line.Taken, line.TypeTaken, line.Granted}
		for j := range line.Waiting {
			w := &line.Waiting[j]
			q := &Queued{Number: uint64(len(places))}
			places = append(places, place{i, j})
			if most > 0 {
				x.Set(q, Holder{line.Tenant, line.Type, w.Target}, tags, w.Class, Priority(w.EnteredAt, line.Settings.BasePriority, w.Total, w.Done, alpha), w.Jobs)
			}
		}
	}
	if most == 0 || len(places) <= most {
		return
	}
	x.Advance(b.Virtual, func(name string) float64 { return b.Types[name].Virtual })
	able := func(q *Queued) bool {
		line := &b.Lines[places[q.Number].line]
		return line.Left > 0 && line.Waiting[places[q.Number].waiting].Left > 0
	}
	var kept []*Queued
	rests := map[*Queued]Rest{}
	x.First(most, func(target string) bool { return !atMost(b.Targets, target) }, able, func(q *Queued, rest Rest) {
		kept, rests[q] = append(kept, q), rest
	})
	slices.SortFunc(kept, func(a, b *Queued) int { return cmp.Compare(a.Number, b.Number) })
	waiting := make([][]Waiting, len(b.Lines))
	var lines []Line
	for _, q := range kept {
		at := places[q.Number]
		line := b.Lines[at.line]
		w := line.Waiting[at.waiting]
		if w.Rest = rests[q] != NoRest; rests[q] == RestOfLines {
			line.Rest, line.Waiting = true, []Waiting{w}
			lines = append(lines, line)
		} else {
			waiting[at.line] = append(waiting[at.line], w)
		}
	}
	b.More = true
	b.Tenants = map[string]float64{}
	for i, line := range b.Lines {
		if len(b.Tenants) < MaxTenants {
			b.Tenants[line.Tenant] = line.Settings.Weight
		}
		if line.Waiting = waiting[i]; len(line.Waiting) > 0 {
			lines = append(lines, line)
		}
	}
	b.Lines = lines
}
