package topic

import (
	"context"
	"errors"
	"fmt"
)

// lease is the right to write the groups of a slot. Every write names the revision
// that the slot's record had when it was claimed, so that the store refuses it once
// another broker, or this one anew, has claimed the slot: whoever is deposed
// changes nothing, whether it knows that or not.
type lease struct {
	meta Meta
	// guard is the slot's record as it was claimed; nil for a broker without a
	// cluster, which has all groups for good.
	guard *Guard
	// epoch is the slot's; 0 without a cluster.
	epoch int64
}

func (l *lease) guards() []Guard {
	if l.guard == nil {
		return nil
	}
	return []Guard{*l.guard}
}

func (l *lease) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return l.meta.Put(ctx, key, value, revision, l.guards()...)
}

func (l *lease) delete(ctx context.Context, key string, revision uint64) error {
	return l.meta.Delete(ctx, key, revision, l.guards()...)
}

// reread returns an item after a write of it that met another, or was not
// answered; ErrNotCoordinator if that was because the lease has ended.
func (l *lease) reread(ctx context.Context, key string) (Item, error) {
	if l.guard != nil {
		if err := l.meta.Sync(ctx); err != nil {
			return Item{}, err
		}
		record, err := getItem(ctx, l.meta, l.guard.Key)
		if err != nil {
			return Item{}, err
		}
		if record.Revision != l.guard.Revision {
			return Item{}, fmt.Errorf("%w: %s was claimed anew", ErrNotCoordinator, l.guard.Key)
		}
	}
	return getItem(ctx, l.meta, key)
}

// getItem returns an item; one that does not exist has revision 0.
func getItem(ctx context.Context, meta Meta, key string) (Item, error) {
	item, err := meta.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return Item{Key: key}, nil
	}
	return item, err
}
