package api_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// fakeEngine keeps actions in memory. It moves them with bulk's own status
// machine, and leases and fails jobs when a test says so.
type fakeEngine struct {
	mu       sync.Mutex
	actions  []*fakeAction
	settings bulk.Settings
	// schedules are by name.
	schedules map[string]bulk.Schedule
	leased    map[bulk.LeaseID]string
	reports   []engine.Report
	jobs      []engine.NewJob
	leases    []bulk.LeaseRequest
	finish    time.Time
	changed   chan struct{}
	// explanation is what Why returns.
	explanation engine.Explanation
	// changes are the arguments of Change.
	changes []engine.Change
	// fail makes the next calls fail, by method.
	fail map[string]error
	// appends counts the calls of Append; full is the count after which the
	// store is full.
	appends, full int
	// stall makes Append wait for it.
	stall chan struct{}
}

type fakeAction struct {
	bulk.Action
	payloads []string
	letters  []bulk.DeadLetter
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("CET", 3600))

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		settings:  bulk.Settings{Tenants: map[string]bulk.Tenant{}, Targets: map[string]bulk.TargetLimits{}, Types: map[string]bulk.TypeLimits{}},
		schedules: map[string]bulk.Schedule{},
		leased:    map[bulk.LeaseID]string{},
		changed:   make(chan struct{}),
		fail:      map[string]error{},
	}
}

// find needs the lock.
func (e *fakeEngine) find(id string) (*fakeAction, error) {
	for _, a := range e.actions {
		if a.ID == id {
			return a, nil
		}
	}
	return nil, bulk.ErrNotFound
}

// notify needs the lock.
func (e *fakeEngine) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// edit changes an action, as the engine would behind the API.
func (e *fakeEngine) edit(id string, f func(*fakeAction)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.find(id)
	if err != nil {
		panic(err)
	}
	f(a)
	e.notify()
}

func (e *fakeEngine) failure(method string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fail[method]
}

func (e *fakeEngine) Create(_ context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	spec, err := spec.Normalize()
	if err = cmp.Or(err, e.fail["Create"]); err != nil {
		return bulk.Action{}, false, err
	}
	if spec.ID == "" {
		spec.ID = "made-" + strconv.Itoa(len(e.actions))
	}
	if old, err := e.find(spec.ID); err == nil {
		if !old.Spec.Equal(spec) {
			return bulk.Action{}, false, &bulk.ExistsError{ID: spec.ID}
		}
		return old.Action, false, nil
	}
	a := &fakeAction{Action: bulk.Action{Spec: spec, Status: bulk.Created, CreatedAt: start}}
	e.actions = append(e.actions, a)
	return a.Action, true, nil
}

// Enqueue keeps the job. One with the key "again" is a duplicate.
func (e *fakeEngine) Enqueue(_ context.Context, job engine.NewJob) (engine.Enqueued, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, job)
	return engine.Enqueued{Action: "stream", Index: int64(len(e.jobs) - 1), Duplicate: job.Unique == "again"}, e.fail["Enqueue"]
}

