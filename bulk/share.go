package bulk

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// lowEvery is how often, in grants of a line, the low class goes first: it keeps
// a tenth of its tenant's share.
const lowEvery = 10

// Free is how many jobs may enter the ready queue: in total, and of each type.
type Free struct {
	Total int64
	Types map[string]int64
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
// of the scarce resource decide. Equal tags are ordered by class, then by [Priority]. Within a line, class
// and then priority order the actions, but every tenth grant is for the low class.
//
// Of a backlog with More, the grants are the first ones that the whole backlog would get, as
// far as it has what they follow from.
func Divide(b Backlog, free Free, alpha time.Duration) []Grant {
	grants, _ := divide(b, free, alpha)
	return grants
}

// reach is how far a division came: which types were granted jobs, and which could have been
// granted more, perhaps, had no actions been left out; and how many lines were seen, and how
// many of them were granted jobs.
type reach struct {
	granted, short map[string]bool
	seen, served   int
}

// divide is Divide, and returns its reach.
func divide(b Backlog, free Free, alpha time.Duration) ([]Grant, reach) {
	capacity := min(free.Total, b.Left)
	if capacity <= 0 || len(b.Lines) == 0 {
		return nil, reach{}
	}
	d := division{
		backlog: &b,
		byLimit: capacity < demand(b, free),
		free:    bounds(free.Types),
		targets: bounds(b.Targets),
		tenants: map[string]*share{},
		reach:   reach{granted: map[string]bool{}, short: map[string]bool{}},
	}
	for i := range b.Lines {
		d.add(&b.Lines[i], alpha)
	}
	heap.Init(&d)
	return d.serve(capacity), d.reach
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
func demand(b Backlog, free Free) (jobs int64) {
	waiting := map[string]int64{}
	if b.More {
		for name, state := range b.Types {
			waiting[name] = state.Waiting
		}
	} else {
		for _, line := range b.Lines {
			for _, w := range line.Waiting {
				waiting[line.Type] += w.Jobs
			}
		}
	}
	for name, n := range waiting {
		jobs += min(n, free.Types[name])
	}
	return jobs
}

// division is the state of one Divide: a heap of the lines that can be served, the next
// one on top, and the remainder of each bound.
type division struct {
	backlog *Backlog
	byLimit bool
	lines   []*lineShare
	free    map[string]*int64
	targets map[string]*int64
	tenants map[string]*share
	reach
}

// share is common to the lines of one tenant: its tag, and the remainder of its limit.
type share struct {
	tag  float64
	left int64
}

// lineShare is one line with its tags. Its position in the heap, place, is updated only
// when the line is on top: while others are served, a line only moves back.
type lineShare struct {
	*Line
	share      *share
	free       *int64
	typeTag    float64
	step       float64
	slot       int64
	served     bool
	queue, low []*ranked // by class and priority; low has those of class Low
	place
}

// place orders lines: by two tags, the deciding one first, and the action that is served
// next.
type place struct {
	first, second float64
	head          *ranked
}

// ranked is an action with its order in the line, and the remainder of the bounds of its
// limiter and of its target; nil if there is none.
type ranked struct {
	Waiting
	class           int
	priority        float64
	limiter, target *int64
}

func (r *ranked) able() bool {
	return r.Jobs > 0 && (r.limiter == nil || *r.limiter > 0) && (r.target == nil || *r.target > 0) && r.heldBounds.able()
}

func classRank(c Class) int { return [...]int{Normal: 1, High: 0, Low: 2}[c] }

func (d *division) add(line *Line, alpha time.Duration) {
	own := d.tenants[line.Tenant]
	if own == nil || line.Rest {
		own = &share{tag: max(line.Taken, d.backlog.Virtual), left: line.Left}
	}
	if !line.Rest { // the place of those left out does not depend on what the tenant gets
		d.tenants[line.Tenant] = own
		d.seen++
	}
	t := &lineShare{
		Line: line, share: own, free: d.free[line.Type],
		typeTag: max(line.TypeTaken, d.backlog.Types[line.Type].Virtual),
		step:    1 / line.Settings.Weight, slot: line.Granted,
	}
	var limiters map[string]*int64
	for _, w := range line.Waiting {
		r := &ranked{Waiting: w, class: classRank(w.Class), target: d.targets[w.Target]}
		if line.Rest { // those left out have other bounds, which are not known here
			r.heldBounds = heldBounds{}
		}
		r.priority = Priority(w.EnteredAt, line.Settings.BasePriority, w.Total, w.Done, alpha)
		t.queue = append(t.queue, r)
		if w.Left != NoLimit {
			if limiters == nil {
				limiters = map[string]*int64{}
			}
			if limiters[w.Target] == nil {
				limiters[w.Target] = &w.Left
			}
			r.limiter = limiters[w.Target]
		}
	}
	slices.SortStableFunc(t.queue, func(a, b *ranked) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.priority, a.priority))
	})
	if at := slices.IndexFunc(t.queue, func(r *ranked) bool { return r.Class == Low }); at > 0 {
		t.low = t.queue[at:]
	}
	if t.place = d.placeOf(t); t.head != nil {
		d.lines = append(d.lines, t)
	}
}

