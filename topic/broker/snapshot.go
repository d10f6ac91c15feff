package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

const (
	// snapshotEvery is how many bytes of entries are appended between two snapshots of a
	// partition's producers: about the most that is read when the partition is opened. Each
	// entry counts for at least entryCost, since many small ones take time too.
	snapshotEvery = 4 << 20
	entryCost     = 256
	// snapshotShare bounds what snapshots cost: one is made after at least that many times
	// its size. The largest, of 10,000 producers, is made every 64 MiB.
	snapshotShare = 16
)

// producersSnapshot is the stored state of a partition's producers. It was taken when
// the entry Sequence was durable and records up to Next were numbered, and stored once
// those were durable too.
type producersSnapshot struct {
	Format    int                 `json:"format,omitempty"`
	Sequence  uint64              `json:"sequence"`
	Next      int64               `json:"next"`
	Producers map[int64]*producer `json:"producers"`
	// Open has the first offset of each open transaction, by producer, and Aborted the
	// aborted transactions: see encodeAborted.
	Open    map[int64]int64 `json:"open,omitempty"`
	Aborted []byte          `json:"aborted,omitempty"`
}

// The numbers of the formats of snapshots. Those of before there was a number have none. A
// snapshot is always written as a whole, so a new field needs a new number. The second has
// transactions, and is written only where there were any: so the others can still be read by
// earlier versions.
const (
	snapshotFormat           = 1
	snapshotWithTransactions = 2
	snapshotFormatLast       = snapshotWithTransactions
)

// newSnapshot returns the snapshot of producers at an entry, and of records up to next.
func newSnapshot(p *producers, sequence uint64, next int64) producersSnapshot {
	s := producersSnapshot{
		Format: snapshotFormat, Sequence: sequence, Next: next,
		Producers: p.clone(), Open: maps.Clone(p.open), Aborted: encodeAborted(p.aborted),
	}
	withoutBatches := func(known *producer) bool { return len(known.Sent) == 0 }
	if len(s.Open) > 0 || len(s.Aborted) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(s.Producers)), withoutBatches) {
		s.Format = snapshotWithTransactions
	}
	return s
}

// restored returns the producers of a snapshot, at most so many.
func (s *producersSnapshot) restored(most int) (producers, error) {
	p := newProducers(most)
	p.byID = s.Producers
	maps.Copy(p.open, s.Open)
	p.restable()
	var err error
	p.aborted, err = decodeAborted(s.Aborted)
	return p, err
}

// snapshots stores the producers of a partition.
type snapshots struct {
	bytes   int64 // of entries since the last snapshot; guarded by Partition.mu
	size    int64 // of the last snapshot; guarded by Partition.mu
	running bool  // a snapshot is being stored; guarded by Partition.mu

	mu       sync.Mutex // held while a snapshot is taken and stored
	revision uint64     // of the stored snapshot
}

