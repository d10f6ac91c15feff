package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// lookMost is about the maximum of changed things that one look returns.
	lookMost = 2000
	// sideBySide is the number of shards that are asked concurrently.
	sideBySide = 16
)

// mirror is an instance's copy of the state of all shards. Each look fetches only what has
// changed since the last one.
type mirror struct {
	mu     sync.Mutex
	shards []shardMirror
	// latest is the latest time of a shard that was seen, and seen the local time at that
	// moment.
	latest, seen time.Time
	congestion   congestion
	autos        autos

	// fair has the jobs that wait, and held those that are ready or in flight, as of requeue; with
	// the base priorities that tenants have.
	fair       *bulk.FairQueue
	held       map[bulk.Holder]int64
	priorities map[string]int64
}

// shardMirror is the copy of one shard.
type shardMirror struct {
	upTo      int64
	run       string // run id of the server
	silent    bool   // the last look failed: all of this is as it was before
	now       time.Time
	revision  int64
	state     shardState
	actions   map[uint64]*mirrored
	tenants   map[string]*tenantState
	targets   map[string]*targetState
	limiters  map[string]*limiterState
	ended     map[string]int64 // tenants and targets without actions, by the window since when
	throttled map[string]bool  // limiters that were throttled in the present window
	outbox    int64
	oldest    time.Time

	incomplete map[uint64]bool // actions that complete has to read
	changed    map[uint64]bool // actions that Changes has yet to return
	gone       []string        // likewise: the ids of actions that have ended
	stale      map[uint64]bool // actions that requeue has to look at
	dropped    []*mirrored     // likewise: those that are not in actions any more
}

// mirrored is a live action.
type mirrored struct {
	record
	spec      *bulk.Spec
	partial   []byte
	partialOf int64 // the number of reduced outcomes in partial
	queued    bulk.Queued
	held      int64 // its part of mirror.held
}

// shardState and the like are the JSON objects of the scripts: see lua/action.lua.
type shardState struct {
	Virtual float64              `json:"virtual"`
	Window  int64                `json:"window"`
	Started int64                `json:"started"`
	Slots   int64                `json:"slots"`
	Version int64                `json:"version"`
	Aside   [4]int64             `json:"aside"`
	Kinds   map[string]kindState `json:"kinds"`
}

type kindState struct {
	Ready    int64   `json:"ready"`
	Flight   int64   `json:"flight"`
	Finished int64   `json:"finished"`
	Busy     int64   `json:"busy"`
	Since    int64   `json:"since"`
	Virtual  float64 `json:"virtual"`
	Asked    int64   `json:"asked"`
	// Pools has, by instance, when it last said how many workers it has, and how many.
	Pools map[string][2]int64 `json:"pools"`
}

type tenantState struct {
	Taken   float64              `json:"taken"`
	Window  int64                `json:"window"`
	Started int64                `json:"started"`
	Flight  int64                `json:"flight"`
	Aside   int64                `json:"aside"` // jobs that wait for a key
	Lines   map[string]lineState `json:"lines"`
}

type lineState struct {
	Taken   float64 `json:"taken"`
	Granted int64   `json:"granted"`
	Ready   int64   `json:"ready"`
}

type targetState struct {
	Window  int64            `json:"window"`
	Started int64            `json:"started"`
	Flight  int64            `json:"flight"`
	Slots   int64            `json:"slots"`
	Version int64            `json:"version"`
	Ready   map[string]int64 `json:"ready"`
}

// limiterState has the waiting throttled jobs of a limiter, by the window of their slot.
type limiterState struct {
	Waiting int64            `json:"waiting"`
	At      map[string]int64 `json:"at"`
}

// idle reports whether jobs are ready and no worker asks for them.
func (k kindState) idle(window int64) bool { return k.Ready > 0 && window > k.Asked+1 }

// startedIn returns the attempts started in a window.
func startedIn(window, of, started int64) int64 {
	if window == of {
		return started
	}
	return 0
}