// placeOf returns the present place of a line; its head is nil if it cannot be served.
func (d *division) placeOf(t *lineShare) place {
	if d.byLimit {
		return place{t.share.tag, t.typeTag, t.pick()}
	}
	return place{t.typeTag, t.share.tag, t.pick()}
}

// pick returns the action of a line that is served next, or nil if none can be.
func (t *lineShare) pick() *ranked {
	if t.free == nil || *t.free <= 0 || t.share.left <= 0 {
		return nil
	}
	if t.slot%lowEvery == lowEvery-1 {
		if r := firstAble(&t.low); r != nil {
			return r
		}
	}
	return firstAble(&t.queue)
}

// firstAble returns the first action that can be served. It drops the others: within one
// division, bounds only decrease.
func firstAble(queue *[]*ranked) *ranked {
	for ; len(*queue) > 0; *queue = (*queue)[1:] {
		if r := (*queue)[0]; r.able() {
			return r
		}
	}
	return nil
}

func (d *division) serve(capacity int64) (grants []Grant) {
	for capacity > 0 && d.Len() > 0 {
		t := d.lines[0]
		now := d.placeOf(t)
		if now.head == nil {
			heap.Pop(d)
			continue
		}
		if now != t.place {
			t.place = now
			heap.Fix(d, 0)
			continue
		}
		if t.head.Rest {
			if d.leftOut(t) {
				return grants
			}
			continue
		}
		d.granted[t.Type] = true
		if !t.served {
			t.served = true
			d.served++
		}
		if n := len(grants); n > 0 && grants[n-1].Number == t.head.Number {
			grants[n-1].Jobs++
		} else {
			grants = append(grants, Grant{Number: t.head.Number, Jobs: 1, Cost: t.head.Cost})
		}
		capacity--
		t.take()
	}
	return grants
}

// leftOut ends the division among the lines of a type whose next action was left out; among
// all, if they share the limit. But a type of which all that is there is held back keeps no
// other from being served.
func (d *division) leftOut(t *lineShare) (ends bool) {
	d.short[t.Type] = true
	ends = d.byLimit && (d.granted[t.Type] || slices.ContainsFunc(d.lines, func(o *lineShare) bool {
		return o.Type == t.Type && !o.Rest && o.pick() != nil
	}))
	*t.free = 0
	return ends
}

// take charges one job of the line's head to all its bounds.
func (t *lineShare) take() {
	t.head.Jobs--
	t.slot++
	t.typeTag += t.step * cmp.Or(t.head.Cost, 1)
	t.share.tag += t.step
	t.share.left--
	*t.free--
	t.head.heldBounds.take()
	if t.head.limiter != nil {
		*t.head.limiter--
	}
	if t.head.target != nil {
		*t.head.target--
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d *division) Len() int { return len(d.lines) }

func (d *division) Less(i, j int) bool {
	a, b := d.lines[i], d.lines[j]
	switch {
	case a.first != b.first:
		return a.first < b.first
	case a.second != b.second:
		return a.second < b.second
	case a.head.class != b.head.class:
		return a.head.class < b.head.class
	case a.head.priority != b.head.priority:
		return a.head.priority > b.head.priority
	case a.Tenant != b.Tenant:
		return a.Tenant < b.Tenant
	default:
		return a.Type < b.Type
	}
}

func (d *division) Swap(i, j int) { d.lines[i], d.lines[j] = d.lines[j], d.lines[i] }

// Push is not used: lines are only added before heap.Init.
func (d *division) Push(line any) { d.lines = append(d.lines, line.(*lineShare)) }

// Pop removes the last line.
func (d *division) Pop() any {
	last := d.lines[len(d.lines)-1]
	d.lines = d.lines[:len(d.lines)-1]
	return last
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
