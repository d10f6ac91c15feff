package redisstore

import (
	"context"
	"encoding/json"
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

// limitOf returns the limit of a name in a window: attempts per second, and jobs in flight; 0
// is no limit. If the target is set to auto, it finds the rate first.
func (s *Store) limitOf(ctx context.Context, values *settings, name string, window int64) (rate float64, concurrency int64, err error) {
	switch {
	case name == "all":
		return values.globalRate(), 0, nil
	case name[:2] == "t:":
		return values.Tenants[name[2:]].RequestsPerSecond, 0, nil
	}
	t := values.Targets[name[2:]]
	if !t.Auto {
		return t.RequestsPerSecond, int64(t.Concurrency), nil
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	err = s.learn(ctx, window)
	return s.mirror.autos.found(name[2:]), int64(t.Concurrency), err
}

// shared reports whether all shards share a limit; a tenant's limit belongs to one shard.
func shared(name string) bool { return name[:2] != "t:" }

// grant gets what a shard wants of limits in a window, and adds it to the terms. A limit that
// belongs to one shard is granted in full; the hub allots shared limits.
func (s *Store) grant(ctx context.Context, t *terms, shard int, window int64, wants map[string]want) error {
	values, revision := s.settings.get()
	t.Revision, t.Single = revision, len(s.shards) == 1
	var requests [][6]any
	for name, w := range wants {
		rate, concurrency, err := s.limitOf(ctx, &values, name, window)
		if err != nil {
			return err
		}
		if rate > 0 {
			budget := bulk.Budget(rate, s.config.Window, window)
			if t.Single || !shared(name) {
				t.Quotas = append(t.Quotas, [3]any{name, window, min(budget, maxQuota)})
			} else {
				requests = append(requests, [6]any{name, window, w.attempts, min(budget, maxQuota), 0, 0})
			}
		}
		if concurrency > 0 && !t.Single {
			requests = append(requests, [6]any{name, -1, w.slots, concurrency, w.has, w.version})
		}
	}
	if len(requests) == 0 {
		return nil
	}
	slices.SortStableFunc(requests, func(x, y [6]any) int { return rank(x) - rank(y) })
	return s.allot(ctx, t, shard, requests)
}

// rank orders requests for lua/allot.lua: slots, rates of targets, the global rate.
func rank(request [6]any) int {
	switch {
	case request[1] == -1:
		return 0
	case request[0] == "all":
		return 2
	}
	return 1
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

// yieldUnused makes other shards give back unused slots of targets, if a shard wants more
// than are left. It goes by the hub's counts: a shard may have forgotten a target whose slots
// it has.
func (s *Store) yieldUnused(ctx context.Context, shard int, window int64, wants map[string]want) error {
	values, _ := s.settings.get()
	for name, w := range wants {
		most := int64(0)
		if name[:2] == "g:" {
			most = int64(values.Targets[name[2:]].Concurrency)
		}
		if most == 0 || len(s.shards) == 1 {
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
		for _, i := range s.unused(name, window, shard, held) {
			kept, err := onShard(ctx, s, yieldScript, i, asInts, name, number(held[i].version))
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

// held is the number of slots of a target that a shard has in the hub, and their version.
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

// unused returns the shards, except one, that have unused slots of a target.
func (s *Store) unused(name string, window int64, but int, has []held) (shards []int) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	v := &view{mirror: &s.mirror, window: window}
	for i := range has {
		if i != but && has[i].slots > v.usedOfTarget(&s.mirror.shards[i], name[2:]).slots {
			shards = append(shards, i)
		}
	}
	return shards
}

// window returns the present window by the shards' clocks, as far as they are known.
func (s *Store) window() int64 {
	if now, set := s.now(); set {
		return bulk.WindowIndex(now, s.config.Window)
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if s.mirror.latest.IsZero() {
		return bulk.WindowIndex(time.Now(), s.config.Window)
	}
	return bulk.WindowIndex(s.mirror.latest.Add(time.Since(s.mirror.seen)), s.config.Window)
}
