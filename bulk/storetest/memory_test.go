package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// memory is a store of maps and slices. It forgets everything with the process
// and copies nothing cleverly: it is here to try the suite on, and is as plain as
// the contract allows. Fault names one mistake it makes on purpose, so that the
// suite can be seen to find it.
type memory struct {
	mu       sync.Mutex
	fault    string
	config   bulk.Config
	closed   bool
	settings bulk.Settings
	number   uint64
	actions  []*memAction
	ready    []*memJob
	turn     int
	window   int64
	started  map[string]int64
	finished map[string]int64
	tags     map[string]float64 // of tenants, and of lines as tenant NUL type
	virtual  map[string]float64 // of the limit (empty), and of types
	rate     map[string]bool    // limiters that were throttled
	asked    map[string]int64   // the window in which a type was last asked for
	autos    map[string]*memAuto
	events   memEvents

	schedules map[string][]byte // JSON, by name
	revision  int64
}

type memAction struct {
	bulk.Action
	number   uint64
	jobs     []*memJob
	line     []*memJob
	outcomes [][]bulk.Outcome
	dead     []bulk.DeadLetter
}

type memState uint8

const (
	memPending memState = iota
	memReady
	memNonReady
	memInFlight
	memSucceeded
	memFailed
	memCanceled
)

type memJob struct {
	action   *memAction
	index    int64
	payload  []byte
	state    memState
	reason   bulk.NonReadyReason
	due      time.Time // or the deadline, in flight
	local    bool
	attempts int
	crashes  int
	fence    uint32
	settled  map[uint32]bool
}

func newMemory(config bulk.Config, fault string) *memory {
	return &memory{
		config: config, fault: fault,
		settings: bulk.Settings{
			Tenants: map[string]bulk.Tenant{}, Targets: map[string]bulk.TargetLimits{}, Types: map[string]bulk.TypeLimits{},
		},
		started: map[string]int64{}, finished: map[string]int64{},
		tags: map[string]float64{}, virtual: map[string]float64{}, rate: map[string]bool{}, asked: map[string]int64{}, autos: map[string]*memAuto{},
		schedules: map[string][]byte{},
	}
}

func (m *memory) is(fault string) bool { return m.fault == fault }

// put moves a job to a state, and keeps the counts.
func (j *memJob) put(state memState) {
	*j.counter()--
	j.state = state
	*j.counter()++
}

func (j *memJob) counter() *int64 {
	c := &j.action.Counts
	return []*int64{&c.Pending, &c.Ready, &c.NonReady[j.reason], &c.InFlight, &c.Succeeded, &c.Failed, &c.Canceled}[j.state]
}

func (j *memJob) nonReady(reason bulk.NonReadyReason, due time.Time) {
	*j.counter()--
	j.state, j.reason, j.due = memNonReady, reason, due
	*j.counter()++
}

func (m *memory) lock() (func(), error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, bulk.ErrClosed
	}
	if index := time.Now().UnixNano() / int64(m.config.Window); index != m.window {
		m.findRates(index)
		m.window = index
		clear(m.started)
	}
	return m.mu.Unlock, nil
}

func (m *memory) find(id string) (*memAction, error) {
	for _, a := range m.actions {
		if a.ID == id {
			return a, nil
		}
	}
	return nil, bulk.ErrNotFound
}

func (m *memory) byNumber(number uint64) *memAction {
	for _, a := range m.actions {
		if a.number == number {
			return a
		}
	}
	return nil
}

func (m *memory) Create(_ context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	unlock, err := m.lock()
	if err != nil {
		return bulk.Action{}, false, err
	}
	defer unlock()
	if a, err := m.find(spec.ID); err == nil {
		if !a.Spec.Equal(spec) && !m.is("create overwrites") {
			return bulk.Action{}, false, &bulk.ExistsError{ID: spec.ID}
		}
		return a.Action, false, nil
	}
	if err := m.full(); err != nil {
		return bulk.Action{}, false, err
	}
	m.number++
	a := &memAction{number: m.number, Action: bulk.Action{Spec: spec, Status: bulk.Created, CreatedAt: time.Now()}}
	m.actions = append(m.actions, a)
	m.announce(bulk.ActionCreated, &a.Action)
	return a.Action, true, nil
}

func (m *memory) Append(_ context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	unlock, err := m.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	a, err := m.find(id)
	if err != nil {
		return 0, err
	}
	if a.Status != bulk.Created && !m.is("append after seal") {
		return 0, &bulk.MoveError{ID: id, From: a.Status, Why: "it is sealed"}
	}
	if offset > a.Received {
		return 0, &bulk.OffsetError{Received: a.Received}
	}
	if err := m.full(); err != nil && a.JobEvents() {
		return a.Received, err
	}
	skip := a.Received - offset
	if m.is("overlap appended") {
		skip = 0
	}
	for _, payload := range payloads[min(skip, int64(len(payloads))):] {
		if !m.is("payload not copied") {
			payload = slices.Clone(payload)
		}
		j := &memJob{action: a, index: a.Received, payload: payload, settled: map[uint32]bool{}}
		a.jobs, a.line = append(a.jobs, j), append(a.line, j)
		a.Received++
		a.Pending++
	}
	return a.Received, nil
}

