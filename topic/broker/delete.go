package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/share"
)

// Delete removes a topic and its records. Errors: ErrNoTopic; ErrHasViews if the
// topic has views.
func (b *Broker) Delete(ctx context.Context, name string) error {
	return b.administer(ctx, func() error { return b.deleteLocked(ctx, name) })
}

// deleteLocked is Delete, with the admin lock held.
func (b *Broker) deleteLocked(ctx context.Context, name string) error {
	if err := b.catchUp(ctx); err != nil {
		return err
	}
	// A topic that is not open may still be in the catalog; see resume.
	t, _ := b.Topic(name)
	for _, other := range b.Topics() {
		if t != nil && other.source == t {
			return fmt.Errorf("%w: delete %q first", topic.ErrHasViews, other.name)
		}
	}
	ctx = context.WithoutCancel(ctx)
	record, err := b.change(ctx, name, func(record *catalog.Topic) error {
		record.Deleting, record.Deleter = true, b.Node()
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.followTopic(ctx, name); err != nil {
		return err
	}
	return b.finishDeleting(ctx, name, record)
}

// close releases a topic's memory.
func (b *Broker) close(t *Topic) {
	b.mu.Lock()
	delete(b.topics, t.name)
	delete(b.byID, t.id)
	b.mu.Unlock()
	if t.source != nil {
		return
	}
	for _, p := range t.all() {
		p.drop()
	}
	for _, view := range b.Topics() {
		if view.source == t { // another node has deleted it, and did not know the view yet
			b.gone(view.name)
		}
	}
}

// finishDeleting removes a topic's stored data, and then its record, so that an
// interrupted deletion is continued after a crash. Several brokers may call it.
func (b *Broker) finishDeleting(ctx context.Context, name string, record catalog.Topic) error {
	if there, err := b.isDeleting(ctx, name, record.ID); err != nil || !there {
		return err
	}
	// A topic that is created again must not start at the groups' old offsets.
	if err := b.groups.ForgetTopic(ctx, name); err != nil {
		return err
	}
	for number := range record.Partitions {
		if err := b.deletePartition(ctx, record, number); err != nil {
			return err
		}
	}
	id, err := topic.ParseID(record.ID)
	if err != nil {
		return err
	}
	if err := b.deleteShares(ctx, share.TopicPrefix(id)); err != nil {
		return err
	}
	return b.forget(ctx, name, record.ID)
}

// isDeleting reports whether a topic of that identity is still being deleted: another
// broker may have completed that, and the topic may have been created again.
func (b *Broker) isDeleting(ctx context.Context, name, id string) (bool, error) {
	meta := b.store.Meta()
	if err := meta.Sync(ctx); err != nil {
		return false, err
	}
	item, err := meta.Get(ctx, catalog.TopicsPrefix+name)
	if errors.Is(err, topic.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	record, err := catalog.ReadTopic(item)
	return record.ID == id && record.Deleting, err
}

// forget removes the record of a topic that is being deleted.
func (b *Broker) forget(ctx context.Context, name, id string) error {
	meta := b.store.Meta()
	for {
		item, err := meta.Get(ctx, catalog.TopicsPrefix+name)
		if errors.Is(err, topic.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		record, err := catalog.ReadTopic(item)
		if err != nil || record.ID != id {
			return err // another broker removed it, and it was created again
		}
		switch err := meta.Delete(ctx, item.Key, item.Revision); {
		case errors.Is(err, topic.ErrNotFound):
			return nil
		case !errors.Is(err, topic.ErrConflict):
			return err
		}
		if err := meta.Sync(ctx); err != nil {
			return err
		}
	}
}

// goOnDeletingLocked removes a topic in the background, if that is this broker's task:
// it was asked to and failed, or the broker that was asked is dead and this one is
// the first of those alive. The catalog's lock is held.
func (b *Broker) goOnDeletingLocked(name string, item topic.Item) {
	record, err := catalog.ReadTopic(item)
	if err != nil {
		return
	}
	id, _ := topic.ParseID(record.ID)
	alive := b.Alive()
	deleter := record.Deleter
	if !slices.Contains(alive, deleter) && len(alive) > 0 {
		deleter = alive[0]
	}
	if deleter != b.Node() || b.catalog.deleting[id] || b.Isolated() {
		return
	}
	b.catalog.deleting[id] = true
	b.group.Go("delete "+name, func(ctx context.Context) error {
		if !b.admin.TryLock() { // the broker that was asked may still do it
			lifecycle.Sleep(ctx, nil, deleteAgain)
			b.admin.Lock()
		}
		err := b.finishDeleting(ctx, name, record)
		b.admin.Unlock()
		if err != nil && ctx.Err() == nil {
			b.log.Warn("topic not deleted, trying again", "topic", name, "error", err)
			lifecycle.Sleep(ctx, nil, deleteAgain)
		}
		b.catalog.mu.Lock()
		defer b.catalog.mu.Unlock()
		delete(b.catalog.deleting, id)
		b.catalog.changed.Store(true)
		b.look()
		return nil
	})
}
