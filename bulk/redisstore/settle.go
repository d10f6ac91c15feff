package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// settleMost bounds the settlements of one script, and groupsMost the actions.
const (
	settleMost = 2000
	groupsMost = 500
)

// group is the settlements of one action, by their positions in the call.
type group struct {
	number uint64
	at     []int
}

// Settle implements bulk.Store. Settlements of several shards, or very many, take several
// scripts: if Settle fails, some may have been recorded, and are duplicates when they are
// repeated. Of a shard that has failed, the verdicts are 0.
func (s *Store) Settle(ctx context.Context, settlements []bulk.Settlement) ([]bulk.Verdict, error) {
	settlements, err := s.presentLeases(ctx, settlements)
	if err != nil {
		return nil, err
	}
	verdicts := make([]bulk.Verdict, len(settlements))
	for i := range verdicts {
		if s.shardOfNumber(settlements[i].Lease.Action) < 0 {
			verdicts[i] = bulk.Unknown
		}
	}
	var failed error
	for shard, groups := range s.groups(settlements) {
		// If one shard does not answer, the others may.
		failed = errors.Join(failed, s.settleShard(ctx, shard, settlements, groups, verdicts))
	}
	if failed != nil && !slices.ContainsFunc(verdicts, func(v bulk.Verdict) bool { return v != 0 }) {
		return nil, failed
	}
	return verdicts, failed
}

// groups groups settlements by shard and action.
func (s *Store) groups(settlements []bulk.Settlement) [][]group {
	places := map[uint64]int{}
	shards := make([][]group, len(s.shards))
	for i := range settlements {
		n := settlements[i].Lease.Action
		shard := s.shardOfNumber(n)
		if shard < 0 {
			continue
		}
		at, known := places[n]
		if !known || len(shards[shard][at].at) == settleMost {
			at = len(shards[shard])
			places[n] = at
			shards[shard] = append(shards[shard], group{number: n})
		}
		shards[shard][at].at = append(shards[shard][at].at, i)
	}
	return shards
}

// settleShard settles groups of one shard, as many at a time as one script takes.
func (s *Store) settleShard(ctx context.Context, shard int, settlements []bulk.Settlement, groups []group, verdicts []bulk.Verdict) error {
	for len(groups) > 0 {
		n, settled := 0, 0
		for n < min(len(groups), groupsMost) && (n == 0 || settled+len(groups[n].at) <= settleMost) {
			settled += len(groups[n].at)
			n++
		}
		if err := s.settleGroups(ctx, shard, settlements, groups[:n], verdicts); err != nil {
			return err
		}
		groups = groups[n:]
	}
	return nil
}

func (s *Store) settleGroups(ctx context.Context, shard int, settlements []bulk.Settlement, groups []group, verdicts []bulk.Verdict) error {
	delays, err := s.delays(ctx, shard, settlements, groups)
	if err != nil {
		return err
	}
	var args []string
	for _, g := range groups {
		packed := make([]byte, 0, 30*len(g.at))
		var texts []string
		for _, i := range g.at {
			st := &settlements[i]
			has := st.Values != nil || st.Error != "" || st.Result != nil || st.ResultTruncated
			at := delays[i]
			switch st.Kind {
			case bulk.Extended:
				at = st.LeaseFor
			case bulk.Released:
				at = bulk.BoundRetryAfter(st.RetryAfter)
			}
			packed = binary.BigEndian.AppendUint32(packed, st.Lease.Index)
			packed = binary.BigEndian.AppendUint32(packed, st.Lease.Fence)
			packed = append(packed, byte(st.Kind), byte(flag(has)))
			packed = appendFloat(packed, float64(at.Milliseconds()))
			packed = appendFloat(packed, float64(st.Took.Microseconds()))
			packed = binary.BigEndian.AppendUint32(packed, uint32(min(max(st.Cost, 0), bulk.MaxCost)))
			if has {
				texts = append(texts, settlementTexts(st)...)
			}
		}
		args = append(args, strconv.FormatUint(g.number, 10), rueidis.BinaryString(packed), strconv.Itoa(len(texts)))
		args = append(args, texts...)
	}
	letters, err := onShard(ctx, s, settleScript, shard, asTexts, args...)
	if err != nil {
		return err
	}
	for n, g := range groups {
		if n >= len(letters) || len(letters[n]) != len(g.at) {
			return fmt.Errorf("redis: the script settle answers %d verdicts", len(letters))
		}
		for place, i := range g.at {
			verdicts[i] = verdictLetters[letters[n][place]]
		}
	}
	return nil
}

var verdictLetters = map[byte]bulk.Verdict{'a': bulk.Accepted, 'd': bulk.Duplicate, 'e': bulk.Expired, 'u': bulk.Unknown}

func appendFloat(to []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(to, math.Float64bits(f))
}

// settlementTexts returns values, error, result, and whether the result was cut.
func settlementTexts(st *bulk.Settlement) []string {
	result, cut := st.Result, st.ResultTruncated
	if len(result) > bulk.MaxEventResult {
		result, cut = nil, true
	}
	return []string{
		rueidis.BinaryString(st.Values), st.Error[:min(len(st.Error), bulk.MaxErrorBytes)],
		rueidis.BinaryString(result), strconv.Itoa(flag(cut)),
	}
}

// delays returns how long jobs that are turned back wait, by position. It reads their
// attempts and the number of jobs that wait at their limiter.
func (s *Store) delays(ctx context.Context, shard int, settlements []bulk.Settlement, groups []group) (map[int]time.Duration, error) {
	var places []int
	var args []string
	for _, g := range groups {
		for _, i := range g.at {
			if kind := settlements[i].Kind; kind == bulk.Throttled || kind == bulk.FailedForNow {
				places = append(places, i)
				args = append(args, strconv.FormatUint(g.number, 10), number(int64(settlements[i].Lease.Index)))
			}
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	peeked, err := onShard(ctx, s, peekScript, shard, asInts, args...)
	if err != nil {
		return nil, err
	}
	delays := make(map[int]time.Duration, len(places))
	booked, sharing := map[string]int64{}, s.sharing()
	for n, i := range places {
		st := &settlements[i]
		spec, err := s.specOf(ctx, st.Lease.Action)
		if err != nil {
			continue // there is no such action: the verdict will be Unknown
		}
		config := s.config.For(spec.Type)
		after := bulk.BoundRetryAfter(st.RetryAfter)
		if st.Kind == bulk.FailedForNow {
			if delays[i] = after; after == 0 {
				delays[i] = bulk.RetryDelay(config.BackoffBase, config.BackoffCap, int(peeked[3*n]), rand.Float64())
			}
			continue
		}
		limiter := spec.Tenant + "\n" + spec.Callee()
		rate := s.ratePerSecond(spec.Tenant, spec.Callee(), sharing[spec.Callee()], peeked[3*n+2])
		delays[i] = bulk.ThrottleDelay(config.BackoffBase, peeked[3*n+1]+booked[limiter], rate, after)
		booked[limiter]++
	}
	return delays, nil
}
