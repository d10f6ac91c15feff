package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// ForgetTopic removes all offsets of a topic that no longer exists, and returns when
// they are removed durably. Each broker removes those of its groups when it
// sees that the topic is deleted or being deleted, and ForgetTopic waits for that, at
// most 10 seconds. Errors: ErrCoordinatorUnavailable, ErrCoordinatorLoading, ErrClosed,
// ctx's.
func (gs *Groups) ForgetTopic(ctx context.Context, topic string) error {
	if err := gs.ready(); err != nil {
		return err
	}
	var answers []*Awaited[[]error]
	for _, c := range gs.all() {
		_, err := c.do(func(c *coordinator, _ time.Time) error {
			if forget := c.forgetTopic(topic); forget != nil {
				answers = append(answers, forget)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrCoordinatorLoading) { // a group that is being removed
			return err
		}
	}
	var failed error
	for _, answer := range answers {
		errs, err := answer.Wait(ctx)
		failed = errors.Join(failed, err, errors.Join(errs...))
	}
	if failed != nil && !errors.Is(failed, ErrNotCoordinator) { // another broker removes them
		return failed
	}
	return gs.awaitForgotten(ctx, topic)
}

// awaitForgotten waits until no group has offsets of a topic.
func (gs *Groups) awaitForgotten(ctx context.Context, topicName string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, fmt.Errorf("%w: groups still have offsets of %q", ErrCoordinatorUnavailable, topicName))
	defer cancel()
	changed := lifecycle.NewSignal()
	defer gs.meta.Watch(OffsetsPrefix, changed.Wake)()
	if err := gs.meta.Sync(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrCoordinatorUnavailable, err)
	}
	for {
		items, err := gs.meta.List(ctx, OffsetsPrefix)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(items, func(item topic.Item) bool { _, of := SplitOffsetsKey(item.Key); return of == topicName }) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// forgetTopic removes the offsets of a topic, including those being written; nil if
// there are none.
func (c *coordinator) forgetTopic(topic string) *Awaited[[]error] {
	partitions := map[int32]offsetChange{}
	for partition := range c.offsets[topic].partitions {
		partitions[partition] = offsetChange{}
	}
	for _, w := range []*groupWrite{c.underway, c.waiting} {
		if w != nil {
			for partition := range w.offsets[topic] {
				partitions[partition] = offsetChange{}
			}
		}
	}
	if len(partitions) == 0 {
		return nil
	}
	c.change(topic, partitions)
	changes := newWaitingCommit(1)
	changes.topics[0] = topic
	return c.await(changes)
}

// topicsThere returns the topics that exist and are not being deleted, or that an import
// is about to open.
func (gs *Groups) topicsThere(ctx context.Context) (map[string]bool, error) {
	there := map[string]bool{}
	// In this order, so that a topic that is opened in between is included.
	if err := catalog.Opening(ctx, gs.meta, func(topic string) { there[topic] = true }); err != nil {
		return nil, err
	}
	items, err := gs.meta.List(ctx, catalog.TopicsPrefix)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if topicIsThere(item) {
			there[item.Key[len(catalog.TopicsPrefix):]] = true
		}
	}
	return there, nil
}

// topicIsThere reports whether offsets of a topic are kept; they are if its record cannot
// be read.
func topicIsThere(item topic.Item) bool {
	record, err := catalog.ReadTopic(item)
	return item.Revision != 0 && (err != nil || !record.Deleting)
}

// forgetMissing removes the offsets of topics that are not there. The topic may have been
// created since the list was read, and a member may have committed: so forgetMissing
// checks again, with the coordinator's lock held, under which commits are accepted.
func (c *coordinator) forgetMissing(ctx context.Context, there map[string]bool) error {
	if c.gone || c.closed || c.group.state == Dead {
		return nil
	}
	missing := map[string]bool{}
	for topic := range c.offsets {
		missing[topic] = !there[topic]
	}
	for _, w := range []*groupWrite{c.underway, c.waiting} {
		if w != nil {
			for topic := range w.offsets {
				missing[topic] = !there[topic]
			}
		}
	}
	for topic, lacks := range missing {
		if !lacks {
			continue
		}
		is := false
		if err := catalog.Opening(ctx, c.groups.meta, func(opening string) { is = is || opening == topic }); err != nil {
			return err
		}
		item, err := catalog.Get(ctx, c.groups.meta, catalog.TopicsPrefix+topic)
		if err != nil {
			return err
		}
		is = is || topicIsThere(item)
		if !is {
			c.forgetTopic(topic)
		}
	}
	return nil
}

// forgetTopics removes the offsets of deleted topics, if topics have changed, and returns
// the time until it need be called again.
func (gs *Groups) forgetTopics(ctx context.Context, now time.Time) (time.Duration, error) {
	if !gs.follow.topicsChanged.Load() {
		return lookInterval, nil
	}
	if early := gs.follow.forgetAfter.Sub(now); early > 0 {
		return early, nil
	}
	gs.follow.topicsChanged.Store(false)
	gs.follow.forgetAfter = now.Add(forgetInterval)
	there, err := gs.topicsThere(ctx)
	if err == nil {
		for _, c := range gs.all() {
			c.mu.Lock()
			err = errors.Join(err, c.forgetMissing(ctx, there))
			c.flush()
			c.mu.Unlock()
		}
	}
	if err != nil {
		gs.follow.topicsChanged.Store(true)
	}
	return lookInterval, err
}
