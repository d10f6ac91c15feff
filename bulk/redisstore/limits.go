package redisstore

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// terms are the terms of limits for a script: see lua/limits.lua.
type terms struct {
	Revision int64 `json:"revision"`
	// Quotas and Slots are [name, window, quota] and [name, version, slots].
	Quotas [][3]any `json:"quotas,omitempty"`
	Slots  [][3]any `json:"slots,omitempty"`
	// Single reports whether there is one shard, which has all slots.
	Single bool `json:"single"`
	// Virtual has the virtual times of all shards, by type; "" is that of the global limit.
	Virtual map[string]float64 `json:"virtual,omitempty"`
	// Asked has the limits of which this call can get no more.
	Asked map[string]bool `json:"asked,omitempty"`
	// Keys has the uses of keys by jobs that were offered, by member: see lua/keys.lua.
	Keys map[string][][2]any `json:"keys,omitempty"`
}

func (t *terms) text() string {
	text, _ := json.Marshal(t) // all fields can be encoded
	return string(text)
}

// want is how much a shard needs of a limit in total. Attempts counts those started in the
// window and the ready jobs; slots counts the jobs in flight and ready, for a target's
// concurrency. Has is the number of slots that the shard has, or has in flight, as of
// version.
type want struct{ attempts, slots, has, version int64 }

// limitOf returns the limit of a name: see settings.limitOf. If the target is set to auto, it
// finds the rate first.
func (s *Store) limitOf(ctx context.Context, values *settings, name string, at time.Time) (bulk.Limit, error) {
	if _, auto := values.autoOf(name); !auto {
		return values.limitOf(name), nil
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	err := s.learn(ctx, bulk.WindowIndex(at, s.config.Window))
	return s.mirror.limitOf(values, name), err
}

// shared reports whether all shards share a limit; a tenant's limit belongs to one shard.
func shared(name string) bool { return name[:2] != "t:" }

// grant gets what a shard wants of limits at a time, and adds it to the terms. A limit that
// belongs to one shard is granted in full; the hub allots shared limits.
func (s *Store) grant(ctx context.Context, t *terms, shard int, at time.Time, wants map[string]want) error {
	values, revision := s.settings.get()
	t.Revision, t.Single = revision, len(s.shards) == 1
	var requests [][6]any
	for name, w := range wants {
		l, err := s.limitOf(ctx, &values, name, at)
		if err != nil {
			return err
		}
		for window := range s.windowsAbout(at, l) {
			budget := l.Budget(s.config.Window, window)
			if t.Single || !shared(name) {
				t.Quotas = append(t.Quotas, [3]any{name, window, min(budget, maxQuota)})
			} else {
				requests = append(requests, [6]any{name, window, w.attempts, min(budget, maxQuota), 0, 0})
			}
		}
		if l.Concurrency > 0 && !t.Single && shared(name) {
			requests = append(requests, [6]any{name, -1, w.slots, l.Concurrency, w.has, w.version})
		}
	}
	if len(requests) == 0 {
		return nil
	}
	slices.SortStableFunc(requests, func(x, y [6]any) int { return rank(x) - rank(y) })
	return s.allot(ctx, t, shard, requests)
}

// windowsAbout returns the windows of a limit of rate in which a script may run that is expected to
// run at a time.
func (s *Store) windowsAbout(at time.Time, l bulk.Limit) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if l.RequestsPerSecond == 0 {
			return
		}
		length, about := l.Window(s.config.Window), min(s.delay().Abs()/4, mostAbout)
		last := bulk.WindowIndex(at.Add(about), length)
		for window := bulk.WindowIndex(at.Add(-about), length); window <= last; window++ {
			if !yield(window) {
				return
			}
		}
	}
}

// mostAbout bounds the windows for which a part of a limit is asked at a time.
const mostAbout = 100 * time.Millisecond

// delay returns how long after it was decided on, by the clocks of instance and shard, a script of
// Admit has run last: as long as the next one will need, or as far as the clocks are apart.
func (s *Store) delay() time.Duration { return time.Duration(s.late.Load()) }

