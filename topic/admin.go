package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Create makes a topic, which must not exist; with dryRun it only checks. The
// errors are ErrTopicExists, ErrInvalidName, ErrInvalidSetting,
// ErrInvalidPartitions and ErrInvalidReplicas; for a view without source ErrNoTopic.
func (b *Broker) Create(ctx context.Context, spec Spec, dryRun bool) (*Topic, error) {
	b.admin.Lock()
	defer b.admin.Unlock()
	return b.create(ctx, spec, dryRun)
}

// create is Create, with the admin lock held.
func (b *Broker) create(ctx context.Context, spec Spec, dryRun bool) (*Topic, error) {
	record, err := b.check(spec)
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
	return b.add(ctx, spec.Name, record)
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
		return b.finishDeleting(ctx, name, record, item.Revision)
	}
	return b.lead(ctx, name)
}

// AutoCreate returns the topic of that name; it is made with the defaults if it
// does not exist, and waited for if it is being made. It is never an ErrNoTopic.
func (b *Broker) AutoCreate(ctx context.Context, name string) (*Topic, error) {
	t, err := b.Topic(name)
	if !errors.Is(err, ErrNoTopic) {
		return t, err
	}
	// With the lock held, so that nobody deletes what somebody else has made
	// before it is looked up.
	b.admin.Lock()
	defer b.admin.Unlock()
	t, err = b.create(ctx, Spec{Name: name}, false)
	if errors.Is(err, ErrTopicExists) {
		return b.Topic(name)
	}
	return t, err
}

