package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// leaseRounds is how often a shard is asked again after it got more of the limits.
const leaseRounds = 3

// readyHints has the shards where jobs were seen to be ready, so that workers need not ask
// every shard. If a hint is wrong, all shards are asked.
type readyHints struct {
	mu   sync.Mutex
	of   []map[string]int64
	turn int
}

func (h *readyHints) learn(m *mirror) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range m.shards {
		h.of[i] = map[string]int64{}
		for name, k := range m.shards[i].state.Kinds {
			if !m.shards[i].silent {
				h.of[i][name] = k.Ready
			}
		}
	}
}

func (h *readyHints) add(shard int, types []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[shard] == nil {
		h.of[shard] = map[string]int64{}
	}
	for _, name := range types {
		h.of[shard][name]++
	}
}

// none records that a shard had no more jobs of some types.
func (h *readyHints) none(shard int, types []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range types {
		delete(h.of[shard], name)
	}
}

// order returns the shards to ask: those with hints, each time beginning with another one; or
// all shards, if there is no hint.
func (h *readyHints) order(types []string) (shards []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn++
	all := make([]int, 0, len(h.of))
	for i := range h.of {
		shard := (i + h.turn) % len(h.of)
		all = append(all, shard)
		if slices.ContainsFunc(types, func(name string) bool { return h.of[shard][name] > 0 }) {
			shards = append(shards, shard)
		}
	}
	if len(shards) == 0 {
		return all
	}
	return shards
}

// Lease implements bulk.Store. A shard that does not answer does not delay the others: Lease
// fails only if the others have no jobs.
func (s *Store) Lease(ctx context.Context, request bulk.LeaseRequest) (jobs []bulk.Job, err error) {
	order := s.ready.order(request.Types)
	var failed error
	for len(order) > 0 && (len(jobs) < request.Max || request.Max <= 0) {
		var able []int // can lease more
		for i, shard := range order {
			// Shards that come later get their share.
			share := (request.Max - len(jobs) + len(order) - i - 1) / (len(order) - i)
			left := bulk.MaxPageBytes - payloadBytes(jobs)
			if share <= 0 && request.Max > 0 || left <= 0 {
				break
			}
			got, err := s.leaseFrom(ctx, shard, request, share, left)
			err = othersGoOn(err)
			jobs = append(jobs, got...)
			switch {
			case err != nil:
				failed = errors.Join(failed, err)
				s.ready.none(shard, request.Types)
			case len(got) == share && share > 0:
				able = append(able, shard)
			case payloadBytes(got) > left-bulk.MaxPayloadBytes: // it may have more
			default:
				s.ready.none(shard, request.Types)
			}
		}
		order = able
	}
	if failed != nil && len(jobs) > 0 { // leased jobs must not be lost
		s.logger.Warn("not all shards have answered a lease", "error", failed)
		return jobs, nil
	}
	return jobs, failed
}

func payloadBytes(jobs []bulk.Job) (bytes int) {
	for i := range jobs {
		bytes += len(jobs[i].Payload)
	}
	return bytes
}

// leaseFrom leases up to `most` jobs of one shard whose payloads have at most that many bytes,
// and gets more of the limits if needed.
func (s *Store) leaseFrom(ctx context.Context, shard int, request bulk.LeaseRequest, most, bytes int) (jobs []bulk.Job, err error) {
	t := terms{Single: len(s.shards) == 1, Asked: map[string]bool{}}
	_, t.Revision = s.settings.get()
	for rounds := leaseRounds; rounds > 0; rounds-- {
		began := time.Now()
		answer, err := s.leaseOnce(ctx, shard, &t, request, most-len(jobs), bytes-payloadBytes(jobs))
		if err != nil {
			return jobs, err
		}
		got, err := s.jobsOf(ctx, answer)
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, got...)
		values, revision := s.settings.get()
		if t.Keys, err = s.keysOf(ctx, &values, answer.offers); err != nil {
			return jobs, err
		}
		if len(t.Keys) > 0 {
			if revision != t.Revision { // keys and quotas are of one revision
				t.Revision, t.Quotas, t.Slots = revision, nil, nil
			}
			if len(jobs) == 0 { // the next round takes these from the ready jobs, which are not endless
				rounds++
			}
			continue
		}
		if len(answer.needs) == 0 {
			break
		}
		wants := map[string]want{}
		for name, n := range answer.needs {
			wants[name], t.Asked[name] = want{attempts: n[0], slots: n[1], has: n[2], version: n[3]}, true
		}
		t.Quotas, t.Slots = nil, nil
		at := s.next(answer.now, began)
		if err := s.yieldUnused(ctx, shard, at, wants); err != nil {
			return jobs, err
		}
		if err := s.grant(ctx, &t, shard, at, wants); err != nil {
			return jobs, err
		}
	}
	return jobs, nil
}

// leased is the answer of lua/lease.lua.
type leased struct {
	now, deadline time.Time
	needs         map[string][4]int64
	runs, offers  []rueidis.RedisMessage
}