// rank orders requests for lua/allot.lua: targets before all, slots before rates.
func rank(request [6]any) (rank int) {
	if request[0] == "all" {
		rank = 2
	}
	if request[1] != -1 {
		rank++
	}
	return rank
}

// maxQuota is above any window's attempts, and exact in a script.
const maxQuota = 1 << 40

func (s *Store) allot(ctx context.Context, t *terms, shard int, requests [][6]any) error {
	text, err := json.Marshal(requests)
	if err != nil {
		return err
	}
	given, err := onHub(ctx, s, allotScript, asInts, number(t.Revision), number(int64(shard)), number(s.kept()), string(text))
	if err != nil {
		return err
	}
	if len(given) == 0 { // the settings have changed
		t.Revision = -1
		return s.loadSettings(ctx)
	}
	for i, request := range requests {
		quota, version := given[2*i], given[2*i+1]
		if request[1] == -1 {
			t.Slots = append(t.Slots, [3]any{request[0], version, quota})
		} else {
			t.Quotas = append(t.Quotas, [3]any{request[0], request[1], quota})
		}
	}
	return nil
}

// yieldUnused makes other shards give back unused slots, if a shard wants more than are left.
// It goes by the hub's counts: a shard may have forgotten a target whose slots it has.
func (s *Store) yieldUnused(ctx context.Context, shard int, at time.Time, wants map[string]want) error {
	values, _ := s.settings.get()
	for name, w := range wants {
		most := int64(values.limitOf(name).Concurrency)
		if most == 0 || len(s.shards) == 1 || !shared(name) {
			continue
		}
		held, err := s.slotsHeld(ctx, name)
		if err != nil {
			return err
		}
		others := int64(0)
		for i, h := range held {
			if i != shard {
				others += h.slots
			}
		}
		if others+w.slots <= most {
			continue
		}
		for _, i := range s.unused(name, at, shard, held) {
			kept, err := onShard(ctx, s, yieldScript, i, asInts, "{}", name, number(held[i].version))
			if err != nil {
				return err
			}
			if _, err := onHub(ctx, s, yieldedScript, asInt, name, number(int64(i)), number(kept[0]), number(kept[1])); err != nil {
				return err
			}
		}
	}
	return nil
}

// held is the number of slots of a limit that a shard has in the hub, and their version.
type held struct{ slots, version int64 }

func (s *Store) slotsHeld(ctx context.Context, name string) ([]held, error) {
	fields, err := ask(ctx, s, s.db.B().Hgetall().Key(s.hub+"slots:"+name).Build(), rueidis.RedisResult.AsIntMap)
	all := make([]held, len(s.shards))
	for i := range all {
		shard := number(int64(i))
		all[i] = held{fields[shard], fields["v"+shard]}
	}
	return all, err
}

// unused returns the shards, except one and silent ones, that have unused slots of a limit.
func (s *Store) unused(name string, at time.Time, but int, has []held) (shards []int) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	values, _ := s.settings.get()
	v := s.view(&values, at)
	for i := range has {
		if u := v.useOf(&s.mirror.shards[i], name); i != but && !s.mirror.shards[i].silent && has[i].slots > u.flight+u.ready {
			shards = append(shards, i)
		}
	}
	return shards
}

// next returns when a shard will run the next call of Lease, after one that began at a time of this
// process and ran at one of the shard. Between them, parts of limits are asked for at the hub, which
// takes as long as such a call, unless there is one shard.
func (s *Store) next(ran, began time.Time) time.Time {
	if _, set := s.now(); set {
		return ran
	}
	took := time.Since(began)
	if len(s.shards) > 1 {
		took *= 2
	}
	return ran.Add(took)
}

// presumed returns the present time by the shards' clocks, as far as they are known.
func (s *Store) presumed() time.Time {
	if now, set := s.now(); set {
		return now
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if s.mirror.latest.IsZero() {
		return time.Now()
	}
	return s.mirror.latest.Add(time.Since(s.mirror.seen))
}
