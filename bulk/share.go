package bulk

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/internal/ranks"
)

// lowEvery is how often, in grants of a line, the low class goes first: it keeps
// a tenth of its tenant's share.
const lowEvery = 10

// Free is how many jobs may enter the ready queue: in total, and of each type.
type Free struct {
	Total int64
	Types map[string]int64

	// Measured and Places are set by the engine: what it has measured of a holder, and how many
	// more attempts of each type may be held that may be long; nil is no bound.
	Measured func(Holder) Measured
	Places   map[string]*int64
}

// Divide decides which jobs may pass: it divides what the window's limit and the ready
// queue still allow, whichever is less, among the tenants that wait, by weight. It
// returns grants in the order in which jobs should become ready.
//
// It is start-time fair queueing (Goyal, Vin, Cheng 1996): each tenant has a
// tag, the jobs it has taken divided by its weight. The lowest tag is served next, and
// virtual time is the tag last served. A tenant that could not be served, because it was
// idle or at a limit of its own, resumes at virtual time: it gains no credit, and owes
// nothing. Hence
//
//   - the jobs that two tenants have taken since both began to wait, divided by their
//     weights, never differ by more than one job divided by the lesser weight, over any
//     number of windows: with more tenants than requests they alternate;
//   - shares that idle tenants do not use go to the others, and no request of a window is
//     lost.
//
// The scarce resource may be the limit, which all tenants share, or the workers of one
// type, which only its lines share. Each has tags of its own, in its own unit: the limit is
// charged an attempt for each job, the workers the time that it is expected to take. The tags
// of the scarce resource decide. Equal tags are ordered as the actions of one line are: by class, but
// every tenth grant of a line is for the low class; then the keys of a line ([Spec.Key]) take turns, a
// job each, in all that it waits for; then by [Priority].
//
// It also returns how many jobs it granted to each tenant. Its cost is that of what it grants, and
// of the lanes before it that are held back.
func Divide(b *Backlog, free Free) (grants []Grant, passed map[string]int64) {
	capacity := min(free.Total, b.Left)
	if capacity <= 0 {
		return nil, nil
	}
	b.Queue.divisions++
	d := division{
		number: b.Queue.divisions, backlog: b, measured: free.Measured, places: free.Places, free: bounds(free.Types), targets: map[string]*int64{},
		usedUp: map[string]time.Time{}, passed: map[string]int64{},
	}
	if capacity < demand(b.Queue, free) {
		d.order = byTenant
	}
	d.lanes = ranks.New(func(a, b *laneShare) bool { return a.place.before(b.place) }, func(t *laneShare) *int { return &t.at })
	if d.measured == nil {
		d.measured = func(Holder) Measured { return Measured{Target: NoLimit} }
	}
	d.rest = b.Queue.walk(d.order, d.full)
	d.serve(capacity)
	for tenant, until := range d.usedUp {
		b.Queue.park(tenant, until)
	}
	if t := b.Queue.parked.First(); t != nil && t.until.Before(b.WindowEnds) {
		b.WindowEnds = t.until // nobody asks for its bound until then
	}
	for _, l := range d.long {
		b.Queue.classify(l, true)
	}
	return d.grants, d.passed
}

// Charge charges jobs that were admitted to the tag of a tenant or of a line, and
// advances virtual time to the tag last served. See Divide.
//
// lua/admit.lua of redisstore repeats this rule; storetest's tagTable tests both.
func Charge(taken, virtual float64, jobs int64, weight float64) (newTaken, newVirtual float64) {
	step := 1 / weight
	begin := max(taken, virtual)
	return begin + float64(jobs)*step, max(virtual, begin+float64(jobs-1)*step)
}

// bounds copies the remainder of each bound, to be counted down.
func bounds(left map[string]int64) map[string]*int64 {
	copies := make(map[string]*int64, len(left))
	for name, n := range left {
		copies[name] = &n
	}
	return copies
}

// demand returns how many jobs would pass if only the types' bounds held.
func demand(x *FairQueue, free Free) (jobs int64) {
	for name, k := range x.types {
		jobs += min(k.jobs, free.Types[name])
	}
	return jobs
}

// The orders in which lines are served: by their tags, or by those of their tenants if the limit
// is scarce.
const (
	byLine = iota
	byTenant
)

