package group

import (
	"context"
	"fmt"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Ownership is the right to write the groups of a slot. Every write names the revision
// that the slot's record had when it was claimed. So the store refuses the write once
// another broker, or this one again, has claimed the slot: a deposed owner changes
// nothing, even if it does not know that it was deposed.
type Ownership struct {
	Meta topic.Meta
	// guard is the slot's record as it was claimed.
	guard topic.Guard
	// epoch is the slot's epoch.
	epoch int64
}

func (l *Ownership) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return l.Meta.Put(ctx, key, value, revision, l.guard)
}

func (l *Ownership) delete(ctx context.Context, key string, revision uint64) error {
	return l.Meta.Delete(ctx, key, revision, l.guard)
}

// reread returns an item after a write of it that conflicted, or was not answered;
// ErrNotCoordinator if the ownership has ended.
func (l *Ownership) reread(ctx context.Context, key string) (topic.Item, error) {
	if err := l.Meta.Sync(ctx); err != nil {
		return topic.Item{}, err
	}
	record, err := catalog.Get(ctx, l.Meta, l.guard.Key)
	if err != nil {
		return topic.Item{}, err
	}
	if record.Revision != l.guard.Revision {
		return topic.Item{}, fmt.Errorf("%w: %s was claimed again", ErrNotCoordinator, l.guard.Key)
	}
	return catalog.Get(ctx, l.Meta, key)
}
