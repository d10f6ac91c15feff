package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// appendJobs and appendBytes bound what one script appends. A longer upload is appended
	// in parts, each of them durable.
	appendJobs  = bulk.MaxAtEnd
	appendBytes = bulk.MaxAtEndBytes
	// listPage is the number of actions read in one exchange.
	listPage = 200
)

// Create implements bulk.Store. It claims the id first, together with the spec: a caller that
// finds a claim without an action creates the claimed action.
func (s *Store) Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error) {
	spec.ID = cmp.Or(spec.ID, "act_"+strings.ToLower(rand.Text()))
	text, err := json.Marshal(spec)
	if err != nil {
		return action, false, err
	}
	for range maxTries {
		action, created, err = s.claim(ctx, &spec, string(text))
		if !errors.Is(err, bulk.ErrNotFound) {
			return action, created, err
		}
	}
	return action, false, fmt.Errorf("%w: action %q comes and goes", bulk.ErrUnavailable, spec.ID)
}

// claim creates the action of an id, or finds it. It fails with bulk.ErrNotFound if the
// action is gone; it has then dropped the id, so that the next claim succeeds.
func (s *Store) claim(ctx context.Context, spec *bulk.Spec, text string) (action bulk.Action, created bool, err error) {
	claim, err := onHub(ctx, s, claimScript, asTexts, spec.ID, strconv.Itoa(s.shardOf(spec.Tenant)), strconv.Itoa(numberBase), text)
	if err != nil {
		return action, false, err
	}
	n, err := strconv.ParseUint(claim[0], 10, 64)
	if err != nil {
		return action, false, fmt.Errorf("redis: the id %q has the number %q", spec.ID, claim[0])
	}
	if claim[1] != "" {
		created, err = s.make(ctx, n, claim[1])
		if _, refused := errors.AsType[*bulk.QuotaError](err); refused {
			err = errors.Join(s.drop(ctx, spec.ID, n, false), err)
		}
		if err != nil {
			return action, false, err
		}
	}
	st, err := s.read(ctx, n)
	if errors.Is(err, bulk.ErrNotFound) {
		if err := s.drop(ctx, spec.ID, n, true); err != nil {
			return action, false, err
		}
	}
	if err != nil {
		return action, false, err
	}
	if !st.action.Spec.Equal(*spec) {
		return st.action, false, &bulk.ExistsError{ID: spec.ID}
	}
	return st.action, created, nil
}

// make creates the action of a claim.
func (s *Store) make(ctx context.Context, n uint64, claimed string) (created bool, err error) {
	var spec bulk.Spec
	if err := json.Unmarshal([]byte(claimed), &spec); err != nil {
		return false, fmt.Errorf("redis: the claim of number %d: %w", n, err)
	}
	text, err := json.Marshal(s.newRecord(&spec))
	if err != nil {
		return false, err
	}
	answer, err := onShard(ctx, s, createScript, s.shardOfNumber(n), asTexts, strconv.FormatUint(n, 10), string(text), claimed, s.defaultQuota())
	if err != nil {
		return false, err
	}
	switch answer[0] {
	case "full":
		return false, s.outboxFull()
	case "quota":
		return false, quotaError(spec.Tenant, answer[1], answer[2])
	}
	// The claim is no longer needed. If deleting it fails, the next Create of the id finds
	// the action.
	_, _ = ask(ctx, s, s.db.B().Hdel().Key(s.hub+"claims").Field(spec.ID).Build(), asInt)
	return answer[0] == "done", nil
}

// StoredOf implements bulk.Store, with one exchange for each shard of the tenants.
func (s *Store) StoredOf(ctx context.Context, tenants []string) (map[string]bulk.Stored, error) {
	names := map[int][]string{}
	for _, name := range tenants {
		names[s.shardOf(name)] = append(names[s.shardOf(name)], name)
	}
	counts, errs := make(map[string]bulk.Stored, len(tenants)), []error(nil)
	for shard, some := range names {
		errs = append(errs, s.storedOn(ctx, shard, some, counts))
	}
	return counts, errors.Join(errs...)
}

// storedOn adds what tenants of a shard have stored.
func (s *Store) storedOn(ctx context.Context, shard int, tenants []string, counts map[string]bulk.Stored) error {
	if err := s.heard(shard); err != nil {
		return err
	}
	keys := make([]string, len(tenants))
	for i, name := range tenants {
		keys[i] = s.shards[shard] + "t:" + name
	}
	found, err := ask(ctx, s, s.db.B().Mget().Key(keys...).Build(), asArray)
	if err != nil {
		return err
	}
	for i, name := range tenants {
		var of struct{ Users, Jobs, Bytes int64 }
		switch text, err := found[i].ToString(); {
		case rueidis.IsRedisNil(err): // it has no unfinished action
		case err != nil:
			return err
		default:
			if err := json.Unmarshal([]byte(text), &of); err != nil {
				return fmt.Errorf("redis: the counts of tenant %q: %w", name, err)
			}
		}
		counts[name] = bulk.Stored{Actions: of.Users, Jobs: of.Jobs, Bytes: of.Bytes}
	}
	return nil
}

