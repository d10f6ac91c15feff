package topic

import (
	"context"
	"fmt"
	"time"
)

// AddPartitions raises the number of a topic's partitions to count. Records stay
// where they are. The new partitions are on the given nodes, one list for each, or
// else on well spread ones, as many as the others are on. Errors: ErrNoTopic,
// ErrView, ErrInvalidPartitions, ErrInvalidReplicas, ErrInvalidAssignment.
func (b *Broker) AddPartitions(ctx context.Context, name string, count int32, dryRun bool, on ...[]int32) error {
	t, err := b.addPartitions(ctx, name, count, dryRun, on)
	if err == nil && !dryRun {
		t.awaitUse(ctx)
	}
	return err
}

func (b *Broker) addPartitions(ctx context.Context, name string, count int32, dryRun bool, on [][]int32) (*Topic, error) {
	b.admin.Lock()
	defer b.admin.Unlock()
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	t, err := b.Topic(name)
	if err != nil {
		return nil, err
	}
	if t.source != nil {
		return nil, fmt.Errorf("%w: %s has the partitions of %s", ErrView, name, t.source.name)
	}
	if dryRun {
		record, err := b.topicRecord(ctx, name)
		if err != nil {
			return nil, err
		}
		return t, b.growMore(ctx, &record, count, on)
	}
	ctx = context.WithoutCancel(ctx)
	record, err := b.change(ctx, name, func(record *topicRecord) error {
		if int(count) > len(t.all()) && count <= record.visible() {
			return nil // an attempt before this one could not open them
		}
		return b.growMore(ctx, record, count, on)
	})
	if err != nil {
		return nil, err
	}
	if err := b.makeLogs(ctx, record, len(t.all())); err != nil {
		return nil, err
	}
	return t, b.followTopic(ctx, name)
}

// grow adds partitions to a record until there are count; see targets for what
// says where they are.
func (b *Broker) grow(ctx context.Context, record *topicRecord, count int32, replicas int16, on [][]int32) error {
	if at := record.visible(); int(at) < len(record.Partitions) {
		last := record.Partitions[at]
		return fmt.Errorf("%w: %w: %d and above can be read until %s; add some after that", ErrInvalidPartitions, ErrPartitionsLeaving, at, time.UnixMilli(last.Until).UTC().Format(time.RFC3339))
	}
	have := int32(len(record.Partitions))
	if count <= have || count > b.config.MaxPartitions {
		return fmt.Errorf("%w %d: want %d to %d", ErrInvalidPartitions, count, have+1, b.config.MaxPartitions)
	}
	sets, err := b.targets(ctx, have, count-have, replicas, on)
	if err != nil {
		return err
	}
	for i, set := range sets {
		before := record.Removed[int(have)+i]
		record.Partitions = append(record.Partitions, partitionRecord{Replicas: set, Epoch: before.Epoch, Start: before.Start})
	}
	return nil
}

// growMore is grow for a topic that has partitions: new ones have as many replicas
// as those.
func (b *Broker) growMore(ctx context.Context, record *topicRecord, count int32, on [][]int32) error {
	return b.grow(ctx, record, count, int16(len(record.Partitions[0].Replicas)), on)
}
