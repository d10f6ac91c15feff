package bulk

import "github.com/sluice-project/sluice/internal/ranks"

// turns are those of the keys of a line, in one class: in each round a key that waits is served
// one job. It is start-time fair queueing, of jobs of equal size and keys of equal weight: virtual
// time is the round, and the tag of a key that waits is the round or the next one, which is what
// `had` says. A key that begins to wait has its turn in the present round, unless it had it before
// it left. A key that waits and cannot be served, as a limit of its target is used up, does not
// delay the others, and gains nothing.
type turns struct {
	due int          // keys that wait and have not had their turn
	had []*queuedKey // those that had it; gone of them do not wait
	// gone is at most maxGone: then the round ends.
	gone int
	// passed counts the rounds that have ended since the last Advance.
	passed int64
}

// maxGone bounds the keys of a line that do not wait and are kept, in each class.
const maxGone = 10_000

// queuedKey is a key of a line, in one class: it waits, or had its turn.
type queuedKey struct {
	keyName
	lanes []*laneKey // where it waits
	had   bool       // its turn of the present round
	// charged are the jobs that were admitted since the last Advance. Changed reports whether it
	// is in FairQueue.changed.
	charged int64
	changed bool
	// served is that of a division: see precedence.
	served   int64
	division uint64
}

type keyName struct {
	line  *queuedLine
	class int
	name  string
}

// laneKey is a key that waits in a lane, in one class.
type laneKey struct {
	key     *queuedKey
	lane    *lane
	actions ranks.Heap[*Queued]
	had     bool // that of key, when it got its place
	at      int  // in lane.queues
	slot    int  // in key.lanes, from 1
}

type keyPlace struct {
	key  *queuedKey
	lane *lane
}

// before orders the actions of a key.
func (q *Queued) before(o *Queued) bool {
	return precedenceOf(0, 0, q, false).compare(precedenceOf(0, 0, o, false)) < 0
}

// precedence returns that of the first action.
func (k *laneKey) precedence(lowsTurn bool) precedence {
	turns := int64(0)
	if k.had {
		turns = 1
	}
	return precedenceOf(k.key.class, turns, k.actions.First(), lowsTurn)
}

func (k *queuedKey) turns() *turns { return &k.line.turns[k.class] }

// count counts the key among those that are due, or are gone; with -1, no longer.
func (k *queuedKey) count(n int) {
	switch t := k.turns(); {
	case len(k.lanes) > 0 && !k.had:
		t.due += n
	case len(k.lanes) == 0 && k.had:
		t.gone += n
	}
}

func (k *queuedKey) turn(had bool) {
	k.count(-1)
	k.had = had
	k.count(1)
}

func (x *FairQueue) keyOf(line *queuedLine, q *Queued) *queuedKey {
	if q.in != nil {
		return q.in.key
	}
	name := keyName{line, ClassRank(q.Class), q.Key}
	k := x.keys[name]
	if k == nil {
		k = &queuedKey{keyName: name}
		x.keys[name] = k
	}
	return k
}

// enter returns the place of an action's key in a lane.
func (x *FairQueue) enter(l *lane, q *Queued) *laneKey {
	of := keyPlace{x.keyOf(l.line, q), l}
	k := x.places[of]
	if k == nil {
		k = &laneKey{key: of.key, lane: l, actions: ranks.New((*Queued).before, func(q *Queued) *int { return &q.at })}
		x.places[of] = k
	}
	return k
}

// charge counts n jobs of an action that were admitted while some of its line waited.
func (x *FairQueue) charge(line *queuedLine, q *Queued, n int64) {
	if n > 0 {
		k := x.keyOf(line, q)
		k.charged += n
		x.change(k)
	}
}

func (x *FairQueue) change(k *queuedKey) {
	if !k.changed {
		k.changed = true
		x.changed = append(x.changed, k)
	}
}

// settle puts a key where it belongs in its lane after its actions have changed: nowhere if it has
// none there.
func (x *FairQueue) settle(k *laneKey) {
	key, waits := k.key, k.actions.Len() > 0
	if waits != (k.slot > 0) {
		key.count(-1)
		if waits {
			key.lanes = append(key.lanes, k)
			k.slot, k.had = len(key.lanes), key.had
		} else {
			last := key.lanes[len(key.lanes)-1]
			key.lanes[k.slot-1], last.slot, k.slot = last, k.slot, 0
			key.lanes[len(key.lanes)-1] = nil
			key.lanes = key.lanes[:len(key.lanes)-1]
			delete(x.places, keyPlace{key, k.lane})
			x.change(key)
		}
		key.count(1)
	}
	k.lane.queues[key.class].SetIf(k, waits)
	x.move(k.lane)
}

// takeTurns charges keys what was admitted since the last Advance, in whatever order it was told:
// so many turns a key had since the round that was the present one then. The key that had most of
// them says which is the present one now.
func (x *FairQueue) takeTurns() {
	changed := x.changed
	for _, k := range changed {
		if t := k.turns(); k.charged > 0 {
			if k.had {
				k.charged++
			}
			t.passed = max(t.passed, k.charged-1)
		}
	}
	for _, k := range changed {
		if k.turns().passed > 0 {
			x.endRound(k.turns())
		}
	}
	for _, k := range changed {
		if t := k.turns(); !k.had && k.charged > t.passed {
			k.turn(true)
			t.had = append(t.had, k)
		}
		k.charged = 0
	}
	for _, k := range changed {
		t := k.turns()
		if t.passed = 0; t.due == 0 || t.gone > maxGone {
			x.endRound(t)
		}
	}
	for _, k := range x.changed {
		x.replace(k)
	}
	clear(x.changed)
	x.changed = x.changed[:0]
}

// endRound begins a round, in which every key has its turn again.
func (x *FairQueue) endRound(t *turns) {
	for _, k := range t.had {
		k.turn(false)
		x.change(k)
	}
	clear(t.had)
	t.had = t.had[:0]
}

// replace puts a key where it belongs in its lanes. One that does not wait, and has not had its turn,
// is like one that is not known.
func (x *FairQueue) replace(k *queuedKey) {
	k.changed = false
	if len(k.lanes) == 0 && !k.had {
		delete(x.keys, k.keyName)
	}
	for _, l := range k.lanes {
		if l.had != k.had {
			l.had = k.had
			l.lane.queues[k.class].Set(l)
			x.move(l.lane)
		}
	}
}