// look brings the mirror up to date, except for silent shards. It fails if all are silent. mu
// must be held.
func (s *Store) look(ctx context.Context) error {
	known := s.settings.known()
	var group errgroup.Group
	group.SetLimit(sideBySide)
	failed := make([]error, len(s.shards))
	for shard := range s.shards {
		group.Go(func() error {
			failed[shard] = s.lookThrough(ctx, shard)
			return nil
		})
	}
	_ = group.Wait() // the errors are in failed
	answered := false
	for shard, err := range failed {
		if err != nil && (ctx.Err() != nil || errors.Is(err, bulk.ErrClosed)) {
			return err
		}
		if !errors.Is(err, errSilent) {
			s.looked(shard, err)
		}
		s.mirror.shards[shard].hush(err != nil)
		answered = answered || err == nil
	}
	if !answered {
		return errors.Join(failed...)
	}
	for i := range s.mirror.shards {
		if now := s.mirror.shards[i].now; now.After(s.mirror.latest) {
			s.mirror.latest, s.mirror.seen = now, time.Now()
		}
	}
	return s.agree(ctx, known)
}

// hush records whether a shard is silent: the jobs of one that is do not wait.
func (m *shardMirror) hush(silent bool) {
	if silent != m.silent {
		m.silent = silent
		for n := range m.actions {
			m.stale[n] = true
		}
	}
}

// agree makes the settings in this instance, the hub and the shards agree. mirror.mu must be
// held. If the hub has lost the newest settings, the shards have a higher revision; if a shard has
// lost them, it is behind the one that all knew before the look. Then agree gives the settings a
// new revision, for which such shards are sent all of them.
func (s *Store) agree(ctx context.Context, known int64) error {
	_, revision := s.settings.get()
	differs := func(m shardMirror) bool { return m.revision != revision && !m.silent }
	if !slices.ContainsFunc(s.mirror.shards, differs) {
		return nil
	}
	if err := s.loadSettings(ctx); err != nil {
		return err
	}
	values, revision := s.settings.get()
	lost := func(m shardMirror) bool { return (m.revision > revision || m.revision < known) && !m.silent }
	if !slices.ContainsFunc(s.mirror.shards, lost) {
		return nil
	}
	return othersGoOn(s.set(ctx, settingRate, values.rate))
}

// lookThrough fetches all changes of a shard. If it fails after it had to start over, the mirror
// stays as it was.
func (s *Store) lookThrough(ctx context.Context, shard int) error {
	m := &s.mirror.shards[shard]
	before := *m
	for over := false; ; over = over || m.upTo == 0 {
		more, err := s.lookAt(ctx, shard)
		if err != nil && over {
			*m = before
		}
		if err == nil && !more && over {
			m.restarted(&before)
		}
		if err != nil || !more {
			return err
		}
	}
}

// restarted compares a mirror that started over with what it was before: what is not there any
// more has ended.
func (m *shardMirror) restarted(before *shardMirror) {
	m.gone, m.dropped = append(before.gone, m.gone...), append(before.dropped, m.dropped...)
	for n, a := range before.actions {
		m.dropped = append(m.dropped, a)
		if m.actions[n] == nil && a.spec != nil {
			m.gone = append(m.gone, a.spec.ID)
		}
	}
}

func (s *Store) lookAt(ctx context.Context, shard int) (more bool, err error) {
	m := &s.mirror.shards[shard]
	answer, err := onShard(ctx, s, lookScript, shard, readLook, number(m.upTo), strconv.Itoa(lookMost))
	if err != nil {
		return false, err
	}
	if answer.again || m.upTo > 0 && answer.run != m.run {
		*m = shardMirror{}
		return true, nil
	}
	m.run = answer.run
	if m.actions == nil {
		m.actions, m.tenants = map[uint64]*mirrored{}, map[string]*tenantState{}
		m.targets, m.limiters = map[string]*targetState{}, map[string]*limiterState{}
		m.ended, m.incomplete, m.changed, m.stale = map[string]int64{}, map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
	}
	there := map[string]bool{}
	for i := 0; i+1 < len(answer.things); i += 2 {
		there[answer.things[i]] = true
		if err := m.take(answer.things[i], answer.things[i+1]); err != nil {
			return false, fmt.Errorf("redis: %s of shard %d is not what this version of sluice stores: %w", answer.things[i], shard, err)
		}
	}
	m.end(answer.ended, there, bulk.WindowIndex(answer.now, s.config.Window))
	m.upTo, m.now, m.revision = answer.upTo, answer.now, answer.revision
	m.throttled, m.outbox, m.oldest = answer.throttled, answer.outbox, answer.oldest
	return answer.more, s.complete(ctx, shard)
}

