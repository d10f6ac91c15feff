package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/share"
)

// GroupSettings returns the settings of a share group, which need not exist, and those of them that are set for it.
// Errors: ErrInvalidSetting, after a later version has set something; those of the store.
func (b *Broker) GroupSettings(ctx context.Context, name string) (settings topic.GroupSettings, own map[string]string, err error) {
	own, _, err = catalog.ReadGroupSettings(ctx, b.store.Meta(), name)
	if err == nil {
		settings, err = topic.ParseGroupSettings(own, b.config)
	}
	return settings, own, err
}

// parsedSettings has the settings of share groups as they were parsed last, at most parsedMost.
type parsedSettings struct {
	mu  sync.Mutex
	all map[string]parsedGroup
}

const parsedMost = sharesMax

// parsedGroup is the settings of a share group at the revision of their item.
type parsedGroup struct {
	revision uint64
	settings topic.GroupSettings
}

// ShareSettings returns the settings of a share group, as GroupSettings does. It reads them each time, but parses them once.
func (b *Broker) ShareSettings(ctx context.Context, name string) (topic.GroupSettings, error) {
	item, err := catalog.Get(ctx, b.store.Meta(), catalog.GroupSettingsPrefix+name)
	if err != nil {
		return topic.GroupSettings{}, err
	}
	known := &b.parsed
	known.mu.Lock()
	defer known.mu.Unlock()
	if parsed, is := known.all[name]; is && parsed.revision == item.Revision {
		return parsed.settings, nil
	}
	own, err := catalog.DecodeGroupSettings(item)
	if err != nil {
		return topic.GroupSettings{}, err
	}
	settings, err := topic.ParseGroupSettings(own, b.config)
	if err != nil || item.Revision == 0 {
		delete(known.all, name)
		return settings, err
	}
	if len(known.all) >= parsedMost {
		clear(known.all)
	}
	known.all[name] = parsedGroup{item.Revision, settings}
	return settings, nil
}

// AlterGroup changes settings of a share group, which need not exist: it sets those with a value, and resets those with nil
// to the default; with replace, it resets all that are not named too. They count from the next fetch on, and stay
// when the group is deleted. As many groups have settings as there may be groups. Errors: ErrInvalidSetting,
// ErrInvalidGroup, ErrTooManyGroups; those of the store.
func (b *Broker) AlterGroup(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	if err := group.CheckName(name); err != nil {
		return err
	}
	for range catalog.StoreAttempts {
		err := b.tryAlterGroup(ctx, name, settings, replace, dryRun)
		if err == nil || !catalog.Uncertain(err) {
			return err
		}
	}
	return fmt.Errorf("settings of group %q: %w, %d times", name, topic.ErrConflict, catalog.StoreAttempts)
}

func (b *Broker) tryAlterGroup(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	meta := b.store.Meta()
	if err := b.moving.serves(); err != nil {
		return err
	}
	if err := meta.Sync(ctx); err != nil {
		return err
	}
	own, revision, err := catalog.ReadGroupSettings(ctx, meta, name)
	if err != nil {
		return err
	}
	changed := map[string]string{}
	if !replace {
		maps.Copy(changed, own)
	}
	for key, value := range settings {
		if value == nil {
			delete(changed, key)
		} else {
			changed[key] = *value
		}
	}
	if _, err := topic.ParseGroupSettings(changed, b.config); err != nil || dryRun || maps.Equal(changed, own) {
		return err
	}
	if revision == 0 {
		all, err := meta.List(ctx, catalog.GroupSettingsPrefix)
		if err != nil {
			return err
		}
		if most := b.config.Groups.GroupsMax; len(all) >= most {
			return fmt.Errorf("%w: %d have settings, as many as may", group.ErrTooManyGroups, most)
		}
	}
	return catalog.PutGroupSettings(ctx, meta, name, changed, revision, b.unmoved()...)
}

// shareLimits returns what members of a share group may do with the records of a topic.
func (b *Broker) shareLimits(settings topic.GroupSettings, of string) share.Limits {
	return share.Limits{
		Lock: settings.Lock, Deliveries: int16(settings.Deliveries), Records: b.config.Shares.Records,
		Backoff: settings.Backoff, BackoffMax: settings.BackoffMax,
		DeadLetters: settings.DeadLetters != "" && settings.DeadLetters != of, // dead letters of dead letters would never end
	}
}

// ResetShare makes a share group without members go on at an offset of a partition, or begin there. A group that does not exist is
// made. Errors: ErrNoPartition; group.ErrOtherProtocol, group.ErrGroupNotEmpty; those of group.MakeShare and the store.
func (b *Broker) ResetShare(ctx context.Context, name string, t *Topic, number int32, offset int64) error {
	if err := errors.Join(b.moving.serves(), t.Has(number)); err != nil {
		return err
	}
	if err := b.groups.MakeShare(ctx, name); err != nil {
		return err
	}
	meta, key := b.store.Meta(), share.Key(t.id, number, name)
	for range catalog.StoreAttempts {
		guard, err := b.mayReset(ctx, name)
		if err != nil {
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

// mayReset returns the condition under which what a share group knows may be changed, from now on: that it has no members,
// and stays as it is.
func (b *Broker) mayReset(ctx context.Context, name string) (topic.Guard, error) {
	meta := b.store.Meta()
	if err := meta.Sync(ctx); err != nil {
		return topic.Guard{}, err
	}
	guard, err := group.ShareGuard(ctx, meta, name)
	if err == nil {
		err = b.groups.MayReset(name)
	}
	return guard, err
}

// ForgetShares makes a share group without members forget what it knows of the records of a topic, so that it reads the topic as
// if for the first time. Errors: ErrNotFound if it knows nothing of it; those of ResetShare.
func (b *Broker) ForgetShares(ctx context.Context, name string, t *Topic) error {
	if err := b.moving.serves(); err != nil {
		return err
	}
	meta, known := b.store.Meta(), false
	for range catalog.StoreAttempts {
		guard, err := b.mayReset(ctx, name)
		if err != nil {
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
