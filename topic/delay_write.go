package topic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// delayRequest asks the writer for a move.
type delayRequest struct {
	size int
	// alone keeps others out of its entry: what it does depends on what all
	// moves before it have done.
	alone bool
	// move returns what to write, as things are when it is written; a zero
	// move if nothing. Once it is durable, applied is called, and after when
	// that was done for all of its entry; either may be nil. All are called
	// with the lock held.
	move           func() (delayMove, error)
	applied, after func()
	done           chan error
}

// do has the writer make a move, and waits until it is durable.
func (d *Delays) do(ctx context.Context, request *delayRequest) error {
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
	signal(d.written)
	select {
	case err := <-request.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is the writer's loop: what is asked for while one entry is on its way to
// the disk is written together as the next.
func (d *Delays) write(ctx context.Context) error {
	for {
		for {
			entry, group := d.collect()
			if entry == nil && group == nil {
				break
			}
			err := d.commit(ctx, entry)
			if err != nil && !errors.Is(err, ErrFull) {
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

// delayGroup is the requests that one entry answers.
type delayGroup struct {
	requests []*delayRequest
	moves    []delayMove // of the requests
	settle   settlement  // written before them
}

// collect makes one entry of what is to be written. The entry is nil if the
// requests need none, the group as well if there are none.
func (d *Delays) collect() ([]byte, *delayGroup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	group := &delayGroup{}
	clear(d.adding)
	// Much that was settled, or a large request, has an entry of its own. What
	// was settled comes first in any case: a record that was dropped may be
	// added again.
	if many := len(d.settle.kept)+len(d.settle.dropped) > settleMax; many || !d.settle.empty() && len(d.requests) > 0 && d.requests[0].size > entryBytes {
		group.settle = d.settle.take(settleMax)
		return d.encode(group), group
	}
	for size, done := 0, false; len(d.requests) > 0 && !done; {
		request := d.requests[0]
		if size > 0 && (size+request.size > entryBytes || request.alone) {
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

func (d *Delays) encode(group *delayGroup) []byte {
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

// commit returns when an entry is in the log. It does not give up while it is
// not known: the same entry is offered again, and its sequence lets one in. An
// ErrFull says that it is not in the log; after other errors nothing can be
// written any more.
func (d *Delays) commit(ctx context.Context, entry []byte) error {
	if entry == nil {
		return nil
	}
	for wait := delayWaitMin; ; wait = min(2*wait, delayWaitMax) {
		done := make(chan error, 1)
		d.log.Append(Entry{Sequence: d.next, Data: entry}, func(err error) { done <- err })
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err == nil || errors.Is(err, ErrNoLog) || errors.Is(err, ErrClosed) || errors.Is(err, ErrFull) {
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

// landed looks whether an entry that was not answered is in the log. It is known
// if there is one with its sequence.
func (d *Delays) landed(ctx context.Context, entry []byte) (known bool, err error) {
	_, last, err := d.log.Ends(ctx)
	if err != nil || last < d.next {
		return errors.Is(err, ErrNoLog), err
	}
	found, err := d.log.Read(ctx, d.next, 1)
	if err != nil || len(found) == 0 {
		return errors.Is(err, ErrNoLog), err
	}
	if found[0].Sequence != d.next || !bytes.Equal(found[0].Data, entry) {
		return true, fmt.Errorf("entry %d of a delay log is another's: %w", d.next, ErrFenced)
	}
	return true, nil
}

// finish makes the moves of an entry that is durable, and answers.
func (d *Delays) finish(entry []byte, group *delayGroup, err error) {
	d.mu.Lock()
	if err != nil { // nothing was written
		d.settle.kept = append(group.settle.kept, d.settle.kept...)
		d.settle.dropped = append(group.settle.dropped, d.settle.dropped...)
		d.settle.since = time.Now()
	} else {
		if entry != nil {
			// What was settled is so in memory already.
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
	signal(d.changed)
	for _, request := range group.requests {
		request.done <- err
	}
}

// giveUp answers all requests: nothing can be written any more.
func (d *Delays) giveUp(requests []*delayRequest, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrRetry, err)
	}
	for _, request := range append(requests, d.requests...) {
		request.done <- d.err
	}
	d.requests = nil
}