// division is the state of one Divide: a heap of the lanes that can be served, the next one on
// top; the rest of them, which are not looked at before it is their turn; and the remainder of
// each bound.
type division struct {
	number   uint64
	backlog  *Backlog
	order    int
	measured func(Holder) Measured
	places   map[string]*int64
	lanes    ranks.Heap[*laneShare]
	rest     *queueWalk
	free     map[string]*int64
	targets  map[string]*int64
	usedUp   map[string]time.Time // tenants whose limit is used up, and when its window ends
	long     []*lane              // those that were thought to be short
	grants   []Grant
	granted  int64 // jobs
	passed   map[string]int64
}

// Measured is what the engine knows of the attempts of a holder: what one costs, in seconds; and
// how many more may be held, of those that may be long, and of those against the target.
type Measured struct {
	Cost float64
	HeldBounds
	Target int64
}

// share is common to the lanes of one tenant in a division: its tag, and the remainder of its limit.
type share struct {
	division  uint64
	tag, step float64
	left      int64
}

// lineShare is common to the lanes of one line in a division: its tag, and how many grants it has had.
type lineShare struct {
	division uint64
	tag      float64
	granted  int64
}

// laneShare is one lane. Its place in the heap is updated only when it was served or is on top: while
// others are served, a lane only moves back.
type laneShare struct {
	holder                Holder
	share                 *share
	line                  *lineShare
	free, target, limiter *int64
	Measured
	queues [len(classes)]keyWalk
	next   *keyShare // of the action that goes first
	place  place
	asOf   int64 // division.granted when it got its place
	at     int
}

// place orders lanes: by two tags, the deciding one first, and the action that is served next.
type place struct {
	first, second float64
	precedence
}

func (p place) before(o place) bool {
	switch {
	case p.first != o.first:
		return p.first < o.first
	case p.second != o.second:
		return p.second < o.second
	}
	return p.compare(o.precedence) < 0
}

// placeOf returns the place of tags of a line and of its tenant.
func placeOf(order int, line, tenant float64, p precedence) place {
	if order == byTenant {
		return place{tenant, line, p}
	}
	return place{line, tenant, p}
}

// classes are in the order in which they go.
var classes = [...]Class{High, Normal, Low}

const lowRank = len(classes) - 1

// ClassRank returns the place of a class in the order of classes: 0 goes first.
func ClassRank(c Class) int { return slices.Index(classes[:], c) }

// full reports whether no more jobs of a type can be granted, none that may be long, or none to a
// target.
func (d *division) full(k *queuedType, long bool, p *lanePool) bool {
	free, places := d.free[k.name], d.places[k.name]
	return free == nil || *free <= 0 || long && places != nil && *places <= 0 || p != nil && *d.target(p.target) <= 0
}

// target returns what is left of the bound of a target.
func (d *division) target(name string) *int64 {
	left := d.targets[name]
	if left == nil {
		left = new(int64)
		*left = d.backlog.Bounds.Target(name)
		d.targets[name] = left
	}
	return left
}

// add adds a lane, unless none of its jobs can be granted.
func (d *division) add(l *lane) {
	t := &laneShare{
		holder: l.holder, share: d.share(l.line.tenant), free: d.free[l.holder.Type],
		target: d.target(l.holder.Target), Measured: d.measured(l.holder),
	}
	if t.HeldBounds.Free != nil && !l.pool.long {
		d.long = append(d.long, l)
	}
	*t.target = min(*t.target, t.Measured.Target)
	if n := d.backlog.Bounds.Limiter(l.holder); n != NoLimit {
		t.limiter = &n
	}
	if t.line = &l.line.share; t.line.division != d.number {
		*t.line = lineShare{d.number, max(l.line.taken, l.line.of.virtual), l.line.granted}
	}
	for i := range t.queues {
		t.queues[i] = newKeyWalk(&l.queues[i])
	}
	d.set(t)
}

// share returns the share of a tenant. One whose limit is used up is left out until its window
// ends: nothing in this division gives it back.
func (d *division) share(t *queuedTenant) *share {
	s := &t.share
	if s.division != d.number {
		settings, left, ends := d.backlog.Bounds.Tenant(t.name)
		*s = share{d.number, max(t.taken, d.backlog.Queue.virtual), 1 / settings.Weight, left}
		if left <= 0 {
			d.usedUp[t.name] = ends
		}
	}
	return s
}

// set puts a lane where it belongs now; nowhere if it cannot be served: bounds only decrease.
func (d *division) set(t *laneShare) {
	if t.next = nil; t.able() {
		t.next = d.pick(t)
	}
	if t.next != nil {
		t.place = placeOf(d.order, t.line.tag, t.share.tag, t.next.precedence(lowsTurn(t.line.granted)))
	}
	t.asOf = d.granted
	d.lanes.SetIf(t, t.next != nil)
}

