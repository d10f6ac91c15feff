package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// snapshotEvery is after how many bytes of records a partition's producers are
// stored again: at most about so much is read when it is opened.
const snapshotEvery = 64 << 20

// producersSnapshot is what is stored of a partition's producers. They were
// taken when the entry Sequence was durable and records up to Next were
// numbered, and stored once those were durable too.
type producersSnapshot struct {
	Sequence  uint64              `json:"sequence"`
	Next      int64               `json:"next"`
	Producers map[int64]*producer `json:"producers"`
}

// snapshots is what a partition knows of its snapshot; guarded by its mu.
type snapshots struct {
	bytes    int64  // appended since the last one was taken
	taken    []byte // not stored yet; nil if there is none
	next     int64
	storing  bool
	revision uint64 // of the one that is stored
}

func snapshotKey(id ID, number int32) string { return fmt.Sprintf("producers/%x/%d", id[:], number) }

// grown is told of each entry that is durable: it takes a snapshot when it is
// time, and has it stored when all that it knows of is durable.
func (s *snapshots) grown(p *Partition, bytes int64) {
	s.bytes += bytes
	if s.taken == nil && s.bytes >= snapshotEvery {
		s.take(p)
	}
	if s.taken == nil || s.storing || p.landed.Mark.Next < s.next {
		return
	}
	s.storing = true
	taken, revision := s.taken, s.revision
	p.broker.group.Go("store producers of "+p.String(), func(ctx context.Context) error {
		revision, err := storeSnapshot(ctx, p, taken, revision)
		p.mu.Lock()
		defer p.mu.Unlock()
		s.taken, s.storing, s.revision = nil, false, revision
		if err != nil && ctx.Err() == nil {
			p.broker.log.Warn("producers not stored: opening this partition will take longer", "partition", p.String(), "error", err)
		}
		return nil
	})
}

func (s *snapshots) take(p *Partition) {
	p.producers.expire(time.Now().Add(-p.broker.config.ProducerRetention).UnixMilli())
	taken, err := json.Marshal(producersSnapshot{Sequence: p.landed.Sequence, Next: p.next, Producers: p.producers.byID})
	if err != nil {
		panic(fmt.Sprintf("snapshot of producers: %v", err)) // numbers only: cannot happen
	}
	s.taken, s.next, s.bytes = taken, p.next, 0
}

// forget drops what was taken: the records that it knows of were not written.
func (s *snapshots) forget() { s.taken, s.bytes = nil, 0 }

// storeSnapshot replaces the stored snapshot, and returns its revision.
func storeSnapshot(ctx context.Context, p *Partition, taken []byte, revision uint64) (uint64, error) {
	meta, key := p.broker.store.Meta(), snapshotKey(p.topic.ID(), p.number)
	stored, err := meta.Put(ctx, key, taken, revision)
	if errors.Is(err, ErrConflict) { // an earlier one was stored and not answered
		item, getErr := meta.Get(ctx, key)
		if getErr != nil {
			return revision, errors.Join(err, getErr)
		}
		stored, err = meta.Put(ctx, key, taken, item.Revision)
	}
	if err != nil {
		return revision, err
	}
	return stored, nil
}

// loadSnapshot returns the stored snapshot, or one of nothing.
func loadSnapshot(ctx context.Context, p *Partition) (producersSnapshot, uint64, error) {
	none := producersSnapshot{Producers: map[int64]*producer{}}
	item, err := p.broker.store.Meta().Get(ctx, snapshotKey(p.topic.ID(), p.number))
	if errors.Is(err, ErrNotFound) {
		return none, 0, nil
	}
	if err != nil {
		return none, 0, err
	}
	read := none
	if err := json.Unmarshal(item.Value, &read); err != nil {
		return none, 0, fmt.Errorf("snapshot of producers: %w", err)
	}
	for id, known := range read.Producers {
		if known == nil || len(known.Sent) == 0 {
			return none, 0, fmt.Errorf("snapshot of producers: producer %d without batches", id)
		}
	}
	return read, item.Revision, nil
}
