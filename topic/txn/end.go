package txn

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// sweepEvery is how often transactions are looked for that have timed out, or that no
	// node ends.
	sweepEvery = time.Second
	// endAgainMin and endAgainMax bound the wait after a part of a transaction could not be
	// ended; partTimeout bounds each attempt.
	endAgainMin = 10 * time.Millisecond
	endAgainMax = time.Second
	partTimeout = 10 * time.Second
	// partsAtOnce is how many parts of a transaction are ended at a time.
	partsAtOnce = 16
)

// awaitEnd waits until a transaction whose outcome is decided has ended everywhere, and
// reports whether it has; it waits for endWait at most.
func (c *Coordinator) awaitEnd(ctx context.Context, id string, t Transaction, revision uint64) bool {
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-c.finish(id, t, revision):
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// decision is the outcome of a transaction: the revision of the record of an id. An id has the next one while this node may
// still end the last, which it has read before that was complete.
type decision struct {
	id       string
	revision uint64
}

// finish makes this node end a transaction everywhere, unless it does already. The channel
// is closed when that is done, or another node has done it.
func (c *Coordinator) finish(id string, t Transaction, revision uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := decision{id, revision}
	if done := c.ending[of]; done != nil {
		return done
	}
	done := make(chan struct{})
	c.ending[of] = done
	c.group.Go("end the transaction of "+id, func(ctx context.Context) error {
		c.endEverywhere(ctx, id, t, revision)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ending, of)
		close(done)
		return nil
	})
	return done
}

// endEverywhere ends all parts of a transaction, and records that. It returns early if the
// coordinator stops, or another node has done it.
func (c *Coordinator) endEverywhere(ctx context.Context, id string, t Transaction, revision uint64) {
	m := Marker{TransactionalID: id, Revision: revision, Producer: t.Producer, Commit: t.State == PrepareCommit}
	left := c.partsOf(t, m)
	for wait := endAgainMin; ; wait = min(2*wait, endAgainMax) {
		var err error
		if left, err = c.endParts(ctx, left); err == nil {
			if err = c.completed(ctx, t, m); err == nil {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if decided, readErr := c.Decided(ctx, m); readErr == nil && !decided {
			return
		}
		if wait == endAgainMax {
			c.log.Warn("transaction is not ended everywhere yet", "transactional_id", id, "parts_left", len(left), "error", err)
		}
		if !lifecycle.Sleep(ctx, nil, wait) {
			return
		}
	}
}

// part ends a part of a transaction.
type part func(ctx context.Context) error

// partsOf returns the parts of a transaction.
func (c *Coordinator) partsOf(t Transaction, m Marker) (parts []part) {
	for group, offsets := range t.Offsets {
		if m.Commit && len(offsets) > 0 {
			parts = append(parts, func(ctx context.Context) error { return c.parts.CommitOffsets(ctx, group, offsets, m) })
		}
	}
	for name, numbers := range t.Partitions {
		for _, number := range numbers {
			parts = append(parts, func(ctx context.Context) error { return c.parts.Mark(ctx, name, number, m) })
		}
	}
	return parts
}

// endParts ends parts of a transaction, several at a time, and returns those that failed.
func (c *Coordinator) endParts(ctx context.Context, parts []part) (left []part, err error) {
	errs := make([]error, len(parts))
	var working errgroup.Group
	working.SetLimit(partsAtOnce)
	for i, end := range parts {
		working.Go(func() error {
			within, cancel := context.WithTimeout(ctx, partTimeout)
			defer cancel()
			errs[i] = end(within)
			return nil
		})
	}
	_ = working.Wait()
	for i, failed := range errs {
		if failed != nil {
			left = append(left, parts[i])
		}
	}
	return left, errors.Join(errs...)
}

// completed records that a transaction has ended everywhere.
func (c *Coordinator) completed(ctx context.Context, t Transaction, m Marker) error {
	guards, err := c.parts.Writable()
	if err != nil {
		return err
	}
	t.complete(time.Now())
	value, err := t.encode()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err = c.meta.Put(within, Prefix+m.TransactionalID, value, m.Revision, guards...)
	return err
}

// sweep ends what this node coordinates and no request ends.
func (c *Coordinator) sweep(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := c.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			c.log.Error("transactions cannot be read", "error", err, "again_in", sweepEvery)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// look does what is due now.
func (c *Coordinator) look(ctx context.Context, now time.Time) error {
	if _, err := c.parts.Writable(); err != nil {
		return nil //nolint:nilerr // the topics are being migrated: nothing may be changed
	}
	return c.Each(ctx, func(id string, revision uint64, t Transaction) {
		switch {
		case !t.State.Decided() && t.State != Ongoing && now.UnixMilli()-t.ChangedMS < idRetention.Milliseconds():
		case !c.parts.Coordinates(id):
		case t.State.Decided():
			c.finish(id, t, revision)
		case t.expired(now):
			c.expire(ctx, id)
		case t.State != Ongoing:
			_ = c.meta.Delete(ctx, Prefix+id, revision) // it is tried again
		}
	})
}

// expire aborts a transaction that has taken too long.
func (c *Coordinator) expire(ctx context.Context, id string) {
	t, revision, err := c.change(ctx, id, func(t *Transaction) error {
		if t.expired(time.Now()) {
			t.fence(true)
		}
		return nil
	})
	switch {
	case err != nil:
		c.log.Warn("transaction has timed out and is not aborted yet", "transactional_id", id, "error", err)
	case t.State.Decided():
		c.log.Info("transaction has timed out and is aborted", "transactional_id", id, "timeout", time.Duration(t.TimeoutMS)*time.Millisecond)
		c.finish(id, t, revision)
	}
}