func (t *laneShare) able() bool {
	return *t.free > 0 && t.share.left > 0 && *t.target > 0 && (t.limiter == nil || *t.limiter > 0) && t.HeldBounds.Able()
}

// pick returns the key whose action is served next; nil if no jobs are left.
func (d *division) pick(t *laneShare) *keyShare {
	if low := &t.queues[lowRank]; low.some() && lowsTurn(t.line.granted) {
		if k := low.first(d); k != nil {
			return k
		}
	}
	for i := range t.queues {
		if w := &t.queues[i]; w.some() {
			if k := w.first(d); k != nil {
				return k
			}
		}
	}
	return nil
}

// keyWalk goes through the keys of a lane, in one class, as they are served: those that it has looked
// at, of which the first may have moved back; and the rest, from next on.
type keyWalk struct {
	keys *ranks.Heap[*laneKey]
	rest *ranks.Walk[*laneKey]
	next *laneKey
	seen ranks.Heap[*keyShare]
}

// keyShare is a key in a lane.
type keyShare struct {
	key     *queuedKey
	actions actionWalk
	place   precedence // when it got its place in keyWalk.seen
	at      int
}

func newKeyWalk(keys *ranks.Heap[*laneKey]) keyWalk {
	return keyWalk{keys: keys, next: keys.First(), seen: ranks.New(
		func(a, b *keyShare) bool { return a.place.compare(b.place) < 0 }, func(k *keyShare) *int { return &k.at })}
}

// precedence returns that of the first action.
func (k *keyShare) precedence(lowsTurn bool) precedence {
	return precedenceOf(k.key.class, k.key.served, k.actions.item, lowsTurn)
}

// some reports whether there are keys that may have jobs left.
func (w *keyWalk) some() bool { return w.next != nil || w.seen.Len() > 0 }

// first returns the key that is served next; nil if none has jobs left.
func (w *keyWalk) first(d *division) *keyShare {
	for {
		k := w.seen.First()
		switch {
		case w.next != nil && (k == nil || w.next.precedence(false).compare(k.place) < 0):
			w.look(d)
			continue
		case k == nil:
			return nil
		case !k.actions.first():
			w.seen.Remove(k)
			continue
		}
		now := k.precedence(false)
		if now == k.place {
			return k
		}
		k.place = now
		w.seen.Set(k)
	}
}

// look looks at the next key of the rest.
func (w *keyWalk) look(d *division) {
	k := &keyShare{key: w.next.key, actions: actionWalk{heap: &w.next.actions}, place: w.next.precedence(false)}
	if k.key.division != d.number {
		k.key.division, k.key.served = d.number, k.place.turns
	}
	w.seen.Set(k)
	if w.rest == nil && w.keys.Len() > 1 {
		w.rest = w.keys.Walk()
		w.rest.Next()
	}
	if w.next = nil; w.rest != nil {
		w.next = w.rest.Next()
	}
}

// actionWalk goes through the actions of a queue of a lane.
type actionWalk struct {
	heap *ranks.Heap[*Queued]
	walk *ranks.Walk[*Queued]
	item *Queued
	jobs int64 // of item, that were not granted
}

// first goes to the first action with jobs, and reports whether there is one.
func (w *actionWalk) first() bool {
	switch {
	case w.jobs > 0:
		return true
	case w.item == nil && w.walk == nil:
		w.item = w.heap.First()
	case w.walk == nil:
		w.walk = w.heap.Walk()
		w.walk.Next()
		fallthrough
	default:
		w.item = w.walk.Next()
	}
	if w.item == nil {
		return false
	}
	w.jobs = w.item.jobs
	return true
}

func (d *division) serve(capacity int64) {
	for ; capacity > 0; capacity-- {
		t := d.next()
		if t == nil {
			return
		}
		d.passed[t.holder.Tenant]++
		number := t.next.actions.item.Number
		if n := len(d.grants); n > 0 && d.grants[n-1].Number == number {
			d.grants[n-1].Jobs++
		} else {
			d.grants = append(d.grants, Grant{Number: number, Jobs: 1, Cost: t.Cost})
		}
		t.take()
		d.granted++
		d.set(t)
	}
}

