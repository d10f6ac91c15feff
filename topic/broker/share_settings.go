package broker

import (
	"context"
	"fmt"
	"maps"

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