// looked is the answer of lua/look.lua.
type looked struct {
	now, oldest    time.Time
	upTo, revision int64
	more, again    bool
	throttled      map[string]bool
	outbox         int64
	things, ended  []string
	run            string
}

func readLook(r rueidis.RedisResult) (l looked, err error) {
	parts, err := r.ToArray()
	if err != nil {
		return l, err
	}
	if len(parts) != 10 {
		return l, fmt.Errorf("redis: the script look answers %d parts", len(parts))
	}
	var errs [10]error
	ints := make([]int64, 4)
	for i := range ints {
		ints[i], errs[i] = parts[i].AsInt64()
	}
	l.now, l.upTo, l.more, l.again = time.UnixMilli(ints[0]), ints[1], ints[2] == 1, ints[3] == 1
	throttled, err := parts[4].AsStrSlice()
	errs[4] = err
	l.throttled = map[string]bool{}
	for i := 0; i < len(throttled); i += 2 {
		l.throttled[strings.TrimSuffix(throttled[i], "\n")] = true
	}
	outbox, err := parts[5].AsIntSlice()
	errs[5] = err
	if len(outbox) == 2 {
		l.outbox, l.oldest = outbox[0], timeOf(outbox[1])
	}
	l.revision, errs[6] = parts[6].AsInt64()
	l.things, errs[7] = parts[7].AsStrSlice()
	l.ended, errs[8] = parts[8].AsStrSlice()
	l.run, errs[9] = parts[9].ToString()
	return l, errors.Join(errs[:]...)
}

// take stores the new state of a thing.
func (m *shardMirror) take(name, text string) error {
	read := func(into any) error { return json.Unmarshal([]byte(text), into) }
	if name == "shard" {
		m.state = shardState{}
		return read(&m.state)
	}
	delete(m.ended, name) // it is live again
	switch rest := name[2:]; name[:2] {
	case "a:":
		n, err := strconv.ParseUint(rest, 10, 64)
		if err != nil {
			return err
		}
		a := m.actions[n]
		if a == nil {
			a = &mirrored{queued: bulk.Queued{Number: n}}
			m.actions[n] = a
		}
		a.record = record{}
		if err := read(&a.record); err != nil {
			return err
		}
		m.changed[n], m.stale[n] = true, true
		if a.spec == nil || a.Reduced != a.partialOf {
			m.incomplete[n] = true
		}
	case "t:":
		m.tenants[rest] = new(tenantState)
		return read(m.tenants[rest])
	case "g:":
		m.targets[rest] = new(targetState)
		return read(m.targets[rest])
	case "m:":
		m.limiters[rest] = new(limiterState)
		return read(m.limiters[rest])
	}
	return nil
}

// end removes what has ended. Tenants and targets are removed when the window is over, as
// their attempts still count in it.
func (m *shardMirror) end(names []string, there map[string]bool, window int64) {
	for name, since := range m.ended {
		if since < window {
			m.drop(name)
		}
	}
	for _, name := range names {
		if there[name] {
			m.ended[name] = window
		} else {
			m.drop(name)
		}
	}
}

func (m *shardMirror) drop(name string) {
	delete(m.ended, name)
	switch rest := name[2:]; name[:2] {
	case "a:":
		n, _ := strconv.ParseUint(rest, 10, 64) // this store made the name
		m.dropAction(n)
	case "t:":
		delete(m.tenants, rest)
	case "g:":
		delete(m.targets, rest)
	case "m:":
		delete(m.limiters, rest)
	}
}

