package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/compact"
)

// AddPartitions raises the number of a topic's partitions to count. Records stay
// where they are. The new partitions are placed on the given nodes, one list for each;
// without lists they are spread, with as many replicas as the others have. Errors:
// ErrNoTopic, ErrView, ErrInvalidPartitions, ErrInvalidReplicas, ErrInvalidAssignment,
// ErrQuota of the topic's owner.
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
	err = b.inTurn(ctx, t.owner, dryRun, func(turn []topic.Guard) error {
		t, err = b.addOnce(ctx, name, count, dryRun, on, turn)
		return err
	})
	return t, err
}

// addOnce is addPartitions within the turn of the topic's owner; ErrConflict if that has passed.
func (b *Broker) addOnce(ctx context.Context, name string, count int32, dryRun bool, on [][]int32, turn []topic.Guard) (*Topic, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	t, err := b.Topic(name)
	if err != nil {
		return nil, err
	}
	if t.source != nil {
		return nil, fmt.Errorf("%w: %s has the partitions of %s", topic.ErrView, name, t.source.name)
	}
	if dryRun {
		record, err := b.topicRecord(ctx, name)
		if err != nil {
			return nil, err
		}
		return t, b.growMore(ctx, &record, count, on)
	}
	ctx = context.WithoutCancel(ctx)
	had := len(t.all()) // before the change, which others follow at once
	record, err := b.change(ctx, name, func(record *catalog.Topic) error {
		if int(count) > had && count <= record.Visible() {
			return nil // an earlier attempt could not open them
		}
		return b.growMore(ctx, record, count, on)
	}, turn...)
	if err != nil {
		return nil, err
	}
	if err := b.makeLogs(ctx, record, had); err != nil {
		return nil, err
	}
	return t, b.followTopic(ctx, name)
}

// grow adds partitions to a record up to count; see targets for their placement.
func (b *Broker) grow(ctx context.Context, record *catalog.Topic, count int32, replicas int16, on [][]int32) error {
	if at := record.Visible(); int(at) < len(record.Partitions) {
		last := record.Partitions[at]
		return fmt.Errorf("%w: %w: %d and above can be read until %s; add some after that", topic.ErrInvalidPartitions, topic.ErrPartitionsLeaving, at, time.UnixMilli(last.Until).UTC().Format(time.RFC3339))
	}
	have := int32(len(record.Partitions))
	if count <= have || count > b.config.MaxPartitions {
		return fmt.Errorf("%w %d: want %d to %d", topic.ErrInvalidPartitions, count, have+1, b.config.MaxPartitions)
	}
	if total, most := b.totalPartitions(), int(b.config.TotalPartitions); total+int(count-have) > most {
		return fmt.Errorf("%w: all topics have %d, and %d more would exceed topic.total_partitions, %d: delete some, or raise it", topic.ErrTooManyPartitions, total, count-have, most)
	}
	if err := b.within(record.Owner, 0, int(count-have)); err != nil {
		return err
	}
	sets, err := b.targets(ctx, have, count-have, replicas, on)
	if err != nil {
		return err
	}
	for i, set := range sets {
		before := record.Removed[int(have)+i]
		record.Partitions = append(record.Partitions, catalog.Partition{Replicas: set, Epoch: before.Epoch, Start: before.Start})
	}
	return nil
}

// totalPartitions returns the number of partitions of all topics.
func (b *Broker) totalPartitions() (total int) {
	for _, t := range b.Topics() {
		if t.source == nil {
			total += len(t.all())
		}
	}
	return total
}

// inTurn calls f with the condition under which it may write, see catalog.InTurn; none if the owner has no quota, or f only checks.
// The admin lock is held, so others are nodes only.
func (b *Broker) inTurn(ctx context.Context, owner string, dryRun bool, f func(turn []topic.Guard) error) error {
	if dryRun || b.quotas(owner) == (topic.Quota{}) {
		return f(nil)
	}
	return catalog.InTurn(ctx, b.store.Meta(), b.unmoved, b.moving.serves, func(turn topic.Guard) error { return f([]topic.Guard{turn}) })
}

