package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-project/sluice/lifecycle"
)

// Delete removes a topic and its records. ErrNoTopic; ErrHasViews if views show
// it.
func (b *Broker) Delete(ctx context.Context, name string) error {
	return b.administer(ctx, func() error { return b.delete(ctx, name) })
}

// delete is Delete, with the admin lock held.
func (b *Broker) delete(ctx context.Context, name string) error {
	if err := b.catchUp(ctx); err != nil {
		return err
	}
	// One that is not open may be in the catalog all the same; see resume.
	t, _ := b.Topic(name)
	for _, other := range b.Topics() {
		if t != nil && other.source == t {
			return fmt.Errorf("%w: delete %q first", ErrHasViews, other.name)
		}
	}
	ctx = context.WithoutCancel(ctx)
	record, err := b.change(ctx, name, func(record *topicRecord) error {
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

// close gives up what a topic has in memory.
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

// finishDeleting removes what a topic has stored, and then its record, so that
// it is gone on with after a crash. Several brokers may do so.
func (b *Broker) finishDeleting(ctx context.Context, name string, record topicRecord) error {
	if there, err := b.isDeleting(ctx, name, record.ID); err != nil || !there {
		return err
	}
	// A topic that is made again must not begin where groups have left this one.
	if err := b.groups.ForgetTopic(ctx, name); err != nil {
		return err
	}
	for number := range record.Partitions {
		if err := b.deletePartition(ctx, record, number); err != nil {
			return err
		}
	}
	return b.forget(ctx, name, record.ID)
}

// isDeleting tells whether a topic of that identity is still being deleted:
// another broker may have done it, and the topic been made again.
func (b *Broker) isDeleting(ctx context.Context, name, id string) (bool, error) {
	meta := b.store.Meta()
	if b.cluster != nil {
		if err := meta.Sync(ctx); err != nil {
			return false, err
		}
	}
	item, err := meta.Get(ctx, topicsPrefix+name)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	record, err := readTopicRecord(item)
	return record.ID == id && record.Deleting, err
}

// forget removes the record of a topic that is being deleted.
func (b *Broker) forget(ctx context.Context, name, id string) error {
	meta := b.store.Meta()
	for {
		item, err := meta.Get(ctx, topicsPrefix+name)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		record, err := readTopicRecord(item)
		if err != nil || record.ID != id {
			return err // another has removed it, and it was made again
		}
		switch err := meta.Delete(ctx, item.Key, item.Revision); {
		case errors.Is(err, ErrNotFound):
			return nil
		case !errors.Is(err, ErrConflict):
			return err
		}
		if err := meta.Sync(ctx); err != nil {
			return err
		}
	}
}

// goOnDeleting removes a topic in the background, if that is this broker's task:
// it was asked to, and could not, or who was asked is dead and it is the first of
// those that are alive. It is called with the catalog's lock held.
func (b *Broker) goOnDeleting(name string, item Item) {
	record, err := readTopicRecord(item)
	if err != nil {
		return
	}
	id, _ := parseID(record.ID)
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
		if !b.admin.TryLock() { // who was asked may be at it
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
