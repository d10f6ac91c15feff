package bulk

import (
	"cmp"
	"container/heap"
	"math"
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
//   - between two tenants that wait all the time, what they took never differs
//     by more than one job divided by weight, over any span and any number of
//     windows: with more tenants than requests they take turns;
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
		room:    room.Types,
		targets: b.Targets,
		tenants: map[string]int64{},
	}
	for i := range b.Lines {
		d.add(&b.Lines[i], alpha)
	}
	heap.Init(&d)
	return d.serve(capacity)
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
	room    map[string]int64
	targets map[string]int64
	tenants map[string]int64
}

// turn is one line with its tags, as the division advances them.
type turn struct {
	*Line
	step          float64
	first, second float64
	slot          int64
	queue, low    []*ranked // by class and priority; low has those of class Low
	limiters      map[string]int64
	head          *ranked
}

type ranked struct {
	Waiting
	class    int
	priority float64
}

func classRank(c Class) int { return [...]int{Normal: 1, High: 0, Low: 2}[c] }

func (d *division) add(line *Line, alpha time.Duration) {
	t := &turn{Line: line, step: 1 / line.Settings.Weight}
	tenantTag := max(line.Taken, d.backlog.Virtual)
	typeTag := max(line.TypeTaken, d.backlog.Types[line.Type].Virtual)
	t.first, t.second = typeTag, tenantTag
	if d.byLimit {
		t.first, t.second = tenantTag, typeTag
	}
	t.slot = int64(math.Round(line.TypeTaken * line.Settings.Weight))
	d.tenants[line.Tenant] = line.Left
	for _, w := range line.Waiting {
		r := &ranked{Waiting: w, class: classRank(w.Class)}
		r.priority = Priority(w.EnteredAt, line.Settings.BasePriority, w.Total, w.Done, alpha)
		t.queue = append(t.queue, r)
		if w.Left != NoLimit {
			if t.limiters == nil {
				t.limiters = map[string]int64{}
			}
			t.limiters[w.Target] = w.Left
		}
	}
	slices.SortStableFunc(t.queue, func(a, b *ranked) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.priority, a.priority))
	})
	if at := slices.IndexFunc(t.queue, func(r *ranked) bool { return r.Class == Low }); at > 0 {
		t.low = t.queue[at:]
	}
	if t.head = d.pick(t); t.head != nil {
		d.lines = append(d.lines, t)
	}
}

// pick returns the action of a line to be served next, or nil if none can be.
func (d *division) pick(t *turn) *ranked {
	if d.room[t.Type] <= 0 || d.tenants[t.Tenant] <= 0 {
		return nil
	}
	if t.slot%lowTurn == lowTurn-1 {
		if r := d.firstAble(t, &t.low); r != nil {
			return r
		}
	}
	return d.firstAble(t, &t.queue)
}

// firstAble returns the first action that can be served. What is used up is
// dropped from the front; what a bound holds back is passed over.
func (d *division) firstAble(t *turn, queue *[]*ranked) *ranked {
	for len(*queue) > 0 && (*queue)[0].Jobs == 0 {
		*queue = (*queue)[1:]
	}
	for _, r := range *queue {
		if r.Jobs == 0 {
			continue
		}
		if left, limited := t.limiters[r.Target]; limited && left <= 0 {
			continue
		}
		if left, limited := d.targets[r.Target]; limited && left <= 0 {
			continue
		}
		return r
	}
	return nil
}

func (d *division) serve(capacity int64) (grants []Grant) {
	for capacity > 0 && d.Len() > 0 {
		t := d.lines[0]
		// Bounds that lines share may have been used up since it was picked.
		if t.head = d.pick(t); t.head == nil {
			heap.Pop(d)
			continue
		}
		if n := len(grants); n > 0 && grants[n-1].Number == t.head.Number {
			grants[n-1].Jobs++
		} else {
			grants = append(grants, Grant{Number: t.head.Number, Jobs: 1})
		}
		capacity--
		d.take(t)
		heap.Fix(d, 0)
	}
	return grants
}

// take charges one job of the line's head to every bound that it stands under.
func (d *division) take(t *turn) {
	t.head.Jobs--
	t.slot++
	t.first += t.step
	t.second += t.step
	d.room[t.Type]--
	d.tenants[t.Tenant]--
	if _, limited := t.limiters[t.head.Target]; limited {
		t.limiters[t.head.Target]--
	}
	if _, limited := d.targets[t.head.Target]; limited {
		d.targets[t.head.Target]--
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d *division) Len() int { return len(d.lines) }

func (d *division) Less(i, j int) bool {
	a, b := d.lines[i], d.lines[j]
	return cmp.Or(
		cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second),
		cmp.Compare(a.head.class, b.head.class), cmp.Compare(b.head.priority, a.head.priority),
		cmp.Compare(a.Tenant, b.Tenant),
	) < 0
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
