package pebblestore

import (
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/keys"
	"github.com/sluice-project/sluice/internal/ranks"
)

// keyed counts the attempts of a tenant's jobs that have one key, and has the jobs that wait for it.
// A job comes here once it was about to start: its payload, and so its key, is not known before. It
// returns to its action's line when there is a place for it, which is kept for it for a while:
// otherwise jobs that come later would take it. The rules are those of redisstore/lua/keys.lua.
type keyed struct {
	of      bulk.JobKey
	tenant  *tenant
	counter                  // of it: limit, window, started, inFlight
	line    ranks.Heap[*job] // by job.at, when a job came
	// debt is what was started beyond the window's budget: the windows that follow pay it.
	debt int64
	// awake counts the jobs that places are kept for, until then: at most bulk.KeyKept since there was
	// none. Kept is what they are charged.
	awake, kept int64
	until       time.Time
	// at is when Dispatch looks at it next, and place its place in Store.looks.
	at    time.Time
	place int
}

// hold is a key that counts a job in flight, and what the attempt was charged there by its cost.
type hold struct {
	key  *keyed
	cost int64
}

// mostWindows bounds the windows in which a debt is paid: see Limit.NextBudget.
const mostWindows = 1_000_000

func newLooks() ranks.Heap[*keyed] {
	return ranks.New(func(k, o *keyed) bool { return k.at.Before(o.at) }, func(k *keyed) *int { return &k.place })
}

// keyedOf returns what counts for a key of a tenant: a new one is kept once it counts anything.
func keyedOf(t *tenant, of bulk.JobKey) *keyed {
	k := t.keyed[of]
	if k == nil {
		k = &keyed{of: of, tenant: t, line: newTimeline()}
		k.limit = keyLimit(t, of)
	}
	return k
}

func (k *keyed) keep() {
	if k.tenant.keyed == nil {
		k.tenant.keyed = map[bulk.JobKey]*keyed{}
	}
	k.tenant.keyed[k.of] = k
}

func keyLimit(t *tenant, of bulk.JobKey) bulk.Limit {
	l := t.settings.Keys[of.Expression]
	return l.Limit()
}

// full reports whether a key has all the jobs in flight that it may have, with so many more.
func (k *keyed) full(more int64) bool {
	most := int64(k.limit.Concurrency)
	return most > 0 && k.inFlight+more >= most
}

// able reports whether one more job may start, besides so many others, which are charged so much.
func (s *Store) able(k *keyed, awake, kept int64, now time.Time) bool {
	s.rollKey(k, now)
	return !k.full(awake) && k.started+kept < s.budget(&k.counter)
}

// rollKey begins the present window of a key, in which it pays what the windows since the last one
// have not.
func (s *Store) rollKey(k *keyed, now time.Time) {
	before, debt := k.window, k.debt
	if s.roll(&k.counter, now); k.window == before {
		return
	}
	if windows := k.window - before; debt > 0 && windows > 0 && windows < mostWindows {
		debt -= k.limit.Budgets(s.config.Window, before+1, windows-1)
		k.started = max(0, debt)
	}
	k.debt = max(0, k.started-k.limit.Budget(s.config.Window, k.window))
}

// chargeKey counts n more in the window of a key.
func (s *Store) chargeKey(k *keyed, n int64, now time.Time) {
	s.rollKey(k, now)
	k.started = max(0, k.started+n)
	k.debt = max(0, min(k.debt+n, k.started-k.limit.Budget(s.config.Window, k.window)))
}

// waitsFor returns the first of a job's keys that allows it no attempt now; nil if there is none. A
// job that comes first goes behind those that wait. One that has waited takes any place that is free,
// of whatever key: so it waits again only if other jobs have started in the meantime.
func (s *Store) waitsFor(j *job, uses []bulk.KeyUse, now time.Time) (k *keyed, charge int64) {
	for _, use := range uses {
		k := keyedOf(j.action.line.tenant, use.JobKey)
		if j.key != nil && s.able(k, 0, 0, now) || j.key == nil && k.line.Len() == 0 && s.able(k, k.awake, k.kept, now) {
			continue
		}
		return k, use.Charge()
	}
	return nil, 0
}

// waitFor makes a job that was ready wait for a key, in the order in which jobs came there first.
func (s *Store) waitFor(j *job, k *keyed, charge int64, now time.Time) {
	if j.key != k {
		j.at = now
	}
	s.giveUp(j, now)
	t := j.action.line.tenant
	j.phase, j.reason, j.key, j.charge = nonReady, reasonKeyLimited, k, charge
	k.line.Set(j)
	k.keep()
	t.aside++
	s.count(j, 1)
	s.look(k, now)
}

// giveUp gives up the place that is kept for a job.
func (s *Store) giveUp(j *job, now time.Time) {
	if k := j.key; k != nil {
		j.key = nil
		k.awake, k.kept = max(0, k.awake-1), max(0, k.kept-j.charge)
		s.look(k, now)
	}
}

