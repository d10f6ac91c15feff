package redisstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// eventsAtOnce and eventBytesAtOnce are about the maximum of one call of Events.
	eventsAtOnce     = 500
	eventBytesAtOnce = 4 << 20
	// publisherLease is how long no other instance gets the events of a shard after an
	// instance has asked for them.
	publisherLease = 10 * time.Second
)

// publishing is the shard whose turn it is, and the last event that was returned.
type publishing struct {
	mu   sync.Mutex
	turn int
	told uint64
}

func (s *Store) outboxFull() error {
	return fmt.Errorf("%w: too many events wait to be published: they are taken in turn as soon as publishing succeeds", bulk.ErrFull)
}

// KeepEvents implements bulk.Store. Each shard keeps its part of the maximum.
func (s *Store) KeepEvents(ctx context.Context, most int64) error {
	s.most.Store(most)
	part := min((max(0, most)+int64(len(s.shards))-1)/int64(len(s.shards)), maxQuota)
	for shard := range s.shards {
		if _, err := onShard(ctx, s, keepScript, shard, asInt, number(part)); err != nil {
			return err
		}
	}
	return nil
}

// Events implements bulk.Store. It returns events of one shard at a time, so that events of
// one action are in order, and to one instance at a time.
func (s *Store) Events(ctx context.Context) (events []bulk.Event, upTo uint64, err error) {
	s.publish.mu.Lock()
	defer s.publish.mu.Unlock()
	for range s.shards {
		shard := s.publish.turn % len(s.shards)
		entries, err := onShard(ctx, s, eventsScript, shard, asTexts,
			s.holder, number(publisherLease.Milliseconds()), strconv.Itoa(eventsAtOnce), strconv.Itoa(eventBytesAtOnce))
		if errors.Is(err, errSilent) {
			s.publish.turn++
			continue
		}
		if err != nil {
			s.publish.turn++ // the other shards may answer
			return nil, 0, err
		}
		if len(entries) == 0 {
			s.publish.turn++
			continue
		}
		for _, entry := range entries {
			n, event, err := s.decodeEvent(shard, entry)
			if err != nil {
				return nil, 0, fmt.Errorf("redis: an event of shard %d: %w", shard, err)
			}
			events, upTo = append(events, event), n*numberBase+uint64(shard)
		}
		s.publish.told = upTo
		return events, upTo, nil
	}
	return nil, 0, nil
}

// Published implements bulk.Store.
func (s *Store) Published(ctx context.Context, upTo uint64) error {
	shard := s.shardOfNumber(upTo)
	if shard < 0 { // no event has this number
		return nil
	}
	_, err := onShard(ctx, s, publishedScript, shard, asInt, strconv.FormatUint(upTo/numberBase, 10))
	s.publish.mu.Lock()
	defer s.publish.mu.Unlock()
	if err == nil && upTo == s.publish.told {
		s.publish.turn++
	}
	return err
}

// decodeEvent decodes an entry that announceEvent in lua/ended.lua has written: number, time
// and kind, then the data.
func (s *Store) decodeEvent(shard int, entry string) (n uint64, event bulk.Event, err error) {
	parts := strings.SplitN(entry, " ", 4)
	if len(parts) != 4 {
		return 0, event, errShort
	}
	n, err1 := strconv.ParseUint(parts[0], 10, 64)
	ms, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, event, err
	}
	at := time.UnixMilli(ms).UTC()
	switch parts[2] {
	case eventOfImport:
		event, err = decodeImported(parts[3])
		return n, event, err
	case "job":
		event, err = decodeJobEvent(parts[3], at)
	default:
		event, err = decodeActionEvent(parts[2], parts[3], at)
	}
	event.ID = fmt.Sprintf("%s-%d-%d", s.id, shard, n)
	return n, event, err
}

func decodeActionEvent(kind, text string, at time.Time) (bulk.Event, error) {
	var told struct {
		Action record
		Spec   string
		Result string
	}
	var spec bulk.Spec
	var result map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &told)
	if err == nil {
		err = json.Unmarshal([]byte(told.Spec), &spec)
	}
	if err == nil && told.Result != "" {
		err = json.Unmarshal([]byte(told.Result), &result)
	}
	if err != nil {
		return bulk.Event{}, err
	}
	action := told.Action.action(&spec, nil, result)
	return action.Event(kind, at)
}

// decodeJobEvent decodes '>I4BHI4I4', the ids of action and tenant, '>I4', result, error.
func decodeJobEvent(text string, at time.Time) (bulk.Event, error) {
	raw := []byte(text)
	if len(raw) < 15 {
		return bulk.Event{}, errShort
	}
	r := bulk.JobResult{
		Index: int64(binary.BigEndian.Uint32(raw)), Succeeded: raw[4]&1 != 0, ResultTruncated: raw[4]&2 != 0,
		Attempts: int(binary.BigEndian.Uint16(raw[5:])), FinishedAt: at,
	}
	action, tenant := int(binary.BigEndian.Uint32(raw[7:])), int(binary.BigEndian.Uint32(raw[11:]))
	if raw = raw[15:]; len(raw) < action+tenant+4 {
		return bulk.Event{}, errShort
	}
	r.Action, r.Tenant = string(raw[:action]), string(raw[action:action+tenant])
	result := int(binary.BigEndian.Uint32(raw[action+tenant:]))
	if raw = raw[action+tenant+4:]; len(raw) < result {
		return bulk.Event{}, errShort
	}
	r.Result, r.Error = raw[:result:result], string(raw[result:])
	return r.Event()
}
