package delay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// delayRequest asks the writer for an operation.
type delayRequest struct {
	size int
	// alone keeps other requests out of its entry: it depends on the results of all
	// operations before it.
	alone bool
	// move returns the operation to write, given the state when it is written; a zero
	// operation for none. Once that is durable, applied is called, and after when
	// applied was called for the whole entry; either may be nil. All are called with
	// the lock held.
	move           func() (delayMove, error)
	applied, after func()
	done           chan error
}

// do has the writer write an operation, and waits until it is durable.
func (d *Queue) do(ctx context.Context, request *delayRequest) error {
	request.done = make(chan error, 1)
	size := int64(min(max(request.size, 1), delayQueueBytes))
	if err := d.room.Acquire(ctx, size); err != nil {
		return err
	}
	defer d.room.Release(size)
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return d.err
	}
	d.requests = append(d.requests, request)
	d.mu.Unlock()
	d.written.Wake()
	select {
	case err := <-request.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is the writer's loop: requests that arrive while one entry is on its way to the
// disk are written together as the next.
func (d *Queue) write(ctx context.Context) error {
	for {
		for {
			entry, group := d.collect()
			if entry == nil && group == nil {
				break
			}
			err := d.commit(ctx, entry)
			if err != nil && !errors.Is(err, topic.ErrFull) {
				d.giveUp(group.requests, err)
				return err
			}
			d.finish(entry, group, err)
			if err != nil && !lifecycle.Sleep(ctx, nil, delayWaitMax) {
				return ctx.Err()
			}
		}
		select {
		case <-d.written:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delayGroup holds the requests that one entry answers.
type delayGroup struct {
	requests []*delayRequest
	moves    []delayMove // of the requests
	settle   settlement  // written before them
}

// collect makes the next entry. The entry is nil if the requests need none; the group is
// nil too if there are none.
func (d *Queue) collect() ([]byte, *delayGroup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	group := &delayGroup{}
	clear(d.adding)
	// A large settlement, or a large request, has an entry of its own. Settlements come
	// first in any case: a record that was dropped may be added again.
	if many := len(d.settle.kept)+len(d.settle.dropped) > settleMax; many || !d.settle.empty() && len(d.requests) > 0 && d.requests[0].size > topic.EntryBytes {
		group.settle = d.settle.take(settleMax)
		return d.encode(group), group
	}
	for size, done := 0, false; len(d.requests) > 0 && !done; {
		request := d.requests[0]
		if size > 0 && (size+request.size > topic.EntryBytes || request.alone) {
			break
		}
		d.requests = d.requests[1:]
		move, err := request.move()
		if err != nil {
			request.done <- err
			continue
		}
		size += request.size + 1
		done = request.alone
		group.requests = append(group.requests, request)
		if move.kind != 0 {
			group.moves = append(group.moves, move)
		}
	}
	if !d.settle.empty() && (d.settle.due || len(group.moves) > 0) {
		group.settle, d.settle = d.settle, settlement{}
	}
	if len(group.moves) == 0 && group.settle.empty() {
		if len(group.requests) == 0 {
			group = nil
		}
		return nil, group
	}
	return d.encode(group), group
}

func (d *Queue) encode(group *delayGroup) []byte {
	entry := newDelayEntry(d.writer)
	if !group.settle.empty() {
		entry = appendDelayMove(entry, delayMove{kind: delaySettle, ids: group.settle.kept, dropped: group.settle.dropped})
	}
	for _, move := range group.moves {
		entry = appendDelayMove(entry, move)
	}
	sealDelayEntry(entry)
	return entry
}

const (
	delayWaitMin = 10 * time.Millisecond
	delayWaitMax = time.Second
)

// commit returns when an entry is in the log. While the outcome is unknown it continues:
// it offers the same entry again, and the sequence admits only one. ErrFull means that
// the entry is not in the log; after other errors nothing more can be written.
func (d *Queue) commit(ctx context.Context, entry []byte) error {
	if entry == nil {
		return nil
	}
	for wait := delayWaitMin; ; wait = min(2*wait, delayWaitMax) {
		done := make(chan error, 1)
		d.log.Append(topic.Entry{Sequence: d.next, Data: entry}, func(err error) { done <- err })
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err == nil || errors.Is(err, topic.ErrNoLog) || errors.Is(err, topic.ErrClosed) || errors.Is(err, topic.ErrFull) {
			return err
		}
		known, err := d.landed(ctx, entry)
		if known {
			return err
		}
		if !lifecycle.Sleep(ctx, nil, wait) {
			return ctx.Err()
		}
	}
}

// landed reports whether the fate of an unanswered entry is known: it is if the log has an
// entry of its sequence. The error is ErrFenced if that is another writer's.
func (d *Queue) landed(ctx context.Context, entry []byte) (known bool, err error) {
	_, last, err := d.log.Ends(ctx)
	if err != nil || last < d.next {
		return errors.Is(err, topic.ErrNoLog), err
	}
	found, err := d.log.Read(ctx, d.next, 1)
	if err != nil || len(found) == 0 {
		return errors.Is(err, topic.ErrNoLog), err
	}
	if found[0].Sequence != d.next || !bytes.Equal(found[0].Data, entry) {
		return true, fmt.Errorf("entry %d of a delay log is another's: %w", d.next, topic.ErrFenced)
	}
	return true, nil
}

// finish applies the operations of a durable entry, and answers the requests.
func (d *Queue) finish(entry []byte, group *delayGroup, err error) {
	d.mu.Lock()
	if err != nil { // nothing was written
		d.settle.kept = append(group.settle.kept, d.settle.kept...)
		d.settle.dropped = append(group.settle.dropped, d.settle.dropped...)
		d.settle.since = time.Now()
	} else {
		if entry != nil {
			// Settlements were applied to the memory already.
			d.state.apply(d.next, len(entry), group.moves)
			d.next++
		}
		for _, request := range group.requests {
			if request.applied != nil {
				request.applied()
			}
		}
		for _, request := range group.requests {
			if request.after != nil {
				request.after()
			}
		}
	}
	d.mu.Unlock()
	d.changed.Wake()
	for _, request := range group.requests {
		request.done <- err
	}
}

// giveUp fails all requests: nothing more can be written.
func (d *Queue) giveUp(requests []*delayRequest, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("%w: %w", topic.ErrRetry, err)
	}
	for _, request := range append(requests, d.requests...) {
		request.done <- d.err
	}
	d.requests = nil
}
