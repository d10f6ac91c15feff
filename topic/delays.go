package topic

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/lifecycle"
)

// DelayTarget is the partition whose records are delayed.
type DelayTarget interface {
	// AppendReleased appends a batch with Mark.Released = number, and returns
	// when it is durable. It decides the batch's offsets.
	AppendReleased(ctx context.Context, batch Batch, number int64) error
	// LastReleased returns Mark.Released of the end of the partition's log. It is
	// asked after an append failed, and answers, or fails, once no append
	// from before can still come.
	LastReleased(ctx context.Context) (int64, error)
	// Committed tells whether the batch of an idempotent producer that ends with
	// that sequence was appended. It is asked about batches that arrived in the
	// last seconds before a failure. If in doubt: true.
	Committed(producer int64, epoch int16, lastSequence int32) bool
}

// Delays is the delayed records of one partition: in a log of their own, in
// memory their ids and when they are due.
//
// A produced batch goes through it in this order: Split; Add, which returns when
// the delayed records are durable; the append of what Split kept; then Keep or
// Drop of the addition. Only what is kept is released.
//
// Lock order: none of its methods may be called with a lock held that the
// target takes, except those of Addition.
type Delays struct {
	log    Log
	target DelayTarget
	config DelayConfig
	group  *lifecycle.Group
	writer uint64              // tells our entries from those of another broker
	room   *semaphore.Weighted // bytes of requests that wait for the writer

	changed chan struct{} // something may be due earlier; for the release loop
	written chan struct{} // there is something to write; for the writer

	mu       sync.Mutex
	state    delayState
	next     uint64 // sequence of the next entry
	released int64  // number of the last release
	requests []*delayRequest
	adding   map[string]bool // ids of the requests that are being written
	settle   settlement
	unsure   []*Addition
	// trimmable is what was forgotten of the log, but not yet trimmed.
	trimmable struct {
		entries int
		bytes   int64
	}
	err error // why nothing can be written any more
}

const (
	// delayQueueBytes bounds the requests that wait for the writer.
	delayQueueBytes = 32 << 20
	// settleWithin is how soon it is written whether a batch was appended: long
	// before its producer may be forgotten.
	settleWithin = time.Second
	// cacheWithin is how soon a record must be due to be kept in memory.
	cacheWithin = time.Minute
)

// OpenDelays reads the log of a partition's delayed records, and begins to
// release them. The target must know the end of its own log by then. A Delays
// that has failed is closed and opened again.
func OpenDelays(ctx context.Context, log Log, target DelayTarget, config DelayConfig) (*Delays, error) {
	d := &Delays{
		log: log, target: target, config: config.WithDefaults(), group: lifecycle.NewGroup(ctx),
		room: semaphore.NewWeighted(delayQueueBytes), changed: make(chan struct{}, 1), written: make(chan struct{}, 1),
		state: newDelayState(), adding: map[string]bool{},
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
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

// load makes the moves of the log again, and finds out what became of those
// whose end is not in it.
func (d *Delays) load(ctx context.Context) error {
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
			return fmt.Errorf("read entry %d of %d of a delay log: %w", at, last, ErrNotFound)
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

// Failed is closed when it cannot go on, because of another writer or a log that
// was deleted or is corrupt; Err then tells why.
func (d *Delays) Failed() <-chan struct{} { return d.group.Failed() }

// Err returns why it cannot go on, or nil.
func (d *Delays) Err() error { return d.group.Err() }

// Close ends it, after what was asked for and what is known was written, as far
// as ctx allows. New requests get ErrClosed.
func (d *Delays) Close(ctx context.Context) error {
	last := &delayRequest{done: make(chan error, 1), move: func() (delayMove, error) { return delayMove{}, nil }}
	d.mu.Lock()
	if d.err == nil {
		d.err = ErrClosed
		d.settle.due = true
		d.requests = append(d.requests, last)
	} else {
		last.done <- nil
	}
	d.mu.Unlock()
	signal(d.written)
	var err error
	select {
	case err = <-last.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if stopErr := d.group.Stop(ctx); stopErr != nil {
		err = stopErr
	}
	d.giveUp(nil, ErrClosed)
	return err
}

// abandon makes it write nothing any more, because another broker may. What was
// asked for gets ErrNotLeader: it may be in the log. Close is called after it.
func (d *Delays) abandon(ctx context.Context) {
	d.mu.Lock()
	if d.err == nil {
		d.err = ErrNotLeader
	}
	d.mu.Unlock()
	_ = d.group.Stop(ctx)
	d.giveUp(nil, ErrNotLeader)
}

// Pending returns how many records wait.
func (d *Delays) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.state.items)
}

// Cancel takes a record out before it is due, durably. ErrNotFound if none of
// that id waits: it may have been released.
func (d *Delays) Cancel(ctx context.Context, id string) error {
	return d.do(ctx, &delayRequest{size: len(id), move: func() (delayMove, error) {
		if item := d.state.items[id]; item == nil || item.status == releasing {
			return delayMove{}, fmt.Errorf("delayed record %q: %w", id, ErrNotFound)
		}
		return delayMove{kind: delayCancel, ids: []string{id}}, nil
	}})
}

// signal wakes a loop up, which may be awake.
func signal(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}
