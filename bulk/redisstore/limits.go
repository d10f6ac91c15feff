package redisstore

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// terms are what a script is told of limits: see lua/limits.lua.
type terms struct {
	Revision int64 `json:"revision"`
	// Quotas and Slots are [name, window, quota] and [name, version, slots].
	Quotas [][3]any `json:"quotas,omitempty"`
	Slots  [][3]any `json:"slots,omitempty"`
	// Single says that there is one shard, whose slots are all there are.
	Single bool `json:"single"`
	// Virtual has the virtual times of all shards, by type; "" is that of the limit.
	Virtual map[string]float64 `json:"virtual,omitempty"`
	// Asked names the limits of which no more can be had in this call.
	Asked map[string]bool `json:"asked,omitempty"`
}

func (t *terms) text() string {
	text, _ := json.Marshal(t) // it has nothing that could not be encoded
	return string(text)
}

// want is how much a shard needs of a limit in all: attempts started in the window and
// jobs that are ready, and, of a target's concurrency, jobs in flight and ready; and how
// many slots it has, or has in flight, as of which version.
type want struct{ attempts, slots, has, version int64 }

// limitOf is the limit of a name in a window, in attempts per second and in flight; 0
// is none. A rate that is to be found is found first.
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

// shared tells whether a limit is one that all shards share; a tenant's is not.
func shared(name string) bool { return name[:2] != "t:" }

// grant gets what a shard wants of limits in a window, and adds it to the terms. Of what
// one shard has alone it is given all that there is; what is shared the hub allots.
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

// rank orders requests as lua/allot.lua wants them: slots, rates of targets, the rate of all.
func rank(request [6]any) int {
	switch {
	case request[1] == -1:
		return 0
	case request[0] == "all":
		return 2
	}
	return 1
}

// maxQuota is more than any window starts, and exact in a script.
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
	if len(given) == 0 { // the settings have changed: it is not known what there is
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

// yieldUnused makes other shards give back slots of targets that they do not use, if a
// shard wants more than are left. What they have is as the hub says: a shard may have
// forgotten a target of which it had slots.
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

// held is how many slots of a target a shard has, as the hub says, and the version of that.
type held struct{ slots, version int64 }

func (s *Store) slotsHeld(ctx context.Context, name string) ([]held, error) {
	fields, err := do(ctx, s, func(ctx context.Context) (map[string]int64, error) {
		return s.db.Do(ctx, s.db.B().Hgetall().Key(s.hub+"slots:"+name).Build()).AsIntMap()
	})
	all := make([]held, len(s.shards))
	for i := range all {
		shard := number(int64(i))
		all[i] = held{fields[shard], fields["v"+shard]}
	}
	return all, err
}

// unused returns the shards, but for one, with slots of a target that they do not use.
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

// window is the present window by the shards' time, as far as it is known here.
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
