package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/share"
)

// ResetShare makes a share group without members go on at an offset of a partition, or begin there. Errors:
// ErrNoPartition; group.ErrNoGroup, group.ErrOtherProtocol, group.ErrGroupNotEmpty; those of the
// coordinator and the store.
func (b *Broker) ResetShare(ctx context.Context, name string, t *Topic, number int32, offset int64) error {
	if err := errors.Join(b.moving.serves(), t.Has(number)); err != nil {
		return err
	}
	meta, key := b.store.Meta(), share.Key(t.id, number, name)
	for range catalog.StoreAttempts {
		if err := meta.Sync(ctx); err != nil {
			return err
		}
		guard, err := group.ShareGuard(ctx, meta, name)
		if err != nil {
			return err
		}
		if err := b.groups.MayReset(name); err != nil {
			return err
		}
		item, err := catalog.Get(ctx, meta, key)
		if err != nil {
			return err
		}
		epoch := int32(0)
		if item.Revision != 0 {
			if _, epoch, err = share.Decode(item.Value, share.Limits{}); err != nil {
				return fmt.Errorf("metadata %q: %w", key, err)
			}
		}
		value, err := share.New(offset, share.Limits{}).Encode(time.Now(), epoch)
		if err != nil {
			return err
		}
		if _, err = meta.Put(ctx, key, value, item.Revision, guard); err == nil || !catalog.Uncertain(err) {
			return err
		}
	}
	return fmt.Errorf("%q: %w, %d times", key, topic.ErrConflict, catalog.StoreAttempts)
}

// ForgetShares makes a share group without members forget what it knows of the records of a topic, so that it reads the topic as
// if for the first time. Errors: ErrNotFound if it knows nothing of it; those of ResetShare.
func (b *Broker) ForgetShares(ctx context.Context, name string, t *Topic) error {
	if err := b.moving.serves(); err != nil {
		return err
	}
	meta, known := b.store.Meta(), false
	for range catalog.StoreAttempts {
		if err := meta.Sync(ctx); err != nil {
			return err
		}
		guard, err := group.ShareGuard(ctx, meta, name)
		if err != nil {
			return err
		}
		if err := b.groups.MayReset(name); err != nil {
			return err
		}
		items, err := meta.List(ctx, share.TopicPrefix(t.id))
		for i := 0; i < len(items) && err == nil; i++ {
			if _, _, of := share.SplitKey(items[i].Key); of == name {
				known = true
				err = meta.Delete(ctx, items[i].Key, items[i].Revision, guard)
			}
		}
		if err == nil && !known {
			return fmt.Errorf("%w: %q has read nothing of %s", topic.ErrNotFound, name, t.name)
		}
		if err == nil || !catalog.Uncertain(err) {
			return err
		}
	}
	return fmt.Errorf("share group %q in %s: %w, %d times", name, t.name, topic.ErrConflict, catalog.StoreAttempts)
}