// holdKeys counts a job in flight against its keys; if it starts, against their rates too.
func (s *Store) holdKeys(j *job, uses []bulk.KeyUse, starts bool, now time.Time) {
	for _, use := range uses {
		k := keyedOf(j.action.line.tenant, use.JobKey)
		k.keep()
		k.inFlight++
		if starts {
			s.chargeKey(k, use.Charge(), now)
		}
		s.holds[j] = append(s.holds[j], hold{k, use.Cost})
		s.look(k, now)
	}
	s.giveUp(j, now)
}

// letGo reverses holdKeys when a job has left flight: the next ones that wait for its keys return.
func (s *Store) letGo(j *job, now time.Time) {
	held := s.holds[j]
	delete(s.holds, j)
	for _, h := range held {
		h.key.inFlight--
		s.rouse(h.key, 1, now)
	}
}

// settleCost charges the keys of a job in flight what its attempt has cost, instead of what it was
// charged before.
func (s *Store) settleCost(j *job, cost int64, now time.Time) {
	for _, h := range s.holds[j] {
		if h.cost > 0 && cost > 0 {
			s.chargeKey(h.key, bulk.BoundCost(cost)-h.cost, now)
		}
	}
}

// rouse returns up to most jobs that wait for a key to their lines, as far as the key allows. A place
// is kept for each that can start.
func (s *Store) rouse(k *keyed, most int, now time.Time) (roused int) {
	if !now.Before(k.until) {
		k.awake, k.kept = 0, 0
	}
	for j := k.line.First(); j != nil && roused < most && s.able(k, k.awake, k.kept, now); j = k.line.First() {
		s.takeUp(j)
		s.goBack(j)
		if roused++; j.action.open() {
			if k.awake == 0 { // later ones do not put off the end of a place whose job does not come
				k.until = now.Add(bulk.KeyKept)
			}
			j.key, k.awake, k.kept = k, k.awake+1, k.kept+j.charge
		}
	}
	s.look(k, now)
	return roused
}

// look notes when Dispatch looks at a key again; never, if only the end of an attempt can change
// anything. A key without jobs is forgotten, once its window is over.
func (s *Store) look(k *keyed, now time.Time) {
	s.rollKey(k, now)
	switch {
	case k.line.Len() > 0 && s.able(k, k.awake, k.kept, now):
		k.at = now
	case k.line.Len() > 0 && !k.full(k.awake):
		k.at = s.renews(k)
	case k.inFlight == 0 && k.awake == 0 && k.line.Len() == 0 && k.started == 0:
		k.at = time.Time{}
		if k.tenant.keyed[k.of] == k { // it may have been forgotten before
			delete(k.tenant.keyed, k.of)
		}
	case k.inFlight == 0 && k.awake == 0 && k.line.Len() == 0:
		k.at = s.renews(k)
		if later := now.Add(s.config.Window); k.at.Before(later) {
			k.at = later
		}
	default:
		k.at = time.Time{}
	}
	if k.awake > 0 && (k.at.IsZero() || k.until.Before(k.at)) {
		k.at = k.until
	}
	if k.at.IsZero() {
		s.looks.Remove(k)
	} else {
		s.looks.Set(k)
	}
}

// renews returns when the next window begins that allows an attempt.
func (s *Store) renews(k *keyed) time.Time {
	return bulk.WindowStart(k.limit.NextBudget(s.config.Window, k.window, k.debt+1), k.limit.Window(s.config.Window))
}

// lookAtKeys returns jobs whose keys allow them an attempt again, at most so many.
func (s *Store) lookAtKeys(most int, now time.Time) (moved int) {
	for k := s.looks.First(); moved < most && k != nil && !k.at.After(now); k = s.looks.First() {
		moved += s.rouse(k, most-moved, now)
	}
	return moved
}

// adoptKeys applies the limits by key of a tenant. Jobs in flight hold what they held before; a limit
// that is new counts those that start from now on.
func (s *Store) adoptKeys(t *tenant, now time.Time) {
	t.keys, _ = keys.Compile(t.settings.Keys) // they were valid when they were set
	for of, k := range t.keyed {
		k.limit = keyLimit(t, of)
		s.look(k, now)
	}
}

// holdAgain counts a job that was in flight when the store was closed against its keys.
func (s *Store) holdAgain(j *job) error {
	t := j.action.line.tenant
	if t.keys == nil {
		return nil
	}
	payload, err := s.pages.payload(j.action.number, j.index)
	if err == nil {
		s.holdKeys(j, t.keys.Of(j.action.spec, payload), false, s.now())
	}
	return err
}

// leftOfTenant returns how many more jobs a tenant admits now: none while too many wait for keys.
func (s *Store) leftOfTenant(t *tenant, now time.Time) int64 {
	if t.aside >= bulk.MaxKeyLimited {
		return 0
	}
	return s.left(&t.counter, now)
}
