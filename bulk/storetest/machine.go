package storetest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// longVariable, at 1, makes the model run longer.
const longVariable = "SLUICE_LONG"

// checkModel runs random operations against a store and the model.
func checkModel(t *testing.T, factory Factory) {
	rounds := cmp.Or(factory.Rounds, 2)
	if os.Getenv(longVariable) == "1" {
		rounds = cmp.Or(factory.LongRounds, 20)
	}
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
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

// rapidTB lets what wants a testing.TB fail a rapid test.
type rapidTB struct {
	testing.TB
	rapid *rapid.T
}

func (t rapidTB) Cleanup(f func())             { t.rapid.Cleanup(f) }
func (t rapidTB) Error(args ...any)            { t.rapid.Error(args...) }
func (t rapidTB) Errorf(f string, args ...any) { t.rapid.Errorf(f, args...) }
func (t rapidTB) Fail()                        { t.rapid.Fail() }
func (t rapidTB) FailNow()                     { t.rapid.FailNow() }
func (t rapidTB) Failed() bool                 { return t.rapid.Failed() }
func (t rapidTB) Fatal(args ...any)            { t.rapid.Fatal(args...) }
func (t rapidTB) Fatalf(f string, args ...any) { t.rapid.Fatalf(f, args...) }
func (t rapidTB) Helper()                      { t.rapid.Helper() }
func (t rapidTB) Log(args ...any)              { t.rapid.Log(args...) }
func (t rapidTB) Logf(f string, args ...any)   { t.rapid.Logf(f, args...) }

// machine makes operations on a store, and tells the model of them.
//
// Times are on a grid, so that nothing is due at the very moment the store is
// asked: the clock moves by multiples of 10 ms, and what is given a time gets an
// odd multiple of 5 ms.
type machine struct {
	*kit
	rt    *rapid.T
	model *model
	steps int
}

func newMachine(t *testing.T, rt *rapid.T, factory Factory) *machine {
	config := bulk.Config{
		RequestsPerSecond: rapid.SampledFrom([]float64{-1, 20, 7.5}).Draw(rt, "rate"),
		Window:            rapid.SampledFrom([]time.Duration{time.Second, 100 * time.Millisecond}).Draw(rt, "window"),
		MaxAttempts:       3, MaxCrashes: 2, BackoffBase: time.Second, BackoffCap: 4 * time.Second,
	}.WithDefaults()
	m := &machine{kit: &kit{t: rapidTB{TB: t, rapid: rt}, factory: factory}, rt: rt, model: newModel(config, factory.Shards)}
	m.open(config)
	m.keepEvents(1 << 40)
	for range 2 {
		m.create(rt)
		m.launch(m.model.actions[m.model.order[len(m.model.order)-1]], rapid.IntRange(1, 25).Draw(rt, "jobs"))
	}
	return m
}

// operations are what the machine does, by name. What happens more often in life
// has more names.
func (m *machine) operations() map[string]func(*rapid.T) {
	operations := map[string]func(*rapid.T){"": m.compare}
	for name, f := range map[string]func(*rapid.T){
		"create": m.create, "append": m.append, "run": m.runAction, "move": m.randomMove, "pause or resume": m.pauseOrResume,
		"cancel": m.cancel, "end": m.endAction, "admit": m.admit, "lease": m.leaseSome, "work 1": m.work, "work 2": m.work,
		"work 3": m.work, "work 4": m.work, "settle 1": m.settleSome, "settle 2": m.settleSome, "settle 3": m.settleSome,
		"settle 4": m.settleSome, "settle well": m.settleWell, "dispatch 1": m.dispatchAll, "dispatch 2": m.dispatchAll,
		"advance 1": m.advanceSome, "advance 2": m.advanceSome, "limit": m.setLimit, "results": m.readResults, "restart": m.restart,
		"events 1": m.readEvents, "events 2": m.readEvents,
	} {
		operations[name] = func(t *rapid.T) { m.steps++; m.rt = t; m.model.roll(); f(t) }
	}
	return operations
}

// work is what happens most: what waits is admitted, leased and, often, settled.
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
	m.model.events.tellMoved(bulk.Action{}, m.kit.create(s))
	m.model.actions[s.ID] = &modelAction{Spec: s, status: bulk.Created}
	m.model.order = append(m.model.order, s.ID)
}

