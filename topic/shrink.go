package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The highest partitions of a topic can be removed. They are gone from what
// producers see at once, and can be read by their numbers for a while. Their
// numbers may be used again afterwards: the record keeps at which offset and epoch
// each ended, and a new partition of the number begins there, so that no offset
// ever stands for two records, and no client takes the new one for an older state
// of the old one.

// removalGrace is how long removed partitions can be read if nobody says.
const removalGrace = 7 * 24 * time.Hour

// removedPartition is what is kept of a partition that is gone.
type removedPartition struct {
	// Times is how often one of its number was removed; Epoch and Start are where
	// the last one ended.
	Times int   `json:"times"`
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// RemovePartitions lowers the number of a topic's partitions to count. The highest
// ones take no more records, and are not told of any more, at once; they can be
// read by number for the grace, and then they are deleted, with what is delayed in
// them. Grace 0 means 7 days, or the topic's retention if that is less; negative:
// none. Until they are gone, none can be added; the same call with another grace
// changes theirs. Errors: ErrNoTopic, ErrView, ErrInvalidPartitions.
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
	return b.administer(ctx, func() error { return b.removePartitions(ctx, name, count, grace) })
}

// removePartitions is RemovePartitions with its grace, and the admin lock held.
func (b *Broker) removePartitions(ctx context.Context, name string, count int32, grace time.Duration) error {
	now := time.Now()
	_, err := b.change(ctx, name, func(record *topicRecord) error {
		visible := record.visible()
		if most := len(record.Partitions); count < 1 || count > visible || int(count) == most {
			return fmt.Errorf("%w %d: %s has %d; to remove some want 1 to %d", ErrInvalidPartitions, count, name, visible, visible-1)
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
		return b.deleteRemoved(context.WithoutCancel(ctx), name, now)
	}
	return nil
}

// visible is how many partitions of a record are not removed.
func (r *topicRecord) visible() int32 {
	count := len(r.Partitions)
	for count > 0 && r.Partitions[count-1].Until > 0 {
		count--
	}
	return int32(count)
}

// staying is how many partitions of a record stay at a time: those above have been
// removed for long enough.
func (r *topicRecord) staying(now time.Time) int {
	count := len(r.Partitions)
	for count > 0 {
		if p := r.Partitions[count-1]; !p.Deleting && (p.Until == 0 || p.Until > now.UnixMilli()) {
			break
		}
		count--
	}
	return count
}

// expireRemoved deletes partitions that were removed for long enough. In a cluster
// the first node does it.
func (b *Broker) expireRemoved(ctx context.Context, now time.Time) {
	if b.cluster != nil && !b.first() {
		return
	}
	records, err := b.records(ctx)
	if err != nil {
		return // it is told where it matters, and tried again
	}
	for _, record := range records {
		if record.staying(now) == len(record.Partitions) {
			continue
		}
		b.admin.Lock()
		err := b.deleteRemoved(ctx, record.name, now)
		b.admin.Unlock()
		if err != nil && !errors.Is(err, ErrNoTopic) && ctx.Err() == nil {
			b.log.Warn("removed partitions not deleted, trying again later", "topic", record.name, "error", err)
		}
	}
}

// deleteRemoved deletes those of a topic, so that it is gone on with after a crash:
// first nobody opens them any more, then their logs go, then their places in the
// record. The admin lock is held.
func (b *Broker) deleteRemoved(ctx context.Context, name string, now time.Time) error {
	record, err := b.change(ctx, name, func(record *topicRecord) error {
		for i := record.staying(now); i < len(record.Partitions); i++ {
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
	// Where they end is stored before what tells it goes.
	ends := map[int]int64{}
	for i := record.kept(); i < len(record.Partitions); i++ {
		if ends[i], err = b.endOfLog(ctx, record.names(i).records, record.Partitions[i]); err != nil {
			return err
		}
	}
	record, err = b.change(ctx, name, func(now *topicRecord) error {
		if now.ID != record.ID {
			return fmt.Errorf("%w: %q", ErrNoTopic, name)
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
	for i := record.kept(); i < len(record.Partitions); i++ {
		if err := b.deletePartition(ctx, record, i); err != nil {
			return err
		}
	}
	if _, err := b.change(ctx, name, func(now *topicRecord) error {
		if now.ID != record.ID {
			return fmt.Errorf("%w: %q", ErrNoTopic, name)
		}
		now.forgetDeleted()
		return nil
	}); err != nil {
		return err
	}
	return b.followTopic(ctx, name)
}

// kept is how many partitions of a record have logs that stay.
func (r *topicRecord) kept() int {
	count := len(r.Partitions)
	for count > 0 && r.Partitions[count-1].Deleting {
		count--
	}
	return count
}

// removals is how often a partition of that number was removed.
func (r *topicRecord) removals(number int) int { return r.Removed[number].Times }

// forgetDeleted removes the places of partitions whose logs are gone, and keeps
// where they ended.
func (r *topicRecord) forgetDeleted() {
	kept := r.kept()
	for i := kept; i < len(r.Partitions); i++ {
		if r.Removed == nil {
			r.Removed = map[int]removedPartition{}
		}
		p := r.Partitions[i]
		r.Removed[i] = removedPartition{Times: r.removals(i) + 1, Epoch: p.Epoch, Start: p.Start}
	}
	r.Partitions = r.Partitions[:kept]
}

// shrink gives up the partitions that a record does not have any more, or whose
// logs are being removed, also where others have their numbers by now.
func (t *Topic) shrink(record topicRecord) {
	all, stay := t.all(), 0
	for stay < min(len(all), record.kept()) && all[stay].removals == record.removals(stay) {
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
func (b *Broker) endOfLog(ctx context.Context, name string, p partitionRecord) (int64, error) {
	log, err := b.store.OpenLog(ctx, name, b.there(p.Replicas))
	if err != nil {
		return 0, err
	}
	_, last, err := log.Ends(ctx)
	if err != nil || last == 0 {
		return p.Start, err
	}
	entry, err := readEntry(ctx, log, last)
	if err != nil {
		return 0, err
	}
	return max(p.Start, entry.Mark.Next), nil
}

// deletePartition removes what a partition of a record has stored.
func (b *Broker) deletePartition(ctx context.Context, record topicRecord, number int) error {
	names := record.names(number)
	if err := b.store.DeleteLog(ctx, names.records); err != nil {
		return err
	}
	if record.Delays {
		if err := b.store.DeleteLog(ctx, names.delays); err != nil {
			return err
		}
	}
	meta := b.store.Meta()
	item, err := meta.Get(ctx, names.snapshot)
	if err == nil {
		err = meta.Delete(ctx, names.snapshot, item.Revision)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