func (m *shardMirror) dropAction(n uint64) {
	if a := m.actions[n]; a != nil {
		if m.dropped = append(m.dropped, a); a.spec != nil {
			m.gone = append(m.gone, a.spec.ID)
		}
	}
	delete(m.actions, n)
	delete(m.changed, n)
	delete(m.incomplete, n)
}

// complete reads what operations do not change: the specs of new actions, and partial
// results.
func (s *Store) complete(ctx context.Context, shard int) error {
	m := &s.mirror.shards[shard]
	base := s.shards[shard]
	for page := range slices.Chunk(slices.Sorted(maps.Keys(m.incomplete)), listPage) {
		answers, err := do(ctx, s, func(ctx context.Context) ([][]string, error) {
			var commands rueidis.Commands
			for _, n := range page {
				text := strconv.FormatUint(n, 10)
				commands = append(commands, s.db.B().Mget().Key(base+"x:"+text, base+"z:"+text).Build())
			}
			var texts [][]string
			for _, answer := range s.db.DoMulti(ctx, commands...) {
				values, err := answer.AsStrSlice()
				if err != nil {
					return nil, err
				}
				texts = append(texts, values)
			}
			return texts, nil
		})
		if err != nil {
			return err
		}
		for i, n := range page {
			a := m.actions[n]
			if answers[i][0] == "" { // it was forgotten in the meantime
				m.dropAction(n)
				continue
			}
			spec := new(bulk.Spec)
			if err := json.Unmarshal([]byte(answers[i][0]), spec); err != nil {
				return fmt.Errorf("redis: the spec of action %d: %w", n, err)
			}
			a.spec, a.partial, a.partialOf = spec, []byte(answers[i][1]), a.Reduced
			a.queued.Class, a.queued.Key = spec.Class, spec.Key
			delete(m.incomplete, n)
			s.specs.put(n, spec)
		}
	}
	return nil
}

// Changes implements bulk.Store. Changes of a silent shard come when it answers again.
func (s *Store) Changes(ctx context.Context, most int) (c bulk.Changes, err error) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if err := s.look(ctx); err != nil {
		return c, err
	}
	for i := range s.mirror.shards {
		m := &s.mirror.shards[i]
		if m.silent {
			continue
		}
		c.Ended, m.gone = append(c.Ended, m.gone...), nil
		for n := range m.changed {
			if c.More = len(c.Actions) == most; c.More {
				break
			}
			delete(m.changed, n)
			if a := m.actions[n]; a.live() {
				c.Actions = append(c.Actions, a.unfinished(a.spec, a.partial))
			} else {
				c.Ended = append(c.Ended, a.spec.ID)
			}
		}
		if c.More {
			break
		}
	}
	return c, nil
}

// unfinished returns the live actions, in the order of their creation. Those of silent shards are
// left out, or, with a limit, it fails.
func (s *Store) unfinished(ctx context.Context, filter bulk.ActionFilter) (actions []bulk.Action, err error) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	silent := slices.IndexFunc(s.mirror.shards, func(m shardMirror) bool { return m.silent })
	if silent >= 0 && filter.Limit > 0 { // who lists pages wants all actions
		return nil, fmt.Errorf("%w: shard %d", errSilent, silent)
	}
	first := uint64(0)
	if filter.After != "" {
		if first, err = s.lookup(ctx, filter.After); err != nil {
			return nil, err
		}
	}
	var numbers []uint64
	for i := range s.mirror.shards {
		for n, a := range s.mirror.shards[i].actions {
			if !s.mirror.shards[i].silent && n/numberBase > first/numberBase && a.live() {
				numbers = append(numbers, n)
			}
		}
	}
	slices.SortFunc(numbers, func(x, y uint64) int { return int(int64(x/numberBase) - int64(y/numberBase)) })
	for i, n := range numbers {
		a := s.mirror.shards[s.shardOfNumber(n)].actions[n]
		action := a.action(a.spec, a.partial, nil)
		if filter.Matches(&action) {
			actions = append(actions, action)
		}
		switch {
		case filter.Limit > 0 && len(actions) == filter.Limit:
			return actions, nil
		case filter.Look == i+1:
			return actions, &bulk.LookError{After: action.ID}
		}
	}
	return actions, nil
}
