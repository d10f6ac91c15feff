package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// turns is the size of a block of grants in which those of one action are joined. If
// thousands of jobs are admitted at a time and tenants alternate, joining changes the order
// of the jobs by some milliseconds, and not how many each tenant gets.
const turns = 512

// together joins the grants of each action within blocks of a long list.
func together(grants []bulk.Grant) []bulk.Grant {
	if len(grants) <= turns {
		return grants
	}
	joined := make([]bulk.Grant, 0, len(grants)/2)
	for block := range slices.Chunk(grants, turns) {
		at := make(map[uint64]int, len(block))
		for _, g := range block {
			if i, known := at[g.Number]; known {
				joined[i].Jobs += g.Jobs // the costs of one division are alike
				continue
			}
			at[g.Number] = len(joined)
			joined = append(joined, g)
		}
	}
	return joined
}

// Admit implements bulk.Store. It first gets what the grants need of the limits. A shard that does
// not answer does not stop the others: Admit fails only if they admit nothing.
func (s *Store) Admit(ctx context.Context, grants []bulk.Grant) (admitted int, err error) {
	byShard := make([][]bulk.Grant, len(s.shards))
	for _, g := range grants {
		if shard := s.shardOfNumber(g.Number); shard >= 0 && g.Jobs > 0 {
			byShard[shard] = append(byShard[shard], g)
		}
	}
	if err := s.know(ctx, grants); err != nil {
		return 0, err
	}
	var failed error
	for shard, grants := range byShard {
		if len(grants) == 0 {
			continue
		}
		grants = together(grants)
		n, missed, err := s.admitTo(ctx, shard, grants)
		if err == nil && n == 0 && missed {
			n, _, err = s.admitTo(ctx, shard, grants)
		}
		admitted += n
		failed = errors.Join(failed, othersGoOn(err))
		if n > 0 {
			s.ready.add(shard, s.typesOf(shard, grants))
		}
	}
	if failed != nil && admitted > 0 {
		s.logger.Warn("not all shards have admitted jobs", "error", failed)
		return admitted, nil
	}
	return admitted, failed
}

// turned reports whether another window has begun for any limit.
func (s *Store) turned(from, to time.Time) bool {
	values, _ := s.settings.get()
	return bulk.WindowIndex(from, values.shortest) != bulk.WindowIndex(to, values.shortest)
}

// know updates the mirror if the grants exceed the jobs that it saw waiting, so that no more
// of a limit is requested than can be used.
func (s *Store) know(ctx context.Context, grants []bulk.Grant) error {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if len(s.shards) == 1 {
		return nil // it has all of the limits
	}
	for _, g := range grants {
		shard := s.shardOfNumber(g.Number)
		if shard < 0 {
			continue
		}
		if a := s.mirror.shards[shard].actions[g.Number]; a == nil || a.waiting() < g.Jobs {
			return s.look(ctx)
		}
	}
	return nil
}

func (s *Store) admitTo(ctx context.Context, shard int, grants []bulk.Grant) (admitted int, missed bool, err error) {
	decided := s.presumed()
	at := decided.Add(s.delay())
	wants, virtual := s.wantsOf(shard, at, grants)
	if err := s.yieldUnused(ctx, shard, at, wants); err != nil {
		return 0, false, err
	}
	t := terms{Virtual: virtual}
	if err := s.grant(ctx, &t, shard, at, wants); err != nil {
		return 0, false, err
	}
	args := make([]string, 0, 1+3*len(grants))
	args = append(args, t.text())
	for _, g := range grants {
		args = append(args, strconv.FormatUint(g.Number, 10), number(g.Jobs), strconv.FormatFloat(cmp.Or(g.Cost, 1), 'g', -1, 64))
	}
	answer, err := onShard(ctx, s, admitScript, shard, asInts, args...)
	if err != nil {
		return 0, false, err
	}
	now := timeOf(answer[1])
	s.late.Store(int64(now.Sub(decided)))
	return int(answer[0]), s.turned(at, now), nil
}

// wantsOf returns what a shard needs of each limit to admit grants, including what it has
// started and its ready jobs; and the virtual times of all shards.
func (s *Store) wantsOf(shard int, at time.Time, grants []bulk.Grant) (wants map[string]want, virtual map[string]float64) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	m := &s.mirror.shards[shard]
	values, _ := s.settings.get()
	v := s.view(&values, at)
	wants = map[string]want{"all": v.wantOf(m, "all")}
	add := func(name string, n int64) {
		w, known := wants[name]
		if !known {
			w = v.wantOf(m, name)
		}
		w.attempts, w.slots = w.attempts+n, w.slots+n
		wants[name] = w
	}
	for _, g := range grants {
		a := m.actions[g.Number]
		if a == nil {
			continue
		}
		jobs := g.Jobs
		if len(s.shards) > 1 {
			jobs = min(jobs, a.waiting())
		}
		add("all", jobs)
		add("t:"+a.Tenant, jobs)
		add("g:"+a.Target, jobs)
	}
	if len(s.shards) > 1 {
		virtual = map[string]float64{}
		for i := range s.mirror.shards {
			state := &s.mirror.shards[i].state
			virtual[""] = max(virtual[""], state.Virtual)
			for name, k := range state.Kinds {
				virtual[name] = max(virtual[name], k.Virtual)
			}
		}
	}
	return wants, virtual
}

// wantOf returns what a shard has of a limit: its attempts in the window and its jobs in
// flight, plus its ready jobs.
func (v *view) wantOf(m *shardMirror, name string) want {
	u := v.useOf(m, name)
	w := want{attempts: u.started + u.ready, slots: u.flight + u.ready}
	if g := m.targets[name[min(2, len(name)):]]; name == "all" {
		w.has, w.version = m.state.Slots, m.state.Version
	} else if g != nil && name[:2] == "g:" {
		w.has, w.version = g.Slots, g.Version
	}
	w.has = max(w.has, u.flight)
	return w
}

func (s *Store) typesOf(shard int, grants []bulk.Grant) (types []string) {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	for _, g := range grants {
		if a := s.mirror.shards[shard].actions[g.Number]; a != nil {
			types = append(types, a.Type)
		}
	}
	return types
}
