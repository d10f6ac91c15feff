package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// A group of an owner with a quota has a key in the metadata before it is made, so that all nodes count it at once: groups are stored
// later, when their members have an assignment or offsets. The key goes with the group. If the group comes to nothing, or the node ends before it
// is stored, the key is removed when it would make the owner exceed the quota.

const (
	// OwnersPrefix begins the keys.
	OwnersPrefix = "group-owners/"
	ownerFormat  = 1
	// madeWithin is how long a group may take until it is stored.
	madeWithin = 10 * time.Minute
)

// groupOwner is the value of a key.
type groupOwner struct {
	Format int    `json:"format"`
	Owner  string `json:"owner"`
	// AtMS is when the group was admitted, in milliseconds since the epoch.
	AtMS int64 `json:"at_ms"`
}

// Lacks reports whether this node coordinates a group that does not exist.
func (gs *Groups) Lacks(name string) bool {
	_, err := gs.find(name, false)
	return errors.Is(err, ErrNoGroup)
}

// Admit counts a group that is about to be made for its owner, who may have at most so many. That is exact over nodes, for groups that
// were made while the owner had a quota. A group that is not stored within 10 minutes need not count any more. Errors: ErrTooManyGroups,
// ErrCoordinatorUnavailable.
func (gs *Groups) Admit(ctx context.Context, name, owner string, most int) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	select {
	case gs.admitting <- struct{}{}:
		defer func() { <-gs.admitting }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	slot := func() []topic.Guard {
		gs.mu.Lock()
		defer gs.mu.Unlock()
		if of := gs.slots[SlotOf(name)].owner; of != nil {
			return []topic.Guard{of.guard}
		}
		return nil
	}
	err := catalog.InTurn(ctx, gs.meta, slot, func() error {
		_, err := gs.find(name, false)
		if errors.Is(err, ErrNoGroup) {
			return nil
		}
		return err
	}, func(turn topic.Guard) error { return gs.admit(ctx, name, owner, most, turn) })
	if err == nil || errors.Is(err, ErrTooManyGroups) {
		return err
	}
	return unavailable(err)
}

// admit is Admit within a turn; ErrConflict if that has passed.
func (gs *Groups) admit(ctx context.Context, name, owner string, most int, turn topic.Guard) error {
	if err := gs.meta.Sync(ctx); err != nil {
		return err
	}
	items, err := gs.meta.List(ctx, OwnersPrefix)
	if err != nil {
		return err
	}
	now := time.Now()
	has, own := 0, topic.Item{}
	for _, item := range items {
		var record groupOwner
		if err := json.Unmarshal(item.Value, &record); err != nil {
			return fmt.Errorf("metadata %q: %w", item.Key, err)
		}
		switch of := item.Key[len(OwnersPrefix):]; {
		case of == name:
			own = item
		case record.Owner != owner:
		case now.Sub(time.UnixMilli(record.AtMS)) < madeWithin:
			has++
		default:
			stored, err := gs.stored(ctx, of)
			if err != nil {
				return err
			}
			if stored {
				has++
			} else if err := gs.meta.Delete(ctx, item.Key, item.Revision, turn); err != nil {
				return err
			}
		}
	}
	if has >= most {
		return fmt.Errorf("%w: %s has %d, and one more would exceed max_groups, %d: delete some, or have an admin raise it", ErrTooManyGroups, owner, has, most)
	}
	value, err := json.Marshal(groupOwner{ownerFormat, owner, now.UnixMilli()})
	if err == nil {
		_, err = gs.meta.Put(ctx, OwnersPrefix+name, value, own.Revision, turn)
	}
	return err
}

// stored reports whether something of a group is in the metadata.
func (gs *Groups) stored(ctx context.Context, name string) (bool, error) {
	is, err := Stored(ctx, gs.meta, name)
	if is || err != nil {
		return is, err
	}
	offsets, err := StoredOffsets(ctx, gs.meta, name)
	return len(offsets) > 0, err
}

// removeOwner removes the key of a group that is removed.
func (c *coordinator) removeOwner(ctx context.Context) error {
	item, err := catalog.Get(ctx, c.groups.meta, OwnersPrefix+c.name)
	if err != nil {
		return err
	}
	return RemoveItem(ctx, c.owner, item.Key, item.Revision)
}