// next returns the lane that is served next; nil if none can be.
func (d *division) next() *laneShare {
	for {
		t := d.lanes.First()
		if l, place := d.rest.first(); l != nil && (t == nil || place.before(t.place)) {
			d.rest.next()
			d.add(l)
			continue
		}
		if t == nil || t.asOf == d.granted {
			return t
		}
		d.set(t)
	}
}

// take charges one job of the lane's first action to all its bounds.
func (t *laneShare) take() {
	t.next.actions.jobs--
	t.next.key.served++
	t.line.granted++
	t.line.tag += t.share.step * cmp.Or(t.Cost, 1)
	t.share.tag += t.share.step
	t.share.left--
	*t.free--
	*t.target--
	t.HeldBounds.Take()
	if t.limiter != nil {
		*t.limiter--
	}
}

// queueWalk goes through the lanes of a FairQueue in an order, which must not change until it ends.
// It passes over whole types and pools that are full.
type queueWalk struct {
	queue   *FairQueue
	order   int
	full    func(k *queuedType, long bool, p *lanePool) bool
	streams ranks.Heap[*laneStream]
}

// laneStream is the lanes of a pool, or the first lanes of the pools of a type, of long or of short
// attempts.
type laneStream struct {
	of    *queuedType
	long  bool
	pools *ranks.Walk[*lanePool] // nil for the lanes of a pool
	lanes *ranks.Walk[*lane]
	pool  *lanePool // that next is in
	next  *lane
	place place
	at    int
}

func (x *FairQueue) walk(order int, full func(*queuedType, bool, *lanePool) bool) *queueWalk {
	w := &queueWalk{queue: x, order: order, full: full, streams: ranks.New(
		func(a, b *laneStream) bool { return a.place.before(b.place) }, func(s *laneStream) *int { return &s.at })}
	for _, k := range x.types {
		for _, long := range []bool{false, true} {
			w.advance(&laneStream{of: k, long: long, pools: k.ofPools(long, order).Walk()})
		}
	}
	return w
}

// advance goes to the next lane of a stream, which leaves if there is none.
func (w *queueWalk) advance(s *laneStream) {
	if s.pools == nil {
		s.next = s.lanes.Next()
	} else if s.next, s.pool = nil, s.pools.Next(); s.pool != nil {
		s.next = s.pool.orders[w.order].First()
	}
	if s.next != nil {
		s.place = placeOf(w.order, max(s.next.tags[0], s.of.virtual), max(s.next.tags[1], w.queue.virtual), s.next.present)
	}
	w.streams.SetIf(s, s.next != nil)
}

// first returns the next lane and its place; nil after the last.
func (w *queueWalk) first() (*lane, place) {
	for s := w.streams.First(); s != nil; s = w.streams.First() {
		switch {
		case w.full(s.of, s.long, nil), s.pools == nil && w.full(s.of, s.long, s.pool):
			w.streams.Remove(s)
		case w.full(s.of, s.long, s.pool):
			w.advance(s)
		default:
			return s.next, s.place
		}
	}
	return nil, place{}
}

// next goes past the lane that first has returned.
func (w *queueWalk) next() {
	s := w.streams.First()
	if s.pools != nil && s.pool.lanes > 1 {
		others := &laneStream{of: s.of, long: s.long, pool: s.pool, lanes: s.pool.orders[w.order].Walk()}
		others.lanes.Next()
		w.advance(others)
	}
	w.advance(s)
}

// Priority orders actions: the highest goes first. It is, in milliseconds,
//
//	-now + base_priority + ALPHA · (-1 + total / max(1, total - done))
//
// where now is when the action entered the fair queue: older actions first, then the
// tenant's base priority, and a boost for actions with few jobs left (shortest job
// first). The boost is 0 at the start, ALPHA at one half, and
// ALPHA · (total-1) when a single job is left.
func Priority(enteredAt time.Time, basePriority, total, done int64, alpha time.Duration) float64 {
	left := max(1, total-done)
	boost := float64(alpha.Milliseconds()) * (-1 + float64(total)/float64(left))
	return -float64(enteredAt.UnixMilli()) + float64(basePriority) + boost
}

// HeldBounds are what a division may still give to attempts that may be long: in all, and of
// their tenant. Nil is no bound.
type HeldBounds struct{ Free, Tenant *int64 }

// Able reports whether one more such attempt may be held.
func (b *HeldBounds) Able() bool { return b.Free == nil || *b.Free > 0 && *b.Tenant > 0 }

// Take counts one that is.
func (b *HeldBounds) Take() {
	if b.Free != nil {
		*b.Free--
		*b.Tenant--
	}
}
