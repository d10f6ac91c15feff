package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
)

// Create makes a topic, which must not exist; with dryRun it only checks. The
// errors are ErrTopicExists, ErrInvalidName, ErrInvalidSetting,
// ErrInvalidPartitions, ErrInvalidReplicas and ErrInvalidAssignment; for a view without source ErrNoTopic.
func (b *Broker) Create(ctx context.Context, spec Spec, dryRun bool) (*Topic, error) {
	t, err := func() (*Topic, error) {
		b.admin.Lock()
		defer b.admin.Unlock()
		return b.create(ctx, spec, dryRun)
	}()
	if t != nil {
		t.awaitUse(ctx)
	}
	return t, err
}

// create is Create, with the admin lock held.
func (b *Broker) create(ctx context.Context, spec Spec, dryRun bool) (*Topic, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	record, err := b.check(ctx, spec)
	if err != nil || dryRun {
		return nil, err
	}
	// What has begun is finished, also if who asked for it has left.
	ctx = context.WithoutCancel(ctx)
	err = b.putTopic(ctx, spec.Name, record, 0)
	if errors.Is(err, ErrConflict) {
		if err := b.resume(ctx, spec.Name); err != nil {
			return nil, err
		}
		if _, err := b.Topic(spec.Name); err == nil {
			return nil, fmt.Errorf("%w: %q", ErrTopicExists, spec.Name)
		}
		err = b.putTopic(ctx, spec.Name, record, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := b.makeLogs(ctx, record, 0); err != nil {
		return nil, err
	}
	if err := b.followTopic(ctx, spec.Name); err != nil {
		return nil, err
	}
	return b.Topic(spec.Name)
}

// resume goes on with a topic that is in the catalog and is not open, because it
// could not be made or deleted to the end: it opens it, or deletes it.
func (b *Broker) resume(ctx context.Context, name string) error {
	item, err := b.store.Meta().Get(ctx, topicsPrefix+name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	record, err := readTopicRecord(item)
	if err != nil {
		return err
	}
	if record.Deleting {
		return b.finishDeleting(ctx, name, record)
	}
	if b.cluster == nil {
		return b.lead(ctx, name)
	}
	return b.followTopic(ctx, name)
}

// AutoCreate returns the topic of that name; it is made with the defaults if it
// does not exist, and waited for if it is being made. It is never an ErrNoTopic.
func (b *Broker) AutoCreate(ctx context.Context, name string) (*Topic, error) {
	t, err := b.Topic(name)
	if !errors.Is(err, ErrNoTopic) {
		return t, err
	}
	t, err = func() (*Topic, error) {
		// With the lock held, so that nobody deletes what somebody else has made
		// before it is looked up.
		b.admin.Lock()
		defer b.admin.Unlock()
		t, err := b.create(ctx, Spec{Name: name}, false)
		if errors.Is(err, ErrTopicExists) {
			return b.Topic(name)
		}
		return t, err
	}()
	if t != nil {
		t.awaitUse(ctx)
	}
	return t, err
}

// check returns the record of a topic to be made.
func (b *Broker) check(ctx context.Context, spec Spec) (topicRecord, error) {
	if err := checkName(spec.Name); err != nil {
		return topicRecord{}, err
	}
	if _, err := b.Topic(spec.Name); err == nil {
		return topicRecord{}, fmt.Errorf("%w: %q", ErrTopicExists, spec.Name)
	}
	settings, err := b.settings(spec.Name, spec.Settings)
	if err != nil {
		return topicRecord{}, err
	}
	record := topicRecord{ID: newID().String(), Settings: maps.Clone(spec.Settings), Delays: settings.Delays}
	if spec.Settings[SettingViewOf] != "" {
		if spec.Partitions > 0 {
			return topicRecord{}, fmt.Errorf("%w: a view has the partitions of its source, not %d of its own", ErrInvalidPartitions, spec.Partitions)
		}
		return record, nil
	}
	count := spec.Partitions
	switch {
	case len(spec.Assignment) > 0:
		count = int32(len(spec.Assignment))
	case count == 0 || count == -1:
		count = b.config.Partitions
	}
	if err := b.grow(ctx, &record, count, spec.Replicas, spec.Assignment); err != nil {
		return topicRecord{}, err
	}
	return record, settings.checkInSync(record.Partitions)
}

// settings returns what a topic's own settings come to.
func (b *Broker) settings(name string, own map[string]string) (*topicSettings, error) {
	parsed, err := ParseSettings(own, b.config)
	if err != nil {
		return nil, err
	}
	settings := &topicSettings{Settings: parsed, own: maps.Clone(own)}
	if parsed.ViewOf == "" {
		return settings, nil
	}
	source, err := b.Topic(parsed.ViewOf)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", SettingViewOf, name, err)
	}
	if source.source != nil {
		return nil, fmt.Errorf("%w %s: %s is a view itself; make a view of %s", ErrInvalidSetting, SettingViewOf, source.name, source.source.name)
	}
	if settings.filter, err = CompileFilter(parsed.ViewWhere); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrInvalidSetting, SettingViewWhere, err)
	}
	return settings, nil
}

// Alter changes settings of a topic: those with a value are set, those with nil
// fall back to the default; with replace, all that are not named fall back too.
func (b *Broker) Alter(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	return b.administer(ctx, func() error { return b.alter(ctx, name, settings, replace, dryRun) })
}

// alter is Alter, with the admin lock held.
func (b *Broker) alter(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	if err := b.catchUp(ctx); err != nil {
		return err
	}
	t, err := b.Topic(name)
	if err != nil {
		return err
	}
	own := t.Own()
	if replace || own == nil {
		own = map[string]string{}
	}
	for key, value := range settings {
		if value == nil {
			delete(own, key)
		} else {
			own[key] = *value
		}
	}
	if before := t.Settings().ViewOf; own[SettingViewOf] != before {
		return fmt.Errorf("%w %s: it cannot be changed from %q to %q; make another topic", ErrInvalidSetting, SettingViewOf, before, own[SettingViewOf])
	}
	changed, err := b.settings(name, own)
	if err != nil {
		return err
	}
	if before, err := b.topicRecord(ctx, name); err != nil || dryRun {
		return cmp.Or(err, changed.checkInSync(before.Partitions))
	}
	if _, err := b.change(ctx, name, func(record *topicRecord) error {
		if err := changed.checkInSync(record.Partitions); err != nil {
			return err
		}
		record.Settings = own
		record.Delays = record.Delays || changed.Delays
		return nil
	}); err != nil {
		return err
	}
	return b.followTopic(ctx, name)
}