// within returns an ErrQuota if an owner may not have so many more topics or partitions.
func (b *Broker) within(owner string, topics, partitions int) error {
	most := b.quotas(owner)
	if most == (topic.Quota{}) {
		return nil
	}
	hasTopics, hasPartitions := 0, 0
	for _, t := range b.Topics() {
		if t.owner != owner {
			continue
		}
		if hasTopics++; t.source == nil {
			hasPartitions += len(t.all())
		}
	}
	for _, of := range [...]struct {
		noun, quota     string
		has, more, most int
	}{
		{"topics", "max_topics", hasTopics, topics, most.Topics},
		{"partitions", "max_partitions", hasPartitions, partitions, most.Partitions},
	} {
		if of.most > 0 && of.more > 0 && of.has+of.more > of.most {
			return fmt.Errorf("%w: %s has %d %s, and %d more would exceed %s, %d: delete some, or have an admin raise it", topic.ErrQuota, owner, of.has, of.noun, of.more, of.quota, of.most)
		}
	}
	return nil
}

// growMore is grow for a topic that has partitions: new ones get as many replicas.
func (b *Broker) growMore(ctx context.Context, record *catalog.Topic, count int32, on [][]int32) error {
	return b.grow(ctx, record, count, int16(len(record.Partitions[0].Replicas)), on)
}

// The highest partitions of a topic can be removed. Producers stop seeing them at once;
// consumers can read them by number for a while. Afterwards their numbers may be used
// again: the record keeps the offset and the epoch at which each ended, and a new
// partition of that number begins there. So no offset ever stands for two records, and
// no client takes the new partition for an older state of the old one.

// removalGrace is the default time for which removed partitions can be read.
const removalGrace = 7 * 24 * time.Hour

// RemovePartitions lowers the number of a topic's partitions to count. At once, the
// highest ones accept no more records and are not listed; they can be read by number for
// the grace, and then they are deleted with their delayed records. Grace 0 means 7
// days, or the topic's retention if that is less; negative: none. Until they are gone,
// no partition can be added; the same call with another grace changes theirs. Errors:
// ErrNoTopic, ErrView, ErrInvalidPartitions.
func (b *Broker) RemovePartitions(ctx context.Context, name string, count int32, grace time.Duration) error {
	t, err := b.withPartitions(ctx, name)
	if err != nil {
		return err
	}
	if grace == 0 {
		grace = removalGrace
		if keep := t.Settings().Retention; keep >= 0 {
			grace = min(grace, keep)
		}
	}
	return b.administer(ctx, func() error { return b.removePartitionsLocked(ctx, name, count, grace) })
}