func quotaError(tenant, quota, value string) error {
	most, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("redis: the quota %s of tenant %q is %q", quota, tenant, value)
	}
	return &bulk.QuotaError{Tenant: tenant, Quota: quota, Most: most}
}

// lookup returns the number of an action by id.
func (s *Store) lookup(ctx context.Context, id string) (uint64, error) {
	text, err := ask(ctx, s, s.db.B().Hget().Key(s.hub+"ids").Field(id).Build(), func(r rueidis.RedisResult) (string, error) {
		text, err := r.ToString()
		if rueidis.IsRedisNil(err) {
			return "", nil
		}
		return text, err
	})
	if err != nil {
		return 0, err
	}
	if text == "" {
		return 0, bulk.ErrNotFound
	}
	return strconv.ParseUint(text, 10, 64)
}

// read returns the action with a number, or bulk.ErrNotFound.
func (s *Store) read(ctx context.Context, n uint64) (*stored, error) {
	shard := s.shardOfNumber(n)
	if shard < 0 {
		return nil, bulk.ErrNotFound
	}
	return onShard(ctx, s, readScript, shard, func(r rueidis.RedisResult) (*stored, error) { return readStored(n, r) }, strconv.FormatUint(n, 10))
}

func readStored(n uint64, r rueidis.RedisResult) (*stored, error) {
	parts, err := r.ToArray()
	if err != nil {
		return nil, err
	}
	now, err := parts[0].AsInt64()
	if err != nil || len(parts) < 5 {
		return nil, errors.Join(bulk.ErrNotFound, err)
	}
	var texts [4]string
	for i := range texts {
		if texts[i], err = parts[1+i].ToString(); err != nil {
			return nil, err
		}
	}
	return decodeStored(n, now, texts)
}

func (s *Store) find(ctx context.Context, id string) (*stored, error) {
	n, err := s.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, n)
}

// Action implements bulk.Store.
func (s *Store) Action(ctx context.Context, id string) (bulk.Action, error) {
	st, err := s.find(ctx, id)
	if err != nil {
		return bulk.Action{}, err
	}
	return st.action, nil
}

// Append implements bulk.Store. It appends more than appendJobs jobs or appendBytes bytes in
// parts: if it fails, some of the jobs may have been appended.
func (s *Store) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	n, err := s.lookup(ctx, id)
	if err != nil {
		return 0, err
	}
	for first := true; first || len(payloads) > 0; first = false {
		jobs, bytes := 0, 0
		for jobs < len(payloads) && jobs < appendJobs && (jobs == 0 || bytes+len(payloads[jobs]) <= appendBytes) {
			bytes += len(payloads[jobs])
			jobs++
		}
		if received, err = s.appendPart(ctx, id, n, offset, payloads[:jobs]); err != nil {
			return received, err
		}
		if payloads = payloads[jobs:]; offset != bulk.AtEnd {
			offset += int64(jobs)
		}
	}
	return received, nil
}

func (s *Store) appendPart(ctx context.Context, id string, n uint64, offset int64, payloads [][]byte) (received int64, err error) {
	args := make([]string, 0, 4+len(payloads))
	args = append(args, strconv.FormatUint(n, 10), number(offset), strconv.Itoa(MaxJobs), s.defaultQuota())
	for _, p := range payloads {
		args = append(args, rueidis.BinaryString(p))
	}
	parts, err := onShard(ctx, s, appendScript, s.shardOfNumber(n), asArray, args...)
	if err != nil {
		return 0, err
	}
	became, err1 := parts[0].ToString()
	received, err2 := parts[1].AsInt64()
	status, err3 := parts[2].ToString()
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, err
	}
	switch became {
	case "done":
		return received, nil
	case "unknown":
		return 0, bulk.ErrNotFound
	case "beyond":
		return received, &bulk.OffsetError{Received: received}
	case "most":
		return received, fmt.Errorf("%w: an action has at most %d jobs", bulk.ErrFull, MaxJobs)
	case "full":
		return received, s.outboxFull()
	case "quota":
		var texts [3]string // its name, its value and the tenant
		for i := range texts {
			if texts[i], err = parts[3+i].ToString(); err != nil {
				return received, err
			}
		}
		return received, quotaError(texts[2], texts[0], texts[1])
	}
	return received, &bulk.TransitionError{ID: id, From: bulk.Status(status), Received: received, Why: "jobs can be added only before it is sealed"}
}