// grown is called after each durable entry, and starts a snapshot when it is due.
func (s *snapshots) grown(p *Partition, entry topic.Entry) {
	s.bytes += costOf(entry)
	if s.bytes < max(snapshotEvery, snapshotShare*s.size) || s.running {
		return
	}
	s.running = true
	p.broker.group.Go("store producers of "+p.String(), func(ctx context.Context) error {
		err := p.storeProducers(ctx)
		if err != nil && ctx.Err() == nil {
			p.broker.log.Warn("producers not stored: opening this partition will take longer", "partition", p.String(), "error", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		s.running = false
		return nil
	})
}

func costOf(entry topic.Entry) int64 { return int64(max(entryCost, len(entry.Data))) }

// storeProducers stores the partition's producers once all of their batches are durable:
// otherwise the retry of a lost batch would be taken for a repeat.
func (p *Partition) storeProducers(ctx context.Context) error {
	s := &p.snapshots
	s.mu.Lock()
	defer s.mu.Unlock()
	taken, underWay, err := p.takeSnapshot()
	if err != nil {
		return err
	}
	if underWay != nil {
		if _, _, err := underWay.Wait(ctx); err != nil {
			return err
		}
	}
	p.mu.Lock()
	s.size = int64(len(taken))
	p.mu.Unlock()
	return p.putSnapshot(ctx, taken)
}

// snapshotAttempts bounds the attempts to store a snapshot that conflicts with other
// writes.
const snapshotAttempts = 5

// putSnapshot stores a snapshot. snapshots.mu is held. The catalog must name this
// broker as the partition's leader.
func (p *Partition) putSnapshot(ctx context.Context, value []byte) error {
	meta, key := p.broker.store.Meta(), p.names().Snapshot
	for attempt := 1; ; attempt++ {
		guard, err := p.leaderGuard(ctx)
		if err != nil {
			return err
		}
		revision, err := meta.Put(ctx, key, value, p.snapshots.revision, guard)
		if !errors.Is(err, topic.ErrConflict) || attempt == snapshotAttempts {
			if err == nil {
				p.snapshots.revision = revision
			}
			return err
		}
		// An unanswered write has changed the revision, or the guard has changed.
		if err := meta.Sync(ctx); err != nil {
			return err
		}
		item, err := meta.Get(ctx, key)
		if err != nil && !errors.Is(err, topic.ErrNotFound) {
			return err
		}
		p.snapshots.revision = item.Revision
	}
}

// saveSnapshot stores a snapshot that was cut.
func (p *Partition) saveSnapshot(ctx context.Context, snapshot producersSnapshot) error {
	p.snapshots.mu.Lock()
	defer p.snapshots.mu.Unlock()
	value, err := json.Marshal(snapshot)
	if err != nil {
		return err
	}
	return p.putSnapshot(ctx, value)
}

// settle waits until no snapshot is being stored: a deleted partition makes no other, so
// the stored one can be removed.
func (s *snapshots) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// takeSnapshot returns the present snapshot, and its last append that is not durable. It
// refuses unless the partition is open: otherwise the state is in doubt, or must not be
// stored any more.
func (p *Partition) takeSnapshot() (taken []byte, underWay *Appending, err error) {
	p.mu.Lock()
	if err := p.allowsLocked(); err != nil {
		p.mu.Unlock()
		return nil, nil, err
	}
	p.snapshots.bytes = 0
	p.producers.expire(time.Now().Add(-p.broker.config.ProducerRetention).UnixMilli())
	now := newSnapshot(&p.producers, p.landed.Sequence, p.next)
	underWay = p.appends.last()
	p.mu.Unlock()
	taken, err = json.Marshal(now) // megabytes: appends need not wait for it
	return taken, underWay, err
}

// loadSnapshot returns the stored snapshot, or an empty one, of a log that ends at end.
// Lost reports that the log has lost records that the snapshot knows, as after a power
// failure within the sync interval: then the returned snapshot is cut to the rest, and
// must be stored before anything is appended, so that the lost part never counts again.
func loadSnapshot(ctx context.Context, p *Partition, end point) (read producersSnapshot, lost bool, err error) {
	p.snapshots.mu.Lock()
	defer p.snapshots.mu.Unlock()
	read = producersSnapshot{Producers: map[int64]*producer{}, Open: map[int64]int64{}}
	p.snapshots.revision = 0
	item, err := p.broker.store.Meta().Get(ctx, p.names().Snapshot)
	if errors.Is(err, topic.ErrNotFound) {
		return read, false, nil
	}
	if err != nil {
		return read, false, err
	}
	if err := json.Unmarshal(item.Value, &read); err != nil {
		return read, false, fmt.Errorf("snapshot of producers: %w", err)
	}
	if read.Format > snapshotFormatLast {
		return read, false, fmt.Errorf("snapshot of producers: format %d; this version reads %d: upgrade this node", read.Format, snapshotFormatLast)
	}
	for id, known := range read.Producers {
		if known == nil || len(known.Sent) == 0 && read.Format < snapshotWithTransactions {
			return read, false, fmt.Errorf("snapshot of producers: producer %d without batches", id)
		}
	}
	p.snapshots.revision = item.Revision
	if read.Sequence <= end.Sequence && read.Next <= end.Mark.Next {
		return read, false, nil
	}
	p.broker.log.Error("the end of a log is lost", "partition", p.String(), "offset", end.Mark.Next, "of", read.Next)
	return read, true, read.cut(end)
}

// cut removes everything after an end. A transaction whose abort is lost is open again.
func (s *producersSnapshot) cut(end point) error {
	s.Sequence, s.Next = min(s.Sequence, end.Sequence), min(s.Next, end.Mark.Next)
	aborted, err := decodeAborted(s.Aborted)
	if err != nil {
		return err
	}
	for _, a := range aborted {
		if first, open := s.Open[a.Producer]; a.Last >= s.Next && (!open || a.First < first) {
			s.Open[a.Producer] = a.First
		}
	}
	s.Aborted = encodeAborted(slices.DeleteFunc(aborted, func(a Aborted) bool { return a.Last >= s.Next }))
	maps.DeleteFunc(s.Open, func(_, first int64) bool { return first >= s.Next })
	for id, known := range s.Producers {
		known.Sent = slices.DeleteFunc(known.Sent, func(b sentBatch) bool { return b.Base >= s.Next })
		if _, open := s.Open[id]; !open && len(known.Sent) == 0 {
			delete(s.Producers, id)
		}
	}
	return nil
}
