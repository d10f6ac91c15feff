package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/view"
)

// Create creates a topic, which must not exist; with dryRun it only checks. Errors:
// ErrTopicExists, ErrInvalidName, ErrInvalidSetting, ErrInvalidPartitions,
// ErrInvalidReplicas, ErrInvalidAssignment, ErrQuota; ErrNoTopic for a view without source.
func (b *Broker) Create(ctx context.Context, spec topic.Spec, dryRun bool) (*Topic, error) {
	t, err := func() (*Topic, error) {
		b.admin.Lock()
		defer b.admin.Unlock()
		return b.createLocked(ctx, spec, dryRun)
	}()
	if t != nil {
		t.awaitUse(ctx)
	}
	return t, err
}

// createLocked is Create, with the admin lock held.
func (b *Broker) createLocked(ctx context.Context, spec topic.Spec, dryRun bool) (t *Topic, err error) {
	err = b.inTurn(ctx, spec.Owner, dryRun, func(turn []topic.Guard) error {
		t, err = b.createOnce(ctx, spec, dryRun, turn)
		return err
	})
	return t, err
}

// createOnce is createLocked within the turn of the owner; ErrConflict if that has passed.
func (b *Broker) createOnce(ctx context.Context, spec topic.Spec, dryRun bool, turn []topic.Guard) (*Topic, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	record, err := b.check(ctx, spec)
	if err != nil || dryRun {
		return nil, err
	}
	// A creation that has begun is completed, even if the caller has gone.
	ctx = context.WithoutCancel(ctx)
	err = b.putTopic(ctx, spec.Name, record, 0, turn...)
	if errors.Is(err, topic.ErrConflict) {
		if err := b.resume(ctx, spec.Name); err != nil {
			return nil, err
		}
		if _, err := b.Topic(spec.Name); err == nil {
			return nil, fmt.Errorf("%w: %q", topic.ErrTopicExists, spec.Name)
		}
		err = b.putTopic(ctx, spec.Name, record, 0, turn...)
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

// resume completes a topic that is in the catalog but not open, because its
// creation or deletion was interrupted: it opens the topic, or deletes it.
func (b *Broker) resume(ctx context.Context, name string) error {
	item, err := b.store.Meta().Get(ctx, catalog.TopicsPrefix+name)
	if errors.Is(err, topic.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	record, err := catalog.ReadTopic(item)
	if err != nil {
		return err
	}
	if record.Deleting {
		return b.finishDeleting(ctx, name, record)
	}
	return b.followTopic(ctx, name)
}

// creations bounds how fast topics are created automatically.
type creations struct {
	mu sync.Mutex
	// left is how many topics may be created now, as of at.
	left float64
	at   time.Time
}

// take takes the right to create a topic, if there is one.
func (c *creations) take(perMinute int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, atOnce := time.Now(), max(float64(perMinute)/6, 1)
	if c.at.IsZero() {
		c.left = atOnce
	}
	c.left = min(c.left+now.Sub(c.at).Minutes()*float64(perMinute), atOnce)
	c.at = now
	if c.left < 1 {
		return false
	}
	c.left--
	return true
}

// giveBack returns a right that was not used.
func (c *creations) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left++
}

// AutoCreate returns the topic of that name. It creates a missing topic with the
// defaults and that owner, and waits for one that is being created. It returns ErrNoTopic only if too
// many topics were created just before.
func (b *Broker) AutoCreate(ctx context.Context, name, owner string) (*Topic, error) {
	t, err := b.Topic(name)
	if !errors.Is(err, topic.ErrNoTopic) {
		return t, err
	}
	if err := topic.CheckName(name); err != nil { // before anything is read for it
		return nil, err
	}
	t, err = func() (*Topic, error) {
		// With the lock held, so that no other call deletes a topic between its
		// creation and the lookup.
		b.admin.Lock()
		defer b.admin.Unlock()
		if t, err := b.Topic(name); err == nil {
			return t, nil
		}
		if !b.created.take(b.config.AutoCreatePerMinute) { // clients ask again
			return nil, noTopicError(name)
		}
		t, err := b.createLocked(ctx, topic.Spec{Name: name, Owner: owner}, false)
		if err != nil {
			b.created.giveBack()
		}
		if errors.Is(err, topic.ErrTopicExists) {
			return b.Topic(name)
		}
		return t, err
	}()
	if t != nil {
		t.awaitUse(ctx)
	}
	return t, err
}

// check returns the record of a topic to be created.
func (b *Broker) check(ctx context.Context, spec topic.Spec) (catalog.Topic, error) {
	if err := topic.CheckName(spec.Name); err != nil {
		return catalog.Topic{}, err
	}
	if _, err := b.Topic(spec.Name); err == nil {
		return catalog.Topic{}, fmt.Errorf("%w: %q", topic.ErrTopicExists, spec.Name)
	}
	settings, err := b.settings(spec.Name, spec.Settings)
	if err == nil {
		err = b.mayCompact(settings.Settings)
	}
	if err != nil {
		return catalog.Topic{}, err
	}
	record := catalog.Topic{ID: topic.NewID().String(), Settings: maps.Clone(spec.Settings), Delays: settings.Delays, Owner: spec.Owner}
	if err := b.within(spec.Owner, 1, 0); err != nil {
		return catalog.Topic{}, err
	}
	if spec.Settings[topic.SettingViewOf] != "" {
		if spec.Partitions > 0 {
			return catalog.Topic{}, fmt.Errorf("%w: a view has the partitions of its source, not %d of its own", topic.ErrInvalidPartitions, spec.Partitions)
		}
		record.Lends = spec.Lends
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
		return catalog.Topic{}, err
	}
	return record, settings.CheckInSync(record.Replicas())
}

// settings parses a topic's own settings.
func (b *Broker) settings(name string, own map[string]string) (*topicSettings, error) {
	parsed, err := topic.ParseSettings(own, b.config)
	if err != nil {
		return nil, err
	}
	settings := &topicSettings{Settings: parsed, own: maps.Clone(own)}
	if parsed.ViewOf == "" {
		return settings, nil
	}
	source, err := b.Topic(parsed.ViewOf)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", topic.SettingViewOf, name, err)
	}
	if source.source != nil {
		return nil, fmt.Errorf("%w %s: %s is a view itself; make a view of %s", topic.ErrInvalidSetting, topic.SettingViewOf, source.name, source.source.name)
	}
	if settings.filter, err = view.Compile(parsed.ViewWhere); err != nil {
		return nil, fmt.Errorf("%w %s: %w", topic.ErrInvalidSetting, topic.SettingViewWhere, err)
	}
	return settings, nil
}

// Alter changes settings of a topic: it sets those with a value, and resets those
// with nil to the default; with replace, it resets all that are not named too.
func (b *Broker) Alter(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	return b.administer(ctx, func() error { return b.alterLocked(ctx, name, settings, replace, dryRun) })
}

// alterLocked is Alter, with the admin lock held.
func (b *Broker) alterLocked(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
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
	if before := t.Settings().ViewOf; own[topic.SettingViewOf] != before {
		return fmt.Errorf("%w %s: it cannot be changed from %q to %q; make another topic", topic.ErrInvalidSetting, topic.SettingViewOf, before, own[topic.SettingViewOf])
	}
	changed, err := b.settings(name, own)
	if err == nil {
		err = b.mayCompact(changed.Settings)
	}
	if err != nil {
		return err
	}
	before, err := b.topicRecord(ctx, name)
	if err != nil || dryRun {
		return cmp.Or(err, changed.CheckInSync(before.Replicas()))
	}
	if changed.Delays {
		if err := t.makeDelayLogs(ctx); err != nil {
			return err
		}
	}
	if _, err := b.change(ctx, name, func(record *catalog.Topic) error {
		if err := changed.CheckInSync(record.Replicas()); err != nil {
			return err
		}
		record.Settings = own
		record.Delays = record.Delays || changed.Delays
		all := t.all()
		for i, p := range all[:min(len(all), len(record.Partitions))] {
			record.Partitions[i].DelayLog = record.Partitions[i].DelayLog || p.hasDelayLog()
		}
		return nil
	}); err != nil {
		return err
	}
	return b.followTopic(ctx, name)
}