// Actions implements bulk.Store. Unfinished actions are read from the mirror.
func (s *Store) Actions(ctx context.Context, filter bulk.ActionFilter) (actions []bulk.Action, err error) {
	switch {
	case filter.Number > 0:
		n, err := s.present(ctx, filter.Number)
		if err != nil {
			return nil, err
		}
		st, err := s.read(ctx, n)
		if errors.Is(err, bulk.ErrNotFound) {
			return nil, nil
		}
		if err == nil && filter.Matches(&st.action) {
			actions = append(actions, st.action)
		}
		return actions, err
	case filter.Unfinished:
		return s.unfinished(ctx, filter)
	}
	after := int64(0)
	if filter.After != "" {
		n, err := s.lookup(ctx, filter.After)
		if err != nil {
			return nil, err
		}
		after = int64(n / numberBase)
	}
	q := search{ActionFilter: filter, marks: filter.Marks()}
	for {
		page, err := s.listed(ctx, after)
		if err != nil || len(page) == 0 {
			return q.found, err
		}
		after = int64(page[len(page)-1] / numberBase)
		more, err := q.page(ctx, s, page)
		if err != nil || !more {
			return q.found, err
		}
	}
}

// search is a list of actions that is being made.
type search struct {
	bulk.ActionFilter
	marks  [][]byte
	looked int
	found  []bulk.Action
}

// page adds those of some actions that match, and reports whether to continue.
func (q *search) page(ctx context.Context, s *Store, numbers []uint64) (more bool, err error) {
	if q.Look > 0 {
		numbers = numbers[:min(len(numbers), q.Look-q.looked)]
	}
	q.looked += len(numbers)
	ends, last := q.looked == q.Look, ""
	read, err := s.readAll(ctx, numbers, func(i int, texts *[4]string) bool { return ends && i == len(numbers)-1 || q.may(texts) })
	if err != nil {
		return false, err
	}
	for _, st := range read {
		if st == nil {
			continue
		}
		last = st.action.ID
		if q.Matches(&st.action) {
			q.found = append(q.found, st.action)
		}
		if q.Limit > 0 && len(q.found) == q.Limit {
			return false, nil
		}
	}
	if ends && last != "" {
		return false, &bulk.LookError{After: last}
	}
	return true, nil
}

// may reports whether an action may match, by its texts in readAll, without decoding them.
func (q *search) may(texts *[4]string) bool {
	for _, mark := range q.marks {
		if !strings.Contains(texts[1], string(mark)) {
			return false
		}
	}
	return q.Status == "" || strings.Contains(texts[0], `"`+string(q.Status)+`"`)
}

// listed returns the numbers of the actions created after a sequence number.
func (s *Store) listed(ctx context.Context, after int64) (numbers []uint64, err error) {
	texts, err := ask(ctx, s, s.db.B().Zrangebyscore().Key(s.hub+"order").Min("("+number(after)).Max("+inf").Limit(0, listPage).Build(), asTexts)
	for _, text := range texts {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redis: the number %q of an action: %w", text, err)
		}
		numbers = append(numbers, n)
	}
	return numbers, err
}

// readAll reads those actions concurrently that are wanted by their texts: the record, the Spec, the partial result and
// the result. Nil stands for others, and for an action that does not exist.
func (s *Store) readAll(ctx context.Context, numbers []uint64, wanted func(i int, texts *[4]string) bool) ([]*stored, error) {
	found := make([]*stored, len(numbers))
	_, err := do(ctx, s, func(ctx context.Context) (struct{}, error) {
		var commands rueidis.Commands
		for _, n := range numbers {
			text := strconv.FormatUint(n, 10)
			base := s.shards[s.shardOfNumber(n)]
			if err := s.checkWhole(ctx, base); err != nil {
				return struct{}{}, err
			}
			commands = append(commands, s.db.B().Mget().Key(base+"a:"+text, base+"x:"+text, base+"z:"+text, base+"v:"+text).Build())
		}
		for i, answer := range s.db.DoMulti(ctx, commands...) {
			parts, err := answer.ToArray()
			if err != nil {
				return struct{}{}, err
			}
			var texts [4]string
			for at := range texts {
				texts[at], _ = parts[at].ToString() // nil is ""
			}
			if texts[0] == "" || !wanted(i, &texts) {
				continue
			}
			if found[i], err = decodeStored(numbers[i], 0, texts); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return found, err
}