// check returns the record of a topic to be made.
func (b *Broker) check(spec Spec) (topicRecord, error) {
	if err := checkName(spec.Name); err != nil {
		return topicRecord{}, err
	}
	if _, err := b.Topic(spec.Name); err == nil {
		return topicRecord{}, fmt.Errorf("%w: %q", ErrTopicExists, spec.Name)
	}
	if spec.Replicas < -1 || spec.Replicas > 1 {
		return topicRecord{}, fmt.Errorf("%w: %d replicas on 1 broker", ErrInvalidReplicas, spec.Replicas)
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
	if count == 0 || count == -1 {
		count = b.config.Partitions
	}
	return record, b.grow(&record, count)
}

// grow adds partitions to a record until there are count.
func (b *Broker) grow(record *topicRecord, count int32) error {
	if count <= int32(len(record.Partitions)) || count > b.config.MaxPartitions {
		return fmt.Errorf("%w %d: want %d to %d", ErrInvalidPartitions, count, len(record.Partitions)+1, b.config.MaxPartitions)
	}
	for int32(len(record.Partitions)) < count {
		record.Partitions = append(record.Partitions, partitionRecord{Replicas: []int32{b.Node()}})
	}
	return nil
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

// lead raises the leader epochs of a topic's partitions, so that whoever led
// them before is told from us, and opens the topic.
func (b *Broker) lead(ctx context.Context, name string) error {
	record, err := b.change(ctx, name, func(record *topicRecord) error {
		for i := range record.Partitions {
			record.Partitions[i].Epoch++
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = b.add(ctx, name, record)
	return err
}

// add opens a topic that is in the catalog.
func (b *Broker) add(ctx context.Context, name string, record topicRecord) (*Topic, error) {
	id, err := parseID(record.ID)
	if err != nil {
		return nil, err
	}
	settings, err := b.settings(name, record.Settings)
	if source := record.Settings[SettingViewOf]; err != nil && source != "" {
		// It was right once. It shows nothing until it is altered or deleted.
		b.log.Error("view cannot be read: alter or delete it", "view", name, "error", err)
		settings = &topicSettings{Settings: Settings{ViewOf: source, ViewWhere: record.Settings[SettingViewWhere]}, own: record.Settings, broken: err}
	} else if err != nil {
		return nil, err
	}
	t := &Topic{name: name, id: id, broker: b}
	t.settings.Store(settings)
	t.partitions.Store(&[]*Partition{})
	if settings.ViewOf != "" {
		if t.source, err = b.Topic(settings.ViewOf); err != nil {
			return nil, err
		}
	} else if err := t.open(ctx, record); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name], b.byID[id] = t, t
	return t, nil
}

// open opens the partitions of a record that are not open yet.
func (t *Topic) open(ctx context.Context, record topicRecord) error {
	partitions := slices.Clone(*t.partitions.Load())
	have := len(partitions)
	partitions = append(partitions, make([]*Partition, max(len(record.Partitions)-have, 0))...)
	opening, ctx := errgroup.WithContext(ctx)
	for i := have; i < len(record.Partitions); i++ {
		opening.Go(func() (err error) {
			if partitions[i], err = t.broker.openPartition(ctx, t, int32(i), record.Partitions[i]); err != nil {
				return fmt.Errorf("open %s/%d: %w", t.name, i, err)
			}
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	t.partitions.Store(&partitions)
	if record.Delays {
		t.delay()
	}
	return nil
}

// delay begins to hold and release delayed records.
func (t *Topic) delay() {
	for _, p := range t.Partitions() {
		p.delay()
	}
}

// openPartition opens a partition. One whose log is there and cannot be read,
// or not be fenced, is tried again in the background: so others are served.
func (b *Broker) openPartition(ctx context.Context, t *Topic, number int32, record partitionRecord) (*Partition, error) {
	if err := b.opening.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer b.opening.Release(1)
	log, err := b.store.OpenLog(ctx, logName(t.id, number))
	if err != nil {
		return nil, err
	}
	p := &Partition{
		topic: t, number: number, broker: b, log: log, epoch: record.Epoch, start: record.Start,
		tail: tail{all: b.tails},
	}
	for err = p.load(ctx); errors.Is(err, ErrFenced) && ctx.Err() == nil; {
		err = p.load(ctx) // somebody else was faster: it is our turn now
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrNoLog) || errors.Is(err, ErrClosed) {
		return p, err
	}
	b.log.Error("partition cannot be opened", "partition", p.String(), "error", err, "again_in", recoverWaitMax)
	b.group.Go("open "+p.String(), func(ctx context.Context) error {
		if !pause(ctx, recoverWaitMax) {
			return nil
		}
		return p.recover(ctx)
	})
	return p, nil
}

// Delete removes a topic and its records. ErrNoTopic; ErrHasViews if views show
// it.
func (b *Broker) Delete(ctx context.Context, name string) error {
	b.admin.Lock()
	defer b.admin.Unlock()
	// One that is not open may be in the catalog all the same; see resume.
	t, _ := b.Topic(name)
	for _, other := range b.Topics() {
		if t != nil && other.source == t {
			return fmt.Errorf("%w: delete %q first", ErrHasViews, other.name)
		}
	}
	ctx = context.WithoutCancel(ctx)
	record, err := b.change(ctx, name, func(record *topicRecord) error {
		record.Deleting = true
		return nil
	})
	if err != nil {
		return err
	}
	if t != nil {
		b.close(t)
	}
	item, err := b.store.Meta().Get(ctx, topicsPrefix+name)
	if err != nil {
		return err
	}
	return b.finishDeleting(ctx, name, record, item.Revision)
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
	for _, p := range t.Partitions() {
		p.drop()
	}
}

// finishDeleting removes what a topic has stored, and then its record, so that
// it is gone on with after a crash.
func (b *Broker) finishDeleting(ctx context.Context, name string, record topicRecord, revision uint64) error {
	id, err := parseID(record.ID)
	if err != nil {
		return err
	}
	// A topic that is made again must not begin where groups have left this one.
	if err := b.groups.ForgetTopic(ctx, name); err != nil {
		return err
	}
	meta := b.store.Meta()
	for number := range record.Partitions {
		if err := b.store.DeleteLog(ctx, logName(id, int32(number))); err != nil {
			return err
		}
		if record.Delays {
			if err := b.store.DeleteLog(ctx, delayLogName(id, int32(number))); err != nil {
				return err
			}
		}
		key := snapshotKey(id, int32(number))
		item, err := meta.Get(ctx, key)
		if err == nil {
			err = meta.Delete(ctx, key, item.Revision)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return meta.Delete(ctx, topicsPrefix+name, revision)
}

// AddPartitions raises the number of a topic's partitions to count. Records stay
// where they are.
func (b *Broker) AddPartitions(ctx context.Context, name string, count int32, dryRun bool) error {
	b.admin.Lock()
	defer b.admin.Unlock()
	t, err := b.Topic(name)
	if err != nil {
		return err
	}
	if t.source != nil {
		return fmt.Errorf("%w: %s has the partitions of %s", ErrView, name, t.source.name)
	}
	if dryRun {
		return b.grow(&topicRecord{Partitions: make([]partitionRecord, len(t.Partitions()))}, count)
	}
	ctx = context.WithoutCancel(ctx)
	record, err := b.change(ctx, name, func(record *topicRecord) error {
		if int(count) > len(t.Partitions()) && int(count) <= len(record.Partitions) {
			return nil // an attempt before this one could not open them
		}
		return b.grow(record, count)
	})
	if err != nil {
		return err
	}
	return t.open(ctx, record)
}

// Alter changes settings of a topic: those with a value are set, those with nil
// fall back to the default; with replace, all that are not named fall back too.
func (b *Broker) Alter(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	b.admin.Lock()
	defer b.admin.Unlock()
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
	if err != nil || dryRun {
		return err
	}
	if _, err := b.change(ctx, name, func(record *topicRecord) error {
		record.Settings = own
		record.Delays = record.Delays || changed.Delays
		return nil
	}); err != nil {
		return err
	}
	if changed.Delays {
		t.delay()
	}
	t.settings.Store(changed)
	return nil
}
