package storetest

import (
	"fmt"
	"math/big"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// model is the required state of a store after the operations so far, in plain maps and
// slices. The machine tells the model each operation and, where the contract leaves a choice,
// the store's answer.
type model struct {
	config bulk.Config
	// shards is Factory.Shards. Each of several shards decides separately whether a type is
	// idle.
	shards  int
	actions map[string]*modelAction
	order   []string // of creation
	leases  map[bulk.LeaseID]*modelLease
	recent  []*modelLease

	limits map[string]bulk.Limit // of "all", "tenant NAME", "target NAME", "type NAME"
	// keys are the limits by key of tenants, by keyExpression.
	keys map[string]bulk.KeyLimit
	// limited reports whether there ever was a limit.
	limited bool
	// throttled has the targets and limiters that ever throttled: congestion control may
	// limit them.
	throttled map[string]bool

	window int64
	starts map[string]int64 // in the window, by limit
	// asked has the window in which jobs of a type were last requested, or became ready where
	// none was.
	asked  map[string]int64
	events *modelEvents
	// fuzzy is a window in which the store may allow less than the limits, because it was
	// opened in it, or a first limit was set.
	fuzzy int64
}

type modelAction struct {
	bulk.Spec
	status bulk.Status
	paused bool
	takes  bool // jobs: it is an open stream
	jobs   []*modelJob
	number uint64 // 0 until the backlog has shown it
	// last has the latest counts from the store.
	last bulk.Counts
	// entered is when it entered the fair queue, by the store.
	entered time.Time
	// turnedBack counts the jobs that were turned back by our own limits: later jobs may
	// overtake them.
	turnedBack int64
	// returned counts, by reason, the non-ready jobs that Dispatch has returned to the line.
	// Which jobs these are shows when they are leased.
	returned                       [4]int64
	throttles, retries, retriesMax int64
	replayed                       bool // dead letters were deleted
	// ended reports whether the action ended so that the store need not distinguish settled
	// leases.
	ended bool
}

type modelState uint8

const (
	// modelWaits: pending, ready, or turned back by our own limits.
	modelWaits modelState = iota
	// modelAside: non-ready until it is due, or returned since then.
	modelAside
	modelLeased
	modelSucceeded
	modelFailed
	modelCanceled
	modelStates
)

type modelJob struct {
	replayed bool // its dead letter was deleted
	state    modelState
	fresh    bool // never leased
	reason   bulk.NonReadyReason
	lo, hi   time.Time // the range of its due time; hi is zero if there is no bound
	used     int       // attempts
	crashes  int
	lease    *modelLease // the last lease
}

type modelLease struct {
	id       bulk.LeaseID
	action   *modelAction
	job      *modelJob
	deadline time.Time
	local    bool
	// live, settled; if neither, the lease expired or its process crashed.
	live, settled bool
	// fatal reports whether the job ended with the lease without a settlement.
	fatal bool
	// restarted reports whether the store was opened after the settlement.
	restarted bool
	// key names the key that counts it in flight; empty if none does.
	key string
}

// keyExpression is that of the model's limits by key: jobs with an even index have one key, and the
// others the second.
const keyExpression = `int(payload.n) % 2 == 0`

// keyOf names the key of a job, if its tenant has a limit by key.
func (m *model) keyOf(a *modelAction, index int64) string {
	if _, limited := m.keys[a.Tenant]; !limited {
		return ""
	}
	return keyName(index%2 == 0, a.Tenant)
}

func keyName(even bool, tenant string) string { return fmt.Sprintf("key %v of %s", even, tenant) }

// liftKeys ends the limits by key of a tenant. Those that are set later are new: they need not count
// what started before, though a store that was not restarted since then may.
func (m *model) liftKeys(tenant string) {
	delete(m.keys, tenant)
	for _, even := range []bool{true, false} {
		delete(m.starts, keyName(even, tenant))
	}
	for _, l := range m.leases {
		if l.action.Tenant == tenant {
			l.key = ""
		}
	}
}

// ownLimits are the reasons for which our own limits turn jobs back, at any time.
var ownLimits = []bulk.NonReadyReason{bulk.RateLimited, bulk.KeyLimited}

func newModel(config bulk.Config, shards int) *model {
	return &model{
		config: config, shards: shards, actions: map[string]*modelAction{}, leases: map[bulk.LeaseID]*modelLease{},
		limits:  map[string]bulk.Limit{"all": {RequestsPerSecond: max(0, config.RequestsPerSecond)}},
		limited: config.RequestsPerSecond > 0, throttled: map[string]bool{}, keys: map[string]bulk.KeyLimit{},
		starts: map[string]int64{}, asked: map[string]int64{}, events: newModelEvents(), fuzzy: -1,
	}
}

// roll begins the present window.
func (m *model) roll() {
	if index := windowIndex(m.config.Window); index != m.window {
		m.window = index
		clear(m.starts)
	}
}

// limit is one limit that applies to an action.
type limit struct {
	key         string
	rate        float64
	concurrency int64
}

func (m *model) limitOf(key string) limit {
	l := m.limits[key]
	return limit{key, l.RequestsPerSecond, int64(l.Concurrency)}
}

func (m *model) limitsOf(a *modelAction) []limit {
	callee := "type " + a.Type
	if a.Target != nil {
		callee = "target " + a.TargetName()
	}
	return []limit{m.limitOf("all"), m.limitOf("tenant " + a.Tenant), m.limitOf(callee)}
}

// under returns the sum of the latest counts of the actions under a limit. Ready jobs of idle
// types do not count.
func (m *model) under(key string) (ready, inFlight int64) {
	for _, a := range m.actions {
		for _, l := range m.limitsOf(a) {
			if l.key != key {
				continue
			}
			inFlight += a.last.InFlight
			if !m.idle(a.Type) && !m.unsure(a.Type) {
				ready += a.last.Ready
			}
		}
	}
	return ready, inFlight
}

// ask records that workers ask for jobs of types.
func (m *model) ask(types []string) {
	for _, name := range types {
		m.asked[name] = m.window
	}
}

// idle reports whether jobs of a type are ready and no worker asks for them.
func (m *model) idle(jobType string) bool {
	return m.window > m.asked[jobType]+1 && m.readyOf(jobType) > 0
}

// unsure reports whether a type may be idle in one shard and not in another.
func (m *model) unsure(jobType string) bool {
	return m.shards > 1 && m.readyOf(jobType) > 0
}

func (m *model) anyUnsure() bool {
	for _, a := range m.actions {
		if m.unsure(a.Type) {
			return true
		}
	}
	return false
}

// readyOf counts the ready jobs of a type.
func (m *model) readyOf(jobType string) (ready int64) {
	for _, a := range m.actions {
		if a.Type == jobType {
			ready += a.last.Ready
		}
	}
	return ready
}

// left returns how many more jobs a limit admits.
func (m *model) left(l limit) int64 {
	ready, inFlight := m.under(l.key)
	left := bulk.NoLimit
	if l.rate > 0 {
		left = budget(l.rate, m.config.Window, m.window) - m.starts[l.key] - ready
	}
	if l.concurrency > 0 {
		left = min(left, l.concurrency-inFlight-ready)
	}
	return max(0, left)
}

// congests returns the name of what may throttle an action's jobs: their target, or the
// handler of their type.
func (a *modelAction) congests() string {
	if a.Target == nil {
		return "type " + a.Type
	}
	return a.TargetName()
}

func (a *modelAction) open() bool { return a.status == bulk.Running && !a.paused }

func (a *modelAction) mostAttempts(config bulk.Config) int {
	if a.MaxAttempts > 0 {
		return a.MaxAttempts
	}
	return config.MaxAttempts
}

func (a *modelAction) count() (states [modelStates]int64, aside [4]int64) {
	for _, j := range a.jobs {
		states[j.state]++
		if j.state == modelAside {
			aside[j.reason]++
		}
	}
	return states, aside
}

// overtaken counts the jobs before index that were never leased.
func (a *modelAction) overtaken(index int64) (n int64) {
	for _, j := range a.jobs[:index] {
		if j.fresh && j.state == modelWaits {
			n++
		}
	}
	return n
}

// setAside makes a job non-ready.
func (j *modelJob) setAside(reason bulk.NonReadyReason, lo, hi time.Time) {
	j.state, j.reason, j.lo, j.hi = modelAside, reason, lo, hi
}

// accept applies an accepted settlement. It returns true for a released job of an action that
// continues: the store may return it at once or make it non-ready.
func (m *model) accept(l *modelLease, s bulk.Settlement) (released bool) {
	a, j, now := l.action, l.job, time.Now()
	if s.Kind == bulk.Extended {
		l.deadline = now.Add(s.LeaseFor)
		return false
	}
	l.live, l.settled = false, true
	canceled := a.status == bulk.Canceled
	if s.Kind == bulk.Throttled { // the target's answer counts, whatever the action's status
		m.throttled[a.congests()] = true
	}
	switch {
	case s.Kind == bulk.Succeeded:
		j.used++
		j.state = modelSucceeded
	case s.Kind == bulk.FailedForGood:
		j.used++
		j.state = modelFailed
	case canceled:
		j.state = modelCanceled
	case s.Kind == bulk.FailedForNow:
		m.fail(a, j, s.RetryAfter)
	case s.Kind == bulk.Throttled:
		a.throttles++
		j.setAside(bulk.APIThrottled, now.Add(max(m.config.For(a.Type).BackoffBase, s.RetryAfter)-time.Millisecond), time.Time{})
	case s.Kind == bulk.Released && s.RetryAfter > 0:
		j.setAside(bulk.TransientError, now.Add(s.RetryAfter-time.Millisecond), now.Add(s.RetryAfter+time.Millisecond))
	case s.Kind == bulk.Released:
		j.state = modelWaits
		return true
	}
	m.events.add(a.ID, a.told(j)...)
	return false
}

func (m *model) fail(a *modelAction, j *modelJob, retryAfter time.Duration) {
	now := time.Now()
	j.used++
	if j.used >= a.mostAttempts(m.config) {
		j.state = modelFailed
		return
	}
	a.retries++
	a.retriesMax++
	if retryAfter > 0 {
		j.setAside(bulk.TransientError, now.Add(retryAfter-time.Millisecond), now.Add(retryAfter+time.Millisecond))
	} else {
		j.setAside(bulk.TransientError, now, now.Add(m.config.For(a.Type).BackoffCap+time.Millisecond))
	}
}

// expire ends the expired leases. It returns how many jobs went back to the line, and how
// many ended.
func (m *model) expire() (back, ended int64) {
	told := map[string][]string{}
	for _, l := range m.leases {
		if !l.live || l.deadline.After(time.Now()) {
			continue
		}
		a, j := l.action, l.job
		l.live = false
		if l.local {
			j.crashes++
		} else {
			j.used++
		}
		switch {
		case a.status == bulk.Canceled:
			j.state, l.fatal = modelCanceled, true
			ended++
		case l.local && j.crashes >= m.config.MaxCrashes:
			j.state, l.fatal = modelFailed, true
			ended++
		case l.local:
			j.state = modelWaits
			back++
		case j.used >= a.mostAttempts(m.config):
			j.state, l.fatal = modelFailed, true
			ended++
		default:
			j.state = modelWaits
			a.retriesMax++
			back++
		}
		told[a.ID] = append(told[a.ID], a.told(j)...)
	}
	m.events.addAll(told)
	return back, ended
}

// crash ends the leases that end with the process. A due job that was returned to the line
// may be non-ready again: the next Dispatch returns it.
func (m *model) crash() {
	m.roll()
	m.fuzzy = m.window
	for _, a := range m.actions {
		a.returned = [4]int64{}
	}
	told := map[string][]string{}
	for _, l := range m.leases {
		l.restarted = true
		if !l.live || !l.local {
			continue
		}
		a, j := l.action, l.job
		l.live = false
		j.crashes++
		switch {
		case a.status == bulk.Canceled:
			j.state, l.fatal = modelCanceled, true
		case j.crashes >= m.config.MaxCrashes:
			j.state, l.fatal = modelFailed, true
		default:
			j.state = modelWaits
		}
		told[a.ID] = append(told[a.ID], a.told(j)...)
	}
	m.events.addAll(told)
}

// cancel ends every job that is not in flight.
func (a *modelAction) cancel() {
	a.returned, a.ended = [4]int64{}, true
	for _, j := range a.jobs {
		if j.state < modelLeased {
			j.state = modelCanceled
		}
	}
}

// allowed reports whether a verdict is allowed for a settlement of a lease.
func (l *modelLease) allowed(v bulk.Verdict) bool {
	switch {
	case l == nil:
		return v == bulk.Unknown || v == bulk.Expired
	case l.live && l.deadline.After(time.Now()):
		return v == bulk.Accepted
	case l.live:
		return v == bulk.Accepted || v == bulk.Expired
	case v == bulk.Accepted:
		return false
	case l.action.ended:
		return true
	case l.settled && l.job.lease == l && !l.restarted:
		return v == bulk.Duplicate
	case l.settled:
		return v == bulk.Duplicate || v == bulk.Expired
	case l.fatal:
		return v == bulk.Duplicate || v == bulk.Expired
	default:
		return v == bulk.Expired
	}
}

// budget returns how many attempts a rate allows in the window of an index. It computes in
// exact fractions, deliberately unlike bulk.Budget: floor((i+1)·rate·window) −
// floor(i·rate·window).
func budget(rate float64, window time.Duration, index int64) int64 {
	if rate <= 0 {
		return bulk.NoLimit
	}
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(rate, 'f', -1, 64))
	exact.Mul(exact, big.NewRat(int64(window), int64(time.Second)))
	until := func(windows int64) int64 {
		total := new(big.Rat).Mul(exact, new(big.Rat).SetInt64(windows))
		return new(big.Int).Div(total.Num(), total.Denom()).Int64()
	}
	return until(index+1) - until(index)
}

func windowIndex(window time.Duration) int64 { return time.Now().UnixNano() / int64(window) }
