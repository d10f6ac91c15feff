package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// storeTimeout bounds one write of a group.
	storeTimeout = 10 * time.Second
	// maxWaitingCommits bounds the commits of one group that wait during a write; above
	// it a commit is refused.
	maxWaitingCommits = 10_000
	// parallelWrites is how many items of one group are written at a time.
	parallelWrites = 8
)

// groupWrite is one write of a group. Requests that arrive during a write are collected
// in the next: the group commit.
type groupWrite struct {
	offsets map[string]map[int32]offsetChange
	commits []*waitingCommit
	record  *groupRecord
	saved   []func(now time.Time, err error)
	remove  bool
	removed []*Awaited[struct{}]
}

// waitingCommit is a request that changes offsets: an error for each that will not be
// changed, and the topic of each.
type waitingCommit struct {
	topics []string
	errs   []error
	answer *Awaited[[]error]
}

// nextWrite returns the next write.
func (c *coordinator) nextWrite() *groupWrite {
	if c.waiting == nil {
		c.waiting = &groupWrite{offsets: map[string]map[int32]offsetChange{}}
	}
	return c.waiting
}

// save stores the group: if several states wait, the last.
func (c *coordinator) save(record groupRecord, done func(time.Time, error)) {
	w := c.nextWrite()
	w.record = &record
	w.saved = append(w.saved, done)
}

// change collects changes of offsets. A commit replaces an expiry.
func (c *coordinator) change(topic string, changes map[int32]offsetChange) {
	w := c.nextWrite()
	if w.offsets[topic] == nil {
		w.offsets[topic] = map[int32]offsetChange{}
	}
	for partition, change := range changes {
		if _, changed := w.offsets[topic][partition]; changed && !change.onlyOf.IsZero() {
			continue
		}
		w.offsets[topic][partition] = change
	}
}

// remove makes the next write remove the group. Until then it is Dead.
func (c *coordinator) remove() *Awaited[struct{}] {
	c.group.state = Dead
	clear(c.group.pending)
	w := c.nextWrite()
	answer := newAwaited[struct{}]()
	w.remove, w.removed = true, append(w.removed, answer)
	return answer
}

// flush starts the next write, unless one is in progress.
func (c *coordinator) flush() {
	if c.waiting != nil && !c.writing && !c.gone {
		c.writing = true
		c.groups.work.Go("write of group "+c.name, c.write)
	}
}

// failWaiting fails the requests of the next write of a coordinator that is deposed.
func (c *coordinator) failWaiting() {
	w := c.waiting
	if w == nil {
		return
	}
	failed := map[string]error{}
	for topic := range w.offsets {
		failed[topic] = ErrNotCoordinator
	}
	w.answer(time.Now(), failed, ErrNotCoordinator)
	for _, answer := range w.removed {
		answer.settle(struct{}{}, ErrNotCoordinator)
	}
	c.waiting = nil // writes that the answered requests have left
}

// write writes until nothing waits. It continues while the broker stops: then no new
// requests arrive.
func (c *coordinator) write(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.gone {
			c.failWaiting()
		}
		w := c.waiting
		c.waiting, c.underway = nil, w
		if w == nil {
			c.writing = false
			if c.quiet != nil {
				close(c.quiet)
				c.quiet = nil
			}
			c.dropIfUnused()
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		c.writeOne(within, w)
		cancel()
	}
}

// written is the result of one topic's changes.
type written struct {
	offsets topicOffsets
	err     error
}

func (c *coordinator) writeOne(ctx context.Context, w *groupWrite) {
	topics := Sorted(w.offsets)
	results := make([]written, len(topics))
	revision, recordErr := c.revision, error(nil)

	var items errgroup.Group
	items.SetLimit(parallelWrites)
	for i, topic := range topics {
		items.Go(func() error {
			r := &results[i]
			r.offsets, r.err = storeOffsets(ctx, c.owner, OffsetsKey(c.name, topic), c.offsets[topic], w.offsets[topic])
			return r.err
		})
	}
	if w.record != nil && !w.remove {
		items.Go(func() error {
			revision, recordErr = storeGroup(ctx, c.owner, GroupKey(c.name), c.revision, *w.record)
			return recordErr
		})
	}
	c.failed("write a group", items.Wait())

	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = revision
	if w.record != nil && !w.remove {
		if c.unsure = recordErr != nil; !c.unsure {
			c.group.unstored = max(c.group.generation-w.record.Generation, 0)
		}
	}
	failed := map[string]error{}
	for i, topic := range topics {
		c.setOffsets(topic, results[i].offsets)
		failed[topic] = unavailable(results[i].err)
	}
	now := time.Now()
	w.answer(now, failed, unavailable(recordErr))
	c.changed(now)
	if w.remove {
		c.mu.Unlock()
		c.removeAll(ctx, w)
		c.mu.Lock()
	}
}

// failed logs the error of a write. If another broker has the group, it has all of its
// slot.
func (c *coordinator) failed(what string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNotCoordinator):
		c.groups.log.Info(what, "group", c.name, "error", err)
		c.groups.depose(c.owner)
	default:
		c.groups.log.Error(what, "group", c.name, "error", err)
	}
}

// answer reports the results of the changes of each topic, and of the group.
func (w *groupWrite) answer(now time.Time, failed map[string]error, recordErr error) {
	for _, commit := range w.commits {
		commit.settle(failed)
	}
	for _, done := range w.saved {
		done(now, recordErr)
	}
}

func (c *coordinator) setOffsets(topic string, offsets topicOffsets) {
	if offsets.revision == 0 {
		delete(c.offsets, topic)
		return
	}
	c.offsets[topic] = offsets
}

// settle answers a commit: offsets that were refused at once stay refused.
func (w *waitingCommit) settle(failed map[string]error) {
	for i, topic := range w.topics {
		if w.errs[i] == nil {
			w.errs[i] = failed[topic]
		}
	}
	w.answer.settle(w.errs, nil)
}

// removeAll removes a stored group: the offsets first, so that the rest is still a group
// if that fails.
func (c *coordinator) removeAll(ctx context.Context, w *groupWrite) {
	topics := Sorted(c.offsets)
	gone := 0
	var err error
	for _, topic := range topics {
		if err = RemoveItem(ctx, c.owner, OffsetsKey(c.name, topic), c.offsets[topic].revision); err != nil {
			break
		}
		gone++
	}
	if err == nil {
		err = c.removeWindows(ctx)
	}
	if err == nil {
		err = c.removeRecord(ctx)
	}
	if err == nil {
		err = c.removeOwner(ctx)
	}
	c.failed("remove a group", err)

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics[:gone] {
		delete(c.offsets, topic)
	}
	if err != nil {
		c.group.state = Empty
	} else {
		c.revision, c.unsure = 0, false
		c.drop()
	}
	for _, answer := range w.removed {
		answer.settle(struct{}{}, unavailable(err))
	}
}

// removeRecord removes the stored group, even if a failed write left it.
func (c *coordinator) removeRecord(ctx context.Context) error {
	revision := c.revision
	if c.unsure {
		item, err := c.owner.reread(ctx, GroupKey(c.name))
		if err != nil {
			return err
		}
		revision = item.Revision
	}
	return RemoveItem(ctx, c.owner, GroupKey(c.name), revision)
}

// unavailable wraps an error of the store in ErrCoordinatorUnavailable, unless the error
// is more specific.
func unavailable(err error) error {
	for _, clear := range []error{nil, ErrGroupTooLarge, ErrOffsetMetadataTooLarge, ErrNotCoordinator} {
		if errors.Is(err, clear) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
}