// append uploads a chunk that begins anywhere.
func (m *machine) append(t *rapid.T) {
	a := m.pick(func(a *modelAction) bool { return len(a.jobs) < 40 })
	if a == nil {
		return
	}
	received := int64(len(a.jobs))
	offset := rapid.Int64Range(max(0, received-3), received+1).Draw(t, "offset")
	var payloads [][]byte
	for i := range rapid.Int64Range(0, 12).Draw(t, "jobs") {
		payloads = append(payloads, payload(a.ID, offset+i))
	}
	got, err := m.store.Append(ctx, a.ID, offset, payloads)
	switch {
	case a.status != bulk.Created:
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
	m.move(a, bulk.Move{Kind: bulk.Seal, Total: int64(len(a.jobs))})
	m.move(a, bulk.Move{Kind: bulk.Start})
}

func (m *machine) runAction(t *rapid.T) {
	if a := m.pick(func(a *modelAction) bool { return a.status == bulk.Created }); a != nil {
		m.launch(a, rapid.IntRange(1, 25).Draw(t, "jobs"))
	}
}

// move makes a move, which must do what Action.Apply says.
func (m *machine) move(a *modelAction, move bulk.Move) {
	m.t.Helper()
	was := m.action(a.ID)
	m.tryMove(a.ID, move, fmt.Sprintf("move %d of %s, which is %s", move.Kind, a.ID, a.status))
	before := a.status
	now, err := m.store.Action(ctx, a.ID)
	if err != nil { // forgotten: tryMove has checked it
		m.forgotten(a)
		return
	}
	m.model.events.tellMoved(was, now)
	a.status, a.paused = now.Status, now.Paused
	if a.status == bulk.Canceled && before != bulk.Canceled {
		a.cancel()
	}
	a.ended = a.ended || a.status.Final()
	if move.Kind == bulk.Replayed && !now.FinishedAt.IsZero() {
		a.replayed = max(a.replayed, move.Total)
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

func (m *machine) randomMove(t *rapid.T) {
	a := m.pick(func(*modelAction) bool { return true })
	if a == nil {
		return
	}
	move := bulk.Move{Kind: bulk.MoveKind(rapid.IntRange(int(bulk.Seal), int(bulk.Forget)).Draw(t, "move"))}
	switch move.Kind {
	case bulk.Cancel:
		return // has an operation of its own
	case bulk.Seal:
		move.Total = int64(len(a.jobs)) + rapid.Int64Range(0, 1).Draw(t, "off by")
	case bulk.Replayed:
		move.Total = rapid.Int64Range(0, int64(len(a.jobs))).Draw(t, "below")
	case bulk.Reduce:
		move.Reduced = a.last.Batches
	}
	m.move(a, move)
}

func (m *machine) pauseOrResume(*rapid.T) {
	if a := m.pick(func(a *modelAction) bool { return a.status == bulk.Running }); a != nil {
		kind := bulk.Pause
		if a.paused {
			kind = bulk.Resume
		}
		m.move(a, bulk.Move{Kind: kind})
	}
}

func (m *machine) cancel(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
		return
	}
	if a := m.pick(func(a *modelAction) bool { return a.status != bulk.Created }); a != nil {
		m.move(a, bulk.Move{Kind: bulk.Cancel})
	}
}

// endAction takes an action whose jobs are done to its end.
func (m *machine) endAction(*rapid.T) {
	if a := m.pick(func(a *modelAction) bool {
		return a.status == bulk.Running && a.last.Done() == int64(len(a.jobs))
	}); a != nil {
		m.move(a, bulk.Move{Kind: bulk.Aggregate})
		m.checkResults(a)
		m.move(a, bulk.Move{Kind: bulk.Reduce, Reduced: a.last.Batches})
		m.move(a, bulk.Move{Kind: bulk.Complete})
	}
}

func (m *machine) advanceSome(t *rapid.T) {
	steps := rapid.SampledFrom([]int{1, 3, 10, 10, 25, 40, 100, 100, 220, 450, 3100}).Draw(t, "10 ms")
	m.advance(time.Duration(steps) * 10 * time.Millisecond)
}

func (m *machine) setLimit(t *rapid.T) {
	rate := rapid.SampledFrom([]float64{0, 0, 2.5, 5, 10, 30}).Draw(t, "rate")
	m.model.limited = true
	switch rapid.IntRange(0, 2).Draw(t, "limit of") {
	case 0:
		m.limitAll(rate)
		m.model.global = rate
	case 1:
		name := rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "tenant")
		m.model.introduce("tenant "+name, m.model.tenants[name] == 0)
		m.limitTenant(name, rate)
		m.model.tenants[name] = rate
	case 2:
		name, concurrency := rapid.SampledFrom([]string{"api", "web"}).Draw(t, "target"), rapid.IntRange(0, 4).Draw(t, "concurrency")
		m.model.introduce("target "+name, m.model.targets[name].RequestsPerSecond == 0)
		m.limitTarget(name, rate, concurrency)
		m.model.targets[name] = bulk.TargetLimits{RequestsPerSecond: rate, Concurrency: concurrency}
	}
}

// introduce notes a limit where there was none: the store need not have counted
// what was started before.
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
	m.model.crash()
	if m.factory.Shards > 1 {
		m.model.events.read = nil // another shard's may come first
	}
}