func (s *Store) leaseOnce(ctx context.Context, shard int, t *terms, request bulk.LeaseRequest, most, bytes int) (leased, error) {
	args := append([]string{
		t.text(), strconv.Itoa(most), number(request.LeaseFor.Milliseconds()), strconv.Itoa(flag(request.Local)),
		number(s.owner), strconv.Itoa(bytes), strconv.Itoa(flag(bytes == bulk.MaxPageBytes)), number(request.Workers),
	}, request.Types...)
	return onShard(ctx, s, leaseScript, shard, readLeased, args...)
}

func readLeased(r rueidis.RedisResult) (l leased, err error) {
	parts, err := r.ToArray()
	if err != nil {
		return l, err
	}
	now, err1 := parts[0].AsInt64()
	deadline, err2 := parts[1].AsInt64()
	needs, err3 := parts[2].ToString()
	l.runs, err = parts[3].ToArray()
	if err == nil {
		l.offers, err = parts[4].ToArray()
	}
	l.now, l.deadline = time.UnixMilli(now), time.UnixMilli(deadline)
	if needs != "" {
		err = errors.Join(err, json.Unmarshal([]byte(needs), &l.needs))
	}
	return l, errors.Join(err1, err2, err3, err)
}

// jobsOf parses runs of jobs: number, first index, jobs; then fence, attempt and payload of
// each.
func (s *Store) jobsOf(ctx context.Context, l leased) (jobs []bulk.Job, err error) {
	for at := 0; at < len(l.runs); {
		text, err1 := l.runs[at].ToString()
		n, err2 := strconv.ParseUint(text, 10, 64)
		first, err3 := l.runs[at+1].AsInt64()
		count, err4 := l.runs[at+2].AsInt64()
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return jobs, fmt.Errorf("redis: the script lease: %w", err)
		}
		at += 3
		spec, err := s.specOf(ctx, n)
		if errors.Is(err, bulk.ErrNotFound) { // the action was forgotten in the meantime
			at += 3 * int(count)
			continue
		}
		if err != nil {
			return jobs, err
		}
		for i := range count {
			fence, err1 := l.runs[at].AsInt64()
			attempt, err2 := l.runs[at+1].AsInt64()
			payload, err3 := l.runs[at+2].AsBytes()
			if err := errors.Join(err1, err2, err3); err != nil {
				return jobs, fmt.Errorf("redis: the script lease: %w", err)
			}
			at += 3
			jobs = append(jobs, bulk.Job{
				Spec: spec, Index: first + i, Payload: payload, Attempt: int(attempt), Deadline: l.deadline,
				Lease: bulk.LeaseID{Action: n, Index: uint32(first + i), Fence: uint32(fence)},
			})
		}
	}
	return jobs, nil
}

// keysOf returns the uses of keys by offered jobs, by member. Without offers there are none.
func (s *Store) keysOf(ctx context.Context, values *settings, offers []rueidis.RedisMessage) (uses map[string][][2]any, err error) {
	for offer := range slices.Chunk(offers, 3) {
		action, err1 := offer[0].ToString()
		index, err2 := offer[1].AsInt64()
		payload, err3 := offer[2].AsBytes()
		n, err4 := strconv.ParseUint(action, 10, 64)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return nil, fmt.Errorf("redis: the script lease: %w", err)
		}
		if uses == nil {
			uses = map[string][][2]any{}
		}
		member := action + ":" + number(index)
		uses[member] = [][2]any{}
		spec, err := s.specOf(ctx, n)
		if errors.Is(err, bulk.ErrNotFound) { // the action was forgotten in the meantime
			continue
		}
		if err != nil {
			return nil, err
		}
		by, _ := values.keys.get(spec.Tenant)
		for _, use := range by.Of(spec, payload) {
			uses[member] = append(uses[member], [2]any{spec.Tenant + "\n" + use.Expression + "\n" + use.Key, use.Cost})
		}
	}
	return uses, nil
}

// specOf returns the spec of an action.
func (s *Store) specOf(ctx context.Context, n uint64) (*bulk.Spec, error) {
	if spec := s.specs.get(n); spec != nil {
		return spec, nil
	}
	st, err := s.read(ctx, n)
	if err != nil {
		return nil, err
	}
	s.specs.put(n, &st.action.Spec)
	return &st.action.Spec, nil
}

// Dispatch implements bulk.Store. It begins with another shard each time, so that a shard
// with many due jobs does not delay the others. Neither does a shard that does not answer.
func (s *Store) Dispatch(ctx context.Context, most int) (moved int, next time.Time, err error) {
	first := int(s.dispatches.Add(1) % uint64(len(s.shards)))
	for i := range s.shards {
		shard := (first + i) % len(s.shards)
		answer, failed := onShard(ctx, s, dispatchScript, shard, asInts, strconv.Itoa(most-moved), strconv.Itoa(s.config.MaxCrashes))
		if errors.Is(failed, errSilent) { // it is asked again without this loop
			continue
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		moved += int(answer[0])
		if due := timeOf(answer[1]); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return moved, next, err
}
