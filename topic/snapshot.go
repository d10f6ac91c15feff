package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// snapshots stores the producers of a partition.
type snapshots struct {
	bytes   int64 // appended since the last one; guarded by Partition.mu
	running bool  // one is being stored since then; guarded by Partition.mu

	mu       sync.Mutex // held while one is taken and stored
	revision uint64     // of the one that is stored
}

// grown is told of each entry that is durable, and has a snapshot stored when it
// is time.
func (s *snapshots) grown(p *Partition, bytes int64) {
	s.bytes += bytes
	if s.bytes < snapshotEvery || s.running {
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

// storeProducers stores what the partition knows of its producers, once all of
// it is durable: otherwise the retry of a batch that is lost would be taken for a
// repeat.
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
	return p.putSnapshot(ctx, taken)
}

// snapshotAttempts is how often a snapshot is stored that meets other writes.
const snapshotAttempts = 5

// putSnapshot stores a snapshot, with snapshots.mu held; in a cluster only as
// long as the catalog says that this broker leads the partition.
func (p *Partition) putSnapshot(ctx context.Context, value []byte) error {
	meta, key := p.broker.store.Meta(), p.names().snapshot
	for attempt := 1; ; attempt++ {
		guards, err := p.lease(ctx)
		if err != nil {
			return err
		}
		revision, err := meta.Put(ctx, key, value, p.snapshots.revision, guards...)
		if !errors.Is(err, ErrConflict) || attempt == snapshotAttempts {
			if err == nil {
				p.snapshots.revision = revision
			}
			return err
		}
		// One was stored and not answered, or the guard has moved on.
		if err := meta.Sync(ctx); err != nil {
			return err
		}
		item, err := meta.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		p.snapshots.revision = item.Revision
	}
}

// saveSnapshot stores what is left of a snapshot.
func (p *Partition) saveSnapshot(ctx context.Context, snapshot producersSnapshot) error {
	p.snapshots.mu.Lock()
	defer p.snapshots.mu.Unlock()
	value, err := json.Marshal(snapshot)
	if err != nil {
		return err
	}
	return p.putSnapshot(ctx, value)
}

// settle waits until none is being stored: of a partition that is deleted there
// will be no other, and what is stored can be removed.
func (s *snapshots) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// takeSnapshot returns what is known now, and the last append of it that is not
// durable. While the partition is not open what it knows is in doubt, or is not
// to be stored any more.
func (p *Partition) takeSnapshot() (taken []byte, underWay *Appending, err error) {
	p.mu.Lock()
	if err := p.allows(); err != nil {
		p.mu.Unlock()
		return nil, nil, err
	}
	p.snapshots.bytes = 0
	p.producers.expire(time.Now().Add(-p.broker.config.ProducerRetention).UnixMilli())
	now := producersSnapshot{Sequence: p.landed.Sequence, Next: p.next, Producers: p.producers.clone()}
	underWay = p.appends.last()
	p.mu.Unlock()
	taken, err = json.Marshal(now) // megabytes: appends need not wait for it
	return taken, underWay, err
}

// loadSnapshot returns the stored snapshot, or one of nothing, of a log that ends
// there. Lost says that the log has lost what the snapshot knows, as by a power cut
// within the sync interval: what is returned is the rest. It must be stored before
// anything is appended, so that the lost part never counts again.
func loadSnapshot(ctx context.Context, p *Partition, end point) (read producersSnapshot, lost bool, err error) {
	p.snapshots.mu.Lock()
	defer p.snapshots.mu.Unlock()
	read = producersSnapshot{Producers: map[int64]*producer{}}
	p.snapshots.revision = 0
	item, err := p.broker.store.Meta().Get(ctx, p.names().snapshot)
	if errors.Is(err, ErrNotFound) {
		return read, false, nil
	}
	if err != nil {
		return read, false, err
	}
	if err := json.Unmarshal(item.Value, &read); err != nil {
		return read, false, fmt.Errorf("snapshot of producers: %w", err)
	}
	for id, known := range read.Producers {
		if known == nil || len(known.Sent) == 0 {
			return read, false, fmt.Errorf("snapshot of producers: producer %d without batches", id)
		}
	}
	p.snapshots.revision = item.Revision
	if read.Sequence <= end.Sequence && read.Next <= end.Mark.Next {
		return read, false, nil
	}
	p.broker.log.Error("the end of a log is lost", "partition", p.String(), "offset", end.Mark.Next, "of", read.Next)
	read.cut(end)
	return read, true, nil
}

// cut forgets what comes after an end.
func (s *producersSnapshot) cut(end point) {
	s.Sequence, s.Next = min(s.Sequence, end.Sequence), min(s.Next, end.Mark.Next)
	for id, known := range s.Producers {
		known.Sent = slices.DeleteFunc(known.Sent, func(b sentBatch) bool { return b.Base >= s.Next })
		if len(known.Sent) == 0 {
			delete(s.Producers, id)
		}
	}
}
