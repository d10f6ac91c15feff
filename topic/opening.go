package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// storedSettings returns what the settings of a record come to.
func (b *Broker) storedSettings(name string, record topicRecord) (*topicSettings, error) {
	settings, err := b.settings(name, record.Settings)
	if source := record.Settings[SettingViewOf]; err != nil && source != "" {
		// It was right once. It shows nothing until it is altered or deleted.
		b.log.Error("view cannot be read: alter or delete it", "view", name, "error", err)
		return &topicSettings{Settings: Settings{ViewOf: source, ViewWhere: record.Settings[SettingViewWhere]}, own: record.Settings, broken: err}, nil
	}
	return settings, err
}

// lead raises the leader epochs of a topic's partitions, so that whoever led
// them before is told from us, and opens the topic.
func (b *Broker) lead(ctx context.Context, name string) error {
	record, err := b.changeFenced(ctx, name, func(record *topicRecord) error {
		for i := range record.Partitions {
			record.Partitions[i].Epoch++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.add(ctx, name, record)
}

// add opens a topic that is in the catalog.
func (b *Broker) add(ctx context.Context, name string, record topicRecord) error {
	id, err := parseID(record.ID)
	if err != nil {
		return err
	}
	settings, err := b.storedSettings(name, record)
	if err != nil {
		return err
	}
	t := &Topic{name: name, id: id, broker: b}
	t.settings.Store(settings)
	t.partitions.Store(&[]*Partition{})
	if settings.ViewOf != "" {
		if t.source, err = b.Topic(settings.ViewOf); err != nil {
			return err
		}
	} else if err := t.open(ctx, record); err != nil {
		return err
	}
	if record.Delays {
		t.delay()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name], b.byID[id] = t, t
	return nil
}

// open opens the partitions of a record that are not open yet, and gives up those
// that are gone.
func (t *Topic) open(ctx context.Context, record topicRecord) error {
	t.shrink(record)
	partitions := slices.Clone(*t.partitions.Load())
	have, want := len(partitions), record.kept()
	if have < want {
		partitions = append(partitions, make([]*Partition, want-have)...)
	}
	opening, ctx := errgroup.WithContext(ctx)
	for i := have; i < want; i++ {
		opening.Go(func() (err error) {
			if partitions[i], err = t.broker.openPartition(ctx, t, int32(i), record); err != nil {
				return fmt.Errorf("open %s/%d: %w", t.name, i, err)
			}
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	t.partitions.Store(&partitions)
	t.visible.Store(record.visible())
	return nil
}

// delay begins to hold and release delayed records.
func (t *Topic) delay() {
	for _, p := range t.all() {
		p.delay()
	}
}

// openPartition opens a partition; in a cluster it follows at first. One whose log
// is there and cannot be read, or not be fenced, is tried again in the background:
// so others are served.
func (b *Broker) openPartition(ctx context.Context, t *Topic, number int32, of topicRecord) (*Partition, error) {
	record := of.Partitions[number]
	p := &Partition{
		topic: t, number: number, removals: of.removals(int(number)), broker: b, epoch: record.Epoch, start: record.Start,
		leader: record.Leader, replicas: record.Replicas, tail: tail{all: b.tails},
	}
	if b.cluster != nil {
		p.state, p.log = following, &ledLog{store: b.store, name: p.logName()}
		return p, nil
	}
	if err := b.opening.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	log, err := b.store.OpenLog(ctx, p.logName(), nil)
	b.opening.Release(1)
	if err != nil {
		return nil, err
	}
	p.log = log
	for err = p.load(ctx); errors.Is(err, ErrFenced) && ctx.Err() == nil; {
		err = p.load(ctx) // somebody else was faster: it is our turn now
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrNoLog) || errors.Is(err, ErrClosed) {
		return p, err
	}
	b.log.Error("partition cannot be opened", "partition", p.String(), "error", err, "again_in", recoverWaitMax)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beginRecovery(recoverWaitMax)
	return p, nil
}
