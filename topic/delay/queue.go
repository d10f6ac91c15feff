package delay

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// Target is the partition whose records are delayed.
type Target interface {
	// AppendReleased appends a batch with Mark.Released = number, and returns
	// when it is durable. It decides the batch's offsets.
	AppendReleased(ctx context.Context, batch topic.Batch, number int64) error
	// LastReleased returns Mark.Released of the end of the partition's log. It is
	// called after an append failed, and answers, or fails, once no earlier append can
	// still land.
	LastReleased(ctx context.Context) (int64, error)
	// Committed reports whether the batch of an idempotent producer that ends with
	// that sequence was appended. It is called for batches that arrived in the last
	// seconds before a failure. If in doubt, it returns true.
	Committed(producer int64, epoch int16, lastSequence int32) bool
}

// Queue holds the delayed records of one partition: in a log of their own, with their
// ids and due times in memory.
//
// A produced batch passes these steps: Split; Add, which returns when the delayed
// records are durable; the append of the remaining batch; then Keep or Drop of the
// addition. Only kept records are released.
//
// Lock order: its methods, except those of Addition, must not be called with a lock held
// that the target takes.
type Queue struct {
	log    topic.Log
	target Target
	config topic.DelayConfig
	group  *lifecycle.Group
	writer uint64              // distinguishes our entries from another broker's
	room   *semaphore.Weighted // bytes of requests that wait for the writer

	changed lifecycle.Signal // a record may be due earlier; for the release loop
	written lifecycle.Signal // there is work for the writer

	mu       sync.Mutex
	state    delayState
	next     uint64 // sequence of the next entry
	released int64  // number of the last release
	requests []*delayRequest
	adding   map[string]bool // ids of requests that are being written
	settle   settlement
	unsure   []*Addition
	// trimmable is the part of the log that is no longer needed, but not yet trimmed.
	trimmable struct {
		entries int
		bytes   int64
	}
	err error // why nothing more can be written
}

const (
	// delayQueueBytes bounds the requests that wait for the writer.
	delayQueueBytes = 32 << 20
	// settleWithin bounds the time until a settlement is written: long before its
	// producer may be forgotten.
	settleWithin = time.Second
	// cacheWithin is how soon a record must be due to be kept in memory.
	cacheWithin = time.Minute
)

// Open reads the log of a partition's delayed records, and begins to release them. The
// target must know the end of its own log by then. A Queue that has failed is closed and
// opened again.
func Open(ctx context.Context, log topic.Log, target Target, config topic.DelayConfig) (*Queue, error) {
	d := &Queue{
		log: log, target: target, config: config.WithDefaults(), group: lifecycle.NewGroup(ctx),
		room: semaphore.NewWeighted(delayQueueBytes), changed: lifecycle.NewSignal(), written: lifecycle.NewSignal(),
		state: newDelayState(), adding: map[string]bool{},
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // does not fail
	d.writer = binary.BigEndian.Uint64(random[:])
	if err := d.load(ctx); err != nil {
		return nil, err
	}
	d.group.Go("delay log", d.write)
	d.group.Go("release of delayed records", d.release)
	return d, nil
}

// delayReadBytes is how much is read of the log at a time.
const delayReadBytes = 4 << 20

// load applies the operations of the log, and finds the outcome of those that the log
// leaves open.
func (d *Queue) load(ctx context.Context) error {
	first, last, err := d.log.Ends(ctx)
	if err != nil {
		return err
	}
	for at := first; at <= last; {
		entries, err := d.log.Read(ctx, at, delayReadBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fmt.Errorf("read entry %d of %d of a delay log: %w", at, last, topic.ErrNotFound)
		}
		for _, entry := range entries {
			moves, err := readDelayEntry(entry.Data)
			if err != nil {
				return fmt.Errorf("entry %d: %w", entry.Sequence, err)
			}
			d.state.apply(entry.Sequence, len(entry.Data), moves)
			at = entry.Sequence + 1
		}
		last = max(last, at-1)
	}
	d.next = last + 1
	if d.released, err = d.target.LastReleased(ctx); err != nil {
		return err
	}
	d.state.end(d.released >= d.state.release.number)
	for _, item := range d.state.items {
		if item.status != unsettled {
			continue
		}
		if p := item.producer; p == nil || d.target.Committed(p.ID, p.Epoch, p.Sequence) {
			d.settle.kept = append(d.settle.kept, item.id)
			d.state.keep(item)
		} else {
			d.settle.dropped = append(d.settle.dropped, item.id)
			d.state.remove(item)
		}
	}
	return nil
}

// Failed is closed when the queue cannot continue, because of another writer, or because
// the log was deleted or is corrupt; Err returns the reason.
func (d *Queue) Failed() <-chan struct{} { return d.group.Failed() }

// Err returns why the queue cannot continue, or nil.
func (d *Queue) Err() error { return d.group.Err() }

// Close closes the queue after all requests and settlements were written, as far as ctx
// allows. New requests get ErrClosed.
func (d *Queue) Close(ctx context.Context) error {
	last := &delayRequest{done: make(chan error, 1), move: func() (delayMove, error) { return delayMove{}, nil }}
	d.mu.Lock()
	if d.err == nil {
		d.err = topic.ErrClosed
		d.settle.due = true
		d.requests = append(d.requests, last)
	} else {
		last.done <- nil
	}
	d.mu.Unlock()
	d.written.Wake()
	var err error
	select {
	case err = <-last.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if stopErr := d.group.Stop(ctx); stopErr != nil {
		err = stopErr
	}
	d.giveUp(nil, topic.ErrClosed)
	return err
}

// Abandon stops all writes, because another broker may write. Requests get ErrNotLeader
// and may be in the log. Close is called after it.
func (d *Queue) Abandon(ctx context.Context) {
	d.mu.Lock()
	if d.err == nil {
		d.err = topic.ErrNotLeader
	}
	d.mu.Unlock()
	_ = d.group.Stop(ctx)
	d.giveUp(nil, topic.ErrNotLeader)
}

// Pending returns the number of waiting records.
func (d *Queue) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.state.items)
}

