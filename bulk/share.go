package bulk

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// lowTurn is how often, in grants of a line, the low class goes first: it keeps
// a tenth of its tenant's share.
const lowTurn = 10

// Room is how many jobs may enter the ready queue: in all, and for each type.
type Room struct {
	Total int64
	Types map[string]int64
}

// Divide decides who may pass: it divides the smaller of what is left of the
// window's limit and the room in the ready queue among the tenants that wait, by
// weight, and returns grants in the order in which jobs should become ready.
//
// It is start-time fair queueing (Goyal, Vin, Cheng 1996): each tenant has a
// tag, what it has taken divided by its weight; the lowest tag is served next,
// and virtual time is the tag last served. A tenant that could not be served
// (idle, or at a limit of its own) comes back at virtual time, so that it can
// neither claim the past nor be held to it. Hence
//
//   - between two tenants that wait all the time, what they took since both
//     began to never differs by more than one job divided by weight (the lesser
//     of the two), over any number of windows: with more tenants than requests
//     they take turns;
//   - what division or an idle tenant leaves over goes to those who can use it,
//     and no request of a window is lost.
//
// What is scarce may be the limit, which all tenants share, or the workers of
// one type, which only its lines share; each has tags of its own, and those of
// the scarce one decide. Equal tags are ordered by class, then by [Priority].
// Within a line, class and then priority order the actions, but every tenth
// grant is for the low class.
func Divide(b Backlog, room Room, alpha time.Duration) []Grant {
	capacity := min(room.Total, b.Left)
	if capacity <= 0 || len(b.Lines) == 0 {
		return nil
	}
	d := division{
		backlog: &b,
		byLimit: capacity < demand(b, room),
		room:    bounds(room.Types),
		targets: bounds(b.Targets),
		tenants: map[string]*share{},
	}
	for i := range b.Lines {
		d.add(&b.Lines[i], alpha)
	}
	heap.Init(&d)
	return d.serve(capacity)
}

// bounds copies what is left of each bound, to be counted down.
func bounds(left map[string]int64) map[string]*int64 {
	copies := make(map[string]*int64, len(left))
	for name, n := range left {
		copies[name] = &n
	}
	return copies
}

// demand is how much would pass if only the types' room bounded it.
func demand(b Backlog, room Room) (jobs int64) {
	waiting := map[string]int64{}
	for _, line := range b.Lines {
		for _, w := range line.Waiting {
			waiting[line.Type] += w.Jobs
		}
	}
	for name, n := range waiting {
		jobs += min(n, room.Types[name])
	}
	return jobs
}

// division is the state of one Divide: a heap of the lines that can be served,
// the one to be served next on top, and what is left of each bound.
type division struct {
	backlog *Backlog
	byLimit bool
	lines   []*turn
	room    map[string]*int64
	targets map[string]*int64
	tenants map[string]*share
}

// share is what the lines of one tenant have in common: its tag, and what its
// own limit still allows.
type share struct {
	tag  float64
	left int64
}

// turn is one line with its tags, as the division advances them. Its place in
// the heap is that of place; it is found anew when the line is on top, as a line
// only ever moves back while others are served.
type turn struct {
	*Line
	share      *share
	room       *int64
	typeTag    float64
	step       float64
	slot       int64
	queue, low []*ranked // by class and priority; low has those of class Low
	place
}

// place is what lines are ordered by: two tags, the deciding one first, and the
// action that is served next.
type place struct {
	first, second float64
	head          *ranked
}

// ranked is an action with its order in the line, and what is left of the bounds
// of its limiter and of its target; nil where there is none.
type ranked struct {
	Waiting
	class           int
	priority        float64
	limiter, target *int64
}

func (r *ranked) able() bool {
	return r.Jobs > 0 && (r.limiter == nil || *r.limiter > 0) && (r.target == nil || *r.target > 0)
}

func classRank(c Class) int { return [...]int{Normal: 1, High: 0, Low: 2}[c] }

func (d *division) add(line *Line, alpha time.Duration) {
	if d.tenants[line.Tenant] == nil {
		d.tenants[line.Tenant] = &share{tag: max(line.Taken, d.backlog.Virtual), left: line.Left}
	}
	t := &turn{
		Line: line, share: d.tenants[line.Tenant], room: d.room[line.Type],
		typeTag: max(line.TypeTaken, d.backlog.Types[line.Type].Virtual),
		step:    1 / line.Settings.Weight, slot: line.Granted,
	}
	limiters := map[string]*int64{}
	for _, w := range line.Waiting {
		r := &ranked{Waiting: w, class: classRank(w.Class), target: d.targets[w.Target]}
		r.priority = Priority(w.EnteredAt, line.Settings.BasePriority, w.Total, w.Done, alpha)
		t.queue = append(t.queue, r)
		if w.Left != NoLimit {
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

// placeOf is where a line stands now; its head is nil if it cannot be served.
func (d *division) placeOf(t *turn) place {
	if d.byLimit {
		return place{t.share.tag, t.typeTag, t.pick()}
	}
	return place{t.typeTag, t.share.tag, t.pick()}
}

// pick returns the action of a line to be served next, or nil if none can be.
func (t *turn) pick() *ranked {
	if t.room == nil || *t.room <= 0 || t.share.left <= 0 {
		return nil
	}
	if t.slot%lowTurn == lowTurn-1 {
		if r := firstAble(&t.low); r != nil {
			return r
		}
	}
	return firstAble(&t.queue)
}

// firstAble returns the first action that can be served. What is used up, or
// held back by a bound, is dropped: within one division, bounds only fall.
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
		if n := len(grants); n > 0 && grants[n-1].Number == t.head.Number {
			grants[n-1].Jobs++
		} else {
			grants = append(grants, Grant{Number: t.head.Number, Jobs: 1})
		}
		capacity--
		t.take()
	}
	return grants
}

// take charges one job of the line's head to every bound that it stands under.
func (t *turn) take() {
	t.head.Jobs--
	t.slot++
	t.typeTag += t.step
	t.share.tag += t.step
	t.share.left--
	*t.room--
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
func (d *division) Push(line any) { d.lines = append(d.lines, line.(*turn)) }

// Pop removes the last line.
func (d *division) Pop() any {
	last := d.lines[len(d.lines)-1]
	d.lines = d.lines[:len(d.lines)-1]
	return last
}