func (e *fakeEngine) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	if e.stall != nil {
		select {
		case <-e.stall:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.find(id)
	if err = cmp.Or(err, e.fail["Append"]); err != nil {
		return 0, err
	}
	e.appends++
	switch {
	case e.full > 0 && e.appends > e.full:
		return 0, bulk.ErrFull
	case a.Status != bulk.Created:
		return 0, &bulk.TransitionError{ID: id, From: a.Status, Why: "it is sealed"}
	case offset > a.Received:
		return 0, &bulk.OffsetError{Received: a.Received}
	}
	for _, payload := range payloads[min(a.Received-offset, int64(len(payloads))):] {
		a.payloads = append(a.payloads, string(payload))
		a.Received++
		a.Pending++
	}
	return a.Received, nil
}

func (e *fakeEngine) transition(method, id string, transition bulk.Transition) (bulk.Action, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.find(id)
	if err = cmp.Or(err, e.fail[method]); err != nil {
		return bulk.Action{}, err
	}
	moved, err := a.Apply(transition, start)
	if err != nil && !errors.Is(err, bulk.ErrNoChange) {
		return bulk.Action{}, err
	}
	a.Action = moved
	e.notify()
	return moved, nil
}

func (e *fakeEngine) Seal(_ context.Context, id string, total int64) (bulk.Action, error) {
	return e.transition("Seal", id, bulk.Transition{Kind: bulk.Seal, Total: total})
}

func (e *fakeEngine) Pause(_ context.Context, id string) (bulk.Action, error) {
	return e.transition("Pause", id, bulk.Transition{Kind: bulk.Pause})
}

func (e *fakeEngine) Resume(_ context.Context, id string) (bulk.Action, error) {
	return e.transition("Resume", id, bulk.Transition{Kind: bulk.Resume})
}

func (e *fakeEngine) Cancel(_ context.Context, id string) (bulk.Action, error) {
	return e.transition("Cancel", id, bulk.Transition{Kind: bulk.Cancel})
}

func (e *fakeEngine) Action(_ context.Context, id string) (bulk.Action, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.find(id)
	if err = cmp.Or(err, e.fail["Action"]); err != nil {
		return bulk.Action{}, err
	}
	return a.Action, nil
}

func (e *fakeEngine) Actions(_ context.Context, f bulk.ActionFilter) (list []bulk.Action, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	begun, looked := f.After == "", 0
	for _, a := range e.actions {
		if begun {
			looked++
			if f.Matches(&a.Action) {
				list = append(list, a.Action)
			}
			switch {
			case f.Limit > 0 && len(list) == f.Limit:
				return list, e.fail["Actions"]
			case looked == f.Look:
				return list, &bulk.LookError{After: a.ID}
			}
		}
		begun = begun || a.ID == f.After
	}
	return list, e.fail["Actions"]
}

func (e *fakeEngine) Watch(ctx context.Context, id string, _ time.Duration, f func(bulk.Action) error) error {
	for {
		e.mu.Lock()
		a, err := e.find(id)
		if err = cmp.Or(err, e.fail["Watch"]); err != nil {
			e.mu.Unlock()
			return err
		}
		action, changed := a.Action, e.changed
		e.mu.Unlock()
		if err := f(action); err != nil || action.Status.Final() {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *fakeEngine) EstimatedFinish(string) time.Time { return e.finish }

func (e *fakeEngine) DeadLetters(_ context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.find(id)
	if err = cmp.Or(err, e.fail["DeadLetters"]); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(a.letters, func(d bulk.DeadLetter) bool { return d.Index >= from })
	if at < 0 {
		return nil, nil
	}
	page := slices.Clone(a.letters[at:min(at+limit, len(a.letters))])
	bytes := 0
	for i := range page {
		if bytes += len(page[i].Payload); bytes >= bulk.MaxPageBytes {
			return page[:i+1], nil
		}
	}
	return page, nil
}

// Replay makes a replay of the dead letters that are selected, without them.
func (e *fakeEngine) Replay(ctx context.Context, id string, only bulk.FailureFilter) (bulk.Action, error) {
	now, err := e.Action(ctx, id)
	if err != nil {
		return bulk.Action{}, err
	}
	old, err := e.transition("Replay", id, bulk.Transition{Kind: bulk.Replayed, From: uint64(now.Replays)})
	if err != nil {
		return bulk.Action{}, err
	}
	spec := old.Spec
	spec.ID, spec.ReplayOf, spec.ReplayPart = "", id, &bulk.ReplayPart{FailureFilter: only}
	replay, _, err := e.Create(ctx, spec)
	return replay, err
}

func (e *fakeEngine) Lease(ctx context.Context, request bulk.LeaseRequest, wait time.Duration) ([]bulk.Job, error) {
	e.mu.Lock()
	e.leases = append(e.leases, request)
	err := e.fail["Lease"]
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		e.mu.Lock()
		jobs, changed := e.take(request), e.changed
		e.mu.Unlock()
		if len(jobs) > 0 {
			return jobs, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take leases the pending jobs of dispatched actions. It needs the lock.
func (e *fakeEngine) take(request bulk.LeaseRequest) (jobs []bulk.Job) {
	for number, a := range e.actions {
		for a.Status == bulk.Dispatched && a.Pending > 0 && len(jobs) < request.Max && slices.Contains(request.Types, a.Type) {
			index := a.Received - a.Pending
			lease := bulk.LeaseID{Action: uint64(number), Index: uint32(index), Fence: 1}
			a.Pending--
			a.InFlight++
			e.leased[lease] = "held"
			jobs = append(jobs, bulk.Job{Spec: &a.Spec, Index: index, Payload: []byte(a.payloads[index]), Attempt: 1, Lease: lease, Deadline: start.Add(request.LeaseFor)})
		}
	}
	return jobs
}

func (e *fakeEngine) LeaseKey() bulk.LeaseKey { return leaseKey }

var leaseKey, _ = bulk.NewLeaseKey([]byte("secret"))

// token returns the token of a lease, as the API has it.
func token(lease bulk.LeaseID) string { return leaseKey.Token(lease) }

func (e *fakeEngine) Settle(_ context.Context, reports []engine.Report) (verdicts []bulk.Verdict, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reports = append(e.reports, reports...)
	for _, r := range reports {
		state := e.leased[r.Lease]
		verdict := map[string]bulk.Verdict{"held": bulk.Accepted, "settled": bulk.Duplicate, "expired": bulk.Expired, "": bulk.Unknown}[state]
		if verdict == bulk.Accepted && r.Kind != bulk.Extended {
			e.leased[r.Lease] = "settled"
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts, e.fail["Settle"]
}

func (e *fakeEngine) Settings(context.Context) (bulk.Settings, error) {
	return e.settings, e.failure("Settings")
}

// FoundLoad finds that the target "dead" is down.
func (e *fakeEngine) FoundLoad(target string) engine.FoundLoad {
	if target == "dead" {
		return engine.FoundLoad{Concurrency: 16, DownSince: time.Unix(1e9, 0).UTC()}
	}
	return engine.FoundLoad{}
}

// HeldBack holds back the jobs of the target "dead".
func (e *fakeEngine) HeldBack(a *bulk.Action) int64 {
	if a.Target != nil && a.Target.Name == "dead" {
		return a.Pending
	}
	return 0
}

// counted is the only tenant whose part of the store answers.
const counted = "a/b %"

// StoredOf counts what the tenant counted has stored.
func (e *fakeEngine) StoredOf(_ context.Context, tenants []string) (map[string]bulk.Stored, error) {
	if err := e.failure("StoredOf"); err != nil || tenants[0] != counted {
		return nil, cmp.Or(err, bulk.ErrUnavailable)
	}
	return map[string]bulk.Stored{tenants[0]: {Actions: 1, Jobs: 20, Bytes: 300}}, nil
}

// FoundRate finds 41.5 of every target.
func (e *fakeEngine) FoundRate(context.Context, string) (float64, error) {
	return 41.5, e.failure("FoundRate")
}

func (e *fakeEngine) Set(_ context.Context, change bulk.SettingsChange) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := engine.ValidateSettings(change); err != nil {
		return err
	}
	switch {
	case change.Limits != nil:
		e.settings.Limits = change.Limits
	case change.Tenant != nil:
		e.settings.Tenants[change.Name] = *change.Tenant
	case change.Target != nil:
		e.settings.Targets[change.Name] = *change.Target
	case change.Type != nil:
		e.settings.Types[change.Name] = *change.Type
	}
	return e.fail["Set"]
}