// Cancel removes a record before it is due, durably. ErrNotFound if no record of that id
// waits: it may have been released.
func (d *Queue) Cancel(ctx context.Context, id string) error {
	return d.do(ctx, &delayRequest{size: len(id), move: func() (delayMove, error) {
		if item := d.state.items[id]; item == nil || item.status == releasing {
			return delayMove{}, fmt.Errorf("delayed record %q: %w", id, topic.ErrNotFound)
		}
		return delayMove{kind: delayCancel, ids: []string{id}}, nil
	}})
}

// Waiting is a record that waits until it is due.
type Waiting struct {
	// ID names the record, so that it can be canceled.
	ID string `json:"id"`
	// Partition and DeliverAt are the place and time of its appearance.
	Partition int32     `json:"partition"`
	DeliverAt time.Time `json:"deliver_at"`
}

// List returns at most limit waiting records, in the order in which they are due.
func (d *Queue) List(partition int32, limit int) []Waiting {
	d.mu.Lock()
	infos := make([]Waiting, 0, len(d.state.items))
	for id, item := range d.state.items {
		infos = append(infos, Waiting{ID: id, Partition: partition, DeliverAt: time.UnixMilli(item.due)})
	}
	d.mu.Unlock()
	return FirstDue(infos, limit)
}

// FirstDue returns the first records by due time, at most limit.
func FirstDue(infos []Waiting, limit int) []Waiting {
	slices.SortFunc(infos, func(a, b Waiting) int {
		return cmp.Or(a.DeliverAt.Compare(b.DeliverAt), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.ID, b.ID))
	})
	return infos[:min(len(infos), max(limit, 0))]
}

// AddAll replaces each batch by its part that is due now, and makes the rest durable. The
// memory of the unpacker bounds what is on its way to the disk.
func (d *Queue) AddAll(ctx context.Context, unpacker *topic.Unpacker, batches []topic.Batch, now time.Time, usual time.Duration) ([]*Addition, error) {
	var additions []*Addition
	err := func() error {
		for i, batch := range batches {
			if err := unpacker.Unpack(ctx, batch.Compression(), batch[topic.RecordsAt:], func(data []byte) error {
				kept, later, err := d.config.Split(batch, data, now, usual)
				if err != nil {
					return err
				}
				batches[i] = kept
				if later == nil {
					return nil
				}
				addition, err := d.Add(ctx, later)
				if err == nil {
					additions = append(additions, addition)
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		for _, addition := range additions {
			addition.Drop()
		}
	}
	return additions, err
}
