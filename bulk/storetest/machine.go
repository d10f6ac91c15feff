package storetest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

// longVariable is the environment variable that, at 1, makes the model run longer.
const longVariable = "SLUICE_LONG"

// checkModel runs random operations against a store and the model.
func checkModel(t *testing.T, factory Factory) { runModel(t, factory, rapid.SyncTest) }

// runModel calls bubble for each of them: rapid.SyncTest needs a real test.
func runModel(t testing.TB, factory Factory, bubble func(*rapid.T, func(*rapid.T))) {
	rounds := cmp.Or(factory.Rounds, 2)
	if os.Getenv(longVariable) == "1" {
		rounds = cmp.Or(factory.LongRounds, 20)
	}
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		bubble(rt, func(rt *rapid.T) {
			m := newMachine(t, rt, factory)
			operations := m.operations()
			for range rounds {
				rt.Repeat(operations)
			}
			steps += m.steps
			m.finish()
		})
	})
	t.Logf("%d steps", steps)
}

// machine makes operations on a store and on the model.
//
// Times are on a grid, so that nothing is due at the moment of a call: the clock advances by
// multiples of 10 ms, and due times are odd multiples of 5 ms.
type machine struct {
	*kit
	rt    *rapid.T
	model *model
	steps int
	// follower has the unfinished actions as Changes has told them.
	follower map[string]bulk.Unfinished
}

func newMachine(t testing.TB, rt *rapid.T, factory Factory) *machine {
	config := bulk.Config{
		RequestsPerSecond: rapid.SampledFrom([]float64{-1, 20, 7.5}).Draw(rt, "rate"),
		Window:            rapid.SampledFrom([]time.Duration{time.Second, 100 * time.Millisecond}).Draw(rt, "window"),
		MaxAttempts:       3, MaxCrashes: 2, BackoffBase: time.Second, BackoffCap: 4 * time.Second,
	}.WithDefaults()
	m := &machine{kit: &kit{t: rapidtest.TB(t, rt), factory: factory}, rt: rt, model: newModel(config, factory.Shards)}
	m.open(config)
	m.keepEvents(1 << 40)
	for range 2 {
		m.create(rt)
		m.launch(m.model.actions[m.model.order[len(m.model.order)-1]], rapid.IntRange(1, 25).Draw(rt, "jobs"))
	}
	return m
}

// operations returns the machine's operations by name. Frequent operations have several
// names.
func (m *machine) operations() map[string]func(*rapid.T) {
	operations := map[string]func(*rapid.T){"": m.compare}
	for name, f := range map[string]func(*rapid.T){
		"create": m.create, "append": m.append, "run": m.runAction, "transition": m.randomTransition, "pause or resume": m.pauseOrResume,
		"cancel": m.cancel, "end": m.endAction, "admit": m.admit, "lease": m.leaseSome, "work 1": m.work, "work 2": m.work,
		"work 3": m.work, "work 4": m.work, "settle 1": m.settleSome, "settle 2": m.settleSome, "settle 3": m.settleSome,
		"settle 4": m.settleSome, "settle well": m.settleWell, "dispatch 1": m.dispatchAll, "dispatch 2": m.dispatchAll,
		"advance 1": m.advanceSome, "advance 2": m.advanceSome, "limit": m.setLimit, "keys": m.setKeys, "results": m.readResults, "restart": m.restart,
		"events 1": m.readEvents, "events 2": m.readEvents,
	} {
		operations[name] = func(t *rapid.T) { m.steps++; m.rt = t; m.model.roll(); f(t) }
	}
	return operations
}

// work does the most frequent operations: it admits, leases and often settles jobs.
func (m *machine) work(t *rapid.T) {
	m.admitEverything(t)
	m.compare(t)
	m.leaseSome(t)
}