// removePartitionsLocked is RemovePartitions with the effective grace. The admin lock is
// held.
func (b *Broker) removePartitionsLocked(ctx context.Context, name string, count int32, grace time.Duration) error {
	now := time.Now()
	_, err := b.change(ctx, name, func(record *catalog.Topic) error {
		visible := record.Visible()
		if most := len(record.Partitions); count < 1 || count > visible || int(count) == most {
			return fmt.Errorf("%w %d: %s has %d; to remove some want 1 to %d", topic.ErrInvalidPartitions, count, name, visible, visible-1)
		}
		for i := count; int(i) < len(record.Partitions); i++ {
			record.Partitions[i].Until = now.Add(max(grace, 0)).UnixMilli()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.followTopic(ctx, name); err != nil {
		return err
	}
	if grace < 0 {
		return b.deleteRemovedLocked(context.WithoutCancel(ctx), name, now)
	}
	return nil
}

// expireRemoved deletes removed partitions whose grace has passed. The first alive node
// does it.
func (b *Broker) expireRemoved(ctx context.Context, now time.Time) {
	if !b.first() {
		return
	}
	records, err := b.records(ctx)
	if err != nil {
		return // callers that need them get the error; tried again
	}
	for _, record := range records {
		if record.Staying(now) == len(record.Partitions) {
			continue
		}
		b.admin.Lock()
		err := b.deleteRemovedLocked(ctx, record.name, now)
		b.admin.Unlock()
		if err != nil && !errors.Is(err, topic.ErrNoTopic) && ctx.Err() == nil {
			b.log.Warn("removed partitions not deleted, trying again later", "topic", record.name, "error", err)
		}
	}
}

// deleteRemovedLocked deletes a topic's removed partitions in an order that can be
// continued after a crash: first all brokers close them, then their logs are deleted,
// then their places in the record. The admin lock is held.
func (b *Broker) deleteRemovedLocked(ctx context.Context, name string, now time.Time) error {
	record, err := b.change(ctx, name, func(record *catalog.Topic) error {
		for i := record.Staying(now); i < len(record.Partitions); i++ {
			record.Partitions[i].Deleting = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.followTopic(ctx, name); err != nil {
		return err
	}
	// Store where they end before the logs that show it are deleted.
	ends := map[int]int64{}
	for i := record.Kept(); i < len(record.Partitions); i++ {
		if ends[i], err = b.endOfLog(ctx, record.Names(i), record.Partitions[i]); err != nil {
			return err
		}
	}
	record, err = b.change(ctx, name, func(now *catalog.Topic) error {
		if now.ID != record.ID {
			return fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
		}
		for i, end := range ends {
			if i < len(now.Partitions) && now.Partitions[i].Deleting {
				now.Partitions[i].Start = max(now.Partitions[i].Start, end)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := record.Kept(); i < len(record.Partitions); i++ {
		if err := b.deletePartition(ctx, record, i); err != nil {
			return err
		}
	}
	if _, err := b.change(ctx, name, func(now *catalog.Topic) error {
		if now.ID != record.ID {
			return fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
		}
		now.ForgetDeleted()
		return nil
	}); err != nil {
		return err
	}
	return b.followTopic(ctx, name)
}

// shrink closes the partitions that a record no longer has, or whose logs are being
// removed, even if new partitions have their numbers by now.
func (t *Topic) shrink(record catalog.Topic) {
	all, stay := t.all(), 0
	for stay < min(len(all), record.Kept()) && all[stay].removals == record.Removals(stay) {
		stay++
	}
	if stay == len(all) {
		return
	}
	left := slices.Clone(all[:stay])
	t.partitions.Store(&left)
	for _, p := range all[stay:] {
		p.drop()
	}
}

// endOfLog returns the offset after the last record of a partition.
func (b *Broker) endOfLog(ctx context.Context, names catalog.Names, p catalog.Partition) (int64, error) {
	log, err := b.store.OpenLog(ctx, names.Records, b.there(p.Replicas))
	if err != nil {
		return 0, err
	}
	first, last, err := log.Ends(ctx)
	if err != nil {
		return 0, err
	}
	if first > last { // all entries are in the clean generation, if there is one
		record, _, err := compact.ReadRecord(ctx, b.store.Meta(), names)
		return max(p.Start, record.Mark.Next), err
	}
	entry, err := topic.ReadEntry(ctx, log, last)
	if err != nil {
		return 0, err
	}
	return max(p.Start, entry.Mark.Next), nil
}

// deletePartition removes the stored data of a record's partition.
func (b *Broker) deletePartition(ctx context.Context, record catalog.Topic, number int) error {
	names := record.Names(number)
	// The guard of leaders is the record that says that the partition is deleted.
	if err := compact.Delete(ctx, b.store, names); err != nil {
		return err
	}
	if err := b.store.DeleteLog(ctx, names.Records); err != nil {
		return err
	}
	if record.Delays {
		if err := b.store.DeleteLog(ctx, names.Delays); err != nil {
			return err
		}
	}
	meta := b.store.Meta()
	item, err := meta.Get(ctx, names.Snapshot)
	if err == nil {
		err = meta.Delete(ctx, names.Snapshot, item.Revision)
	}
	if errors.Is(err, topic.ErrNotFound) {
		return nil
	}
	return err
}