func (m *memory) Move(_ context.Context, id string, move bulk.Move) (bulk.Action, error) {
	unlock, err := m.lock()
	if err != nil {
		return bulk.Action{}, err
	}
	defer unlock()
	a, err := m.find(id)
	if err != nil {
		return bulk.Action{}, err
	}
	next, err := a.Apply(move, time.Now())
	if err != nil {
		return a.Action, err
	}
	if err := m.full(); err != nil && move.Kind == bulk.Resume {
		return a.Action, err
	}
	before := a.Action
	a.Action = next
	defer func() { m.announce(move.EventType(&before, &a.Action), &a.Action) }()
	switch move.Kind {
	case bulk.Pause:
		m.unready(a)
	case bulk.Cancel:
		m.cancel(a)
	case bulk.Replayed:
		a.dead = slices.DeleteFunc(a.dead, func(d bulk.DeadLetter) bool { return d.Index < move.Total })
	case bulk.Forget:
		m.ready = slices.DeleteFunc(m.ready, func(j *memJob) bool { return j.action == a })
		m.actions = slices.DeleteFunc(m.actions, func(other *memAction) bool { return other == a })
	}
	return a.Action, nil
}

// unready returns an action's ready jobs to its line.
func (m *memory) unready(a *memAction) {
	if m.is("pause leaves ready") {
		return
	}
	var back []*memJob
	m.ready = slices.DeleteFunc(m.ready, func(j *memJob) bool {
		if j.action == a {
			j.put(memPending)
			back = append(back, j)
		}
		return j.action == a
	})
	a.line = append(back, a.line...)
}

func (m *memory) cancel(a *memAction) {
	if m.is("cancel keeps non-ready") {
		return
	}
	m.unready(a)
	a.line = nil
	for _, j := range a.jobs {
		if j.state <= memNonReady {
			j.put(memCanceled)
		}
	}
}

func (m *memory) Action(_ context.Context, id string) (bulk.Action, error) {
	unlock, err := m.lock()
	if err != nil {
		return bulk.Action{}, err
	}
	defer unlock()
	a, err := m.find(id)
	if err != nil {
		return bulk.Action{}, err
	}
	return a.Action, nil
}

func (m *memory) Actions(_ context.Context, f bulk.ActionFilter) (found []bulk.Action, err error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	past := f.After == ""
	for _, a := range m.actions {
		unfinished := !a.Status.Final() || a.Status == bulk.Canceled && a.FinishedAt.IsZero()
		if m.is("unfinished forgets canceled") {
			unfinished = !a.Status.Final()
		}
		if past && (f.Tenant == "" || f.Tenant == a.Tenant) && (f.Status == "" || f.Status == a.Status) &&
			(unfinished || !f.Unfinished) && (f.Number == 0 || f.Number == a.number) &&
			(f.Limit == 0 || len(found) < f.Limit) {
			found = append(found, a.Action)
		}
		past = past || a.ID == f.After
	}
	return found, nil
}

func (m *memory) Outcomes(_ context.Context, id string, after uint64) ([]bulk.Outcome, uint64, error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, after, err
	}
	defer unlock()
	a, err := m.find(id)
	if err != nil || after >= a.Batches {
		return nil, after, err
	}
	return a.outcomes[after], after + 1, nil
}

func (m *memory) DeadLetters(_ context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := m.find(id)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(a.dead, func(d bulk.DeadLetter) bool { return d.Index >= from })
	if at < 0 {
		return nil, nil
	}
	return slices.Clone(a.dead[at:min(at+limit, len(a.dead))]), nil
}

func (m *memory) Settings(context.Context) (bulk.Settings, error) {
	unlock, err := m.lock()
	if err != nil {
		return bulk.Settings{}, err
	}
	defer unlock()
	var copied bulk.Settings
	raw, err := json.Marshal(m.settings)
	return copied, errors.Join(err, json.Unmarshal(raw, &copied))
}

func (m *memory) Set(_ context.Context, c bulk.SettingsChange) error {
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	switch {
	case c.Limits != nil:
		m.settings.Limits = c.Limits
	case c.Tenant != nil:
		m.settings.Tenants[c.Name] = *c.Tenant
	case c.Target != nil:
		m.settings.Targets[c.Name] = *c.Target
		m.setAuto(c.Name, c.Target.Auto)
	case c.Type != nil:
		m.settings.Types[c.Name] = *c.Type
	}
	return nil
}

func (m *memory) Close() error {
	unlock, err := m.lock()
	if err != nil {
		return nil
	}
	defer unlock()
	m.closed = true
	return nil
}

// reopen is what a process that opens the same data finds.
func (m *memory) reopen() *memory {
	m.Close()
	next := newMemory(m.config, m.fault)
	next.settings, next.number, next.actions = m.settings, m.number, m.actions
	next.reopenSchedules(m)
	for name, target := range m.settings.Targets {
		next.setAuto(name, target.Auto && !m.is("reopen forgets auto"))
	}
	if next.events = m.events; m.is("reopen forgets events") {
		next.events.waiting = nil
	}
	defer func() { next.events.most = 0 }()
	if !m.is("reopen forgets starts") {
		next.window, next.started = m.window, maps.Clone(m.started)
	}
	for _, a := range slices.Backward(next.actions) {
		m.unready(a)
		for _, j := range slices.Backward(a.jobs) {
			if j.state == memInFlight && (j.local || m.is("reopen ends remote leases")) {
				next.crashed(j)
			}
		}
	}
	return next
}