// pick draws one of the actions for which ok is true; nil if there is none.
func (m *machine) pick(ok func(a *modelAction) bool) *modelAction {
	var ids []string
	for _, id := range m.model.order {
		if ok(m.model.actions[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return m.model.actions[rapid.SampledFrom(ids).Draw(m.rt, "action")]
}

func (m *machine) create(t *rapid.T) {
	if len(m.model.order) >= 10 {
		return
	}
	s := spec(fmt.Sprint("a", m.steps, ".", len(m.model.order)), rapid.SampledFrom([]string{"t1", "t2", "t3"}).Draw(t, "tenant"))
	if target := rapid.SampledFrom([]string{"", "", "api", "web"}).Draw(t, "target"); target != "" {
		s = targeted(s.ID, s.Tenant, target)
	}
	s.MaxAttempts = rapid.IntRange(0, 2).Draw(t, "max attempts")
	if rapid.Bool().Draw(t, "aggregate") {
		s.Aggregate = []string{"count"}
	}
	if rapid.Bool().Draw(t, "job events") {
		s.Events = []string{bulk.JobEvents}
	}
	s.Stream = rapid.IntRange(0, 3).Draw(t, "stream") == 0
	made := m.kit.create(s)
	m.model.events.tellTransition(bulk.Action{}, made)
	m.model.actions[s.ID] = &modelAction{Spec: s, status: bulk.Created}
	if s.Stream {
		m.model.actions[s.ID].status, m.model.actions[s.ID].takes = bulk.Running, true
	}
	m.model.order = append(m.model.order, s.ID)
}

// append uploads a chunk that begins at a random offset, or at the end.
func (m *machine) append(t *rapid.T) {
	a := m.pick(func(a *modelAction) bool { return len(a.jobs) < 40 })
	if a == nil {
		return
	}
	received := int64(len(a.jobs))
	offset := rapid.Int64Range(max(0, received-3), received+1).Draw(t, "offset")
	atEnd := rapid.Bool().Draw(t, "at the end")
	if atEnd {
		offset = received
	}
	var payloads [][]byte
	for i := range rapid.Int64Range(0, 12).Draw(t, "jobs") {
		payloads = append(payloads, payload(a.ID, offset+i))
	}
	argument := offset
	if atEnd {
		argument = bulk.AtEnd
	}
	got, err := m.store.Append(ctx, a.ID, argument, payloads)
	switch {
	case a.status != bulk.Created && !a.takes:
		m.check(err != nil, "Append to a %s action was accepted", a.status)
	case offset > received:
		m.check(err != nil, "Append beyond what was received was accepted")
	default:
		m.must(err)
		want := max(received, offset+int64(len(payloads)))
		m.check(got == want, "Append made %d jobs, want %d", got, want)
		a.grow(want)
	}
}

func (a *modelAction) grow(received int64) {
	for int64(len(a.jobs)) < received {
		a.jobs = append(a.jobs, &modelJob{fresh: true})
	}
}

// launch uploads jobs to a new action, seals and starts it.
func (m *machine) launch(a *modelAction, jobs int) {
	m.upload(a.ID, jobs)
	a.grow(int64(len(a.jobs) + jobs))
	m.transition(a, bulk.Transition{Kind: bulk.Seal, Total: int64(len(a.jobs))})
	m.transition(a, bulk.Transition{Kind: bulk.Start})
}

func (m *machine) runAction(t *rapid.T) {
	if a := m.pick(func(a *modelAction) bool { return a.status == bulk.Created || a.takes }); a != nil {
		m.launch(a, rapid.IntRange(1, 25).Draw(t, "jobs"))
	}
}

// transition makes a transition, which must do what Action.Apply returns.
func (m *machine) transition(a *modelAction, transition bulk.Transition) {
	m.t.Helper()
	was := m.action(a.ID)
	m.tryTransition(a.ID, transition, fmt.Sprintf("transition %d of %s, which is %s", transition.Kind, a.ID, a.status))
	before := a.status
	now, err := m.store.Action(ctx, a.ID)
	if err != nil { // forgotten: tryTransition has checked it
		m.forgotten(a)
		return
	}
	m.model.events.tellTransition(was, now)
	a.status, a.paused, a.takes = now.Status, now.Paused, now.Open
	if a.status == bulk.Canceled && before != bulk.Canceled {
		a.cancel()
	}
	a.ended = a.ended || a.status.Final()
	if transition.Kind == bulk.DropLetters && was.Replayable() {
		for _, index := range transition.Letters {
			a.replayed, a.jobs[index].replayed = true, a.jobs[index].replayed || a.jobs[index].state == modelFailed
		}
	}
	if now.Replays > was.Replays {
		a.replayed = true
		for _, j := range a.jobs[:transition.Total] {
			j.replayed = j.replayed || j.state == modelFailed
		}
	}
}

func (m *machine) forgotten(a *modelAction) {
	delete(m.model.actions, a.ID)
	m.model.order = slices.DeleteFunc(m.model.order, func(id string) bool { return id == a.ID })
	for id, l := range m.model.leases {
		if l.action == a {
			delete(m.model.leases, id)
		}
	}
	m.model.recent = slices.DeleteFunc(m.model.recent, func(l *modelLease) bool { return l.action == a })
}

func (m *machine) randomTransition(t *rapid.T) {
	a := m.pick(func(*modelAction) bool { return true })
	if a == nil {
		return
	}
	transition := bulk.Transition{Kind: bulk.TransitionKind(rapid.IntRange(int(bulk.Seal), int(bulk.Forget)).Draw(t, "transition"))}
	switch transition.Kind {
	case bulk.Cancel:
		return // it has an operation of its own
	case bulk.Seal:
		transition.Total = rapid.SampledFrom([]int64{int64(len(a.jobs)), int64(len(a.jobs)) + 1, bulk.AtEnd}).Draw(t, "total")
	case bulk.Replayed:
		transition.Total = rapid.Int64Range(0, int64(len(a.jobs))).Draw(t, "below")
		transition.From = uint64(m.action(a.ID).Replays + rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "replays"))
	case bulk.DropLetters:
		if jobs := len(a.jobs); jobs > 0 {
			transition.Letters = rapid.SliceOfN(rapid.Int64Range(0, int64(jobs)-1), 0, 3).Draw(t, "letters")
		}
	case bulk.Reduce:
		transition.Reduced = a.last.Batches
	}
	m.transition(a, transition)
}

func (m *machine) pauseOrResume(*rapid.T) {
	if a := m.pick(func(a *modelAction) bool { return a.status == bulk.Running }); a != nil {
		kind := bulk.Pause
		if a.paused {
			kind = bulk.Resume
		}
		m.transition(a, bulk.Transition{Kind: kind})
	}
}

func (m *machine) cancel(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
		return
	}
	if a := m.pick(func(a *modelAction) bool { return a.status != bulk.Created }); a != nil {
		m.transition(a, bulk.Transition{Kind: bulk.Cancel})
	}
}

// endAction ends an action whose jobs are done.
func (m *machine) endAction(*rapid.T) {
	if a := m.pick(func(a *modelAction) bool {
		return a.status == bulk.Running && !a.takes && a.last.Done() == int64(len(a.jobs))
	}); a != nil {
		m.transition(a, bulk.Transition{Kind: bulk.Aggregate})
		m.checkResults(a)
		m.transition(a, bulk.Transition{Kind: bulk.Reduce, Reduced: a.last.Batches})
		m.transition(a, bulk.Transition{Kind: bulk.Complete})
	}
}

func (m *machine) advanceSome(t *rapid.T) {
	steps := rapid.SampledFrom([]int{1, 3, 10, 10, 25, 40, 100, 100, 220, 450, 3100}).Draw(t, "10 ms")
	m.advance(time.Duration(steps) * 10 * time.Millisecond)
}

func (m *machine) setLimit(t *rapid.T) {
	rate := rapid.SampledFrom([]float64{0, 0, 2.5, 5, 10, 30}).Draw(t, "rate")
	m.model.limited = true
	of := rapid.SampledFrom(limited).Draw(t, "limit of")
	l := bulk.Limit{RequestsPerSecond: rate, Concurrency: rapid.SampledFrom([]int{0, 0, 1, 2, 3, 4, 9}).Draw(t, "concurrency")}
	m.model.introduce(of, of != "all" && m.model.limits[of].RequestsPerSecond == 0)
	m.model.limits[of] = l
	if tenant, is := strings.CutPrefix(of, "tenant "); is {
		m.setTenant(tenant)
	} else {
		m.limit(of, l)
	}
}

func (m *machine) setKeys(t *rapid.T) {
	tenant := rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "keys of")
	l := bulk.KeyLimit{
		RequestsPerSecond: rapid.SampledFrom([]float64{0, 2.5, 10}).Draw(t, "rate"), Concurrency: rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "concurrency"),
	}
	m.model.limited = true
	if m.model.keys[tenant] = l; l == (bulk.KeyLimit{}) {
		m.model.liftKeys(tenant)
	}
	m.setTenant(tenant)
}

// setTenant sets the limits of a tenant.
func (m *machine) setTenant(name string) {
	of := m.model.limitOf("tenant " + name)
	tenant := bulk.Tenant{RequestsPerSecond: of.rate, Concurrency: int(of.concurrency)}
	if l, limited := m.model.keys[name]; limited {
		tenant.Keys = map[string]bulk.KeyLimit{keyExpression: l}
	}
	m.set(bulk.SettingsChange{Name: name, Tenant: &tenant})
}

// limited is what the machine limits.
var limited = []string{"all", "tenant t1", "tenant t2", "target api", "target web", "type echo"}

// introduce records a limit where there was none: the store need not have counted earlier
// attempts.
func (m *model) introduce(key string, fresh bool) {
	if fresh {
		m.fuzzy = m.window
		m.starts[key] = 0
	}
}

func (m *machine) restart(t *rapid.T) {
	switch crash := rapid.Bool().Draw(t, "crash"); {
	case crash && m.factory.Crash != nil:
		m.crash()
	case m.factory.Reopen != nil:
		m.reopen()
	default:
		return
	}
	m.follower = nil
	m.model.crash()
	if m.factory.Shards > 1 {
		m.model.events.read = nil // events of another shard may come first
	}
}
