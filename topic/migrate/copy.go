package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
)

// pass copies everything that the source has now, and returns the number of entries.
func (m *Migrator) pass(ctx context.Context) (entries int64, err error) {
	if err := m.look(ctx); err != nil {
		return 0, err
	}
	if _, err := m.begin(ctx, m.run); err != nil {
		return 0, err
	}
	before := m.records.Load()
	copying, ctx := errgroup.WithContext(ctx)
	copying.SetLimit(copiesAtOnce)
	for _, t := range m.inventory.Topics {
		for _, log := range t.Logs {
			copying.Go(func() error {
				if err := m.copyLog(ctx, log); err != nil {
					return fmt.Errorf("copy log %s of topic %s: %w", log.Name, t.Name, err)
				}
				return nil
			})
		}
	}
	err = copying.Wait()
	return m.records.Load() - before, err
}

// copyTries bounds the attempts to copy a log that changes unexpectedly.
const copyTries = 5

// copyLog copies a log, from the target's end to the end in the inventory.
func (m *Migrator) copyLog(ctx context.Context, log InventoryLog) (err error) {
	for range copyTries {
		var next uint64
		if next, err = m.resume(ctx, log); err != nil {
			return err
		}
		err = m.copyFrom(ctx, log, next)
		if !errors.Is(err, topic.ErrFenced) && !errors.Is(err, topic.ErrUncertain) {
			return err
		}
		m.options.Logger.Debug("move: the end of a log is looked at again", "log", log.Name, "error", err)
	}
	return err
}

// resume returns the first entry that the target does not have. If the target has other
// entries than the source, because the source has lost its end, it starts again.
func (m *Migrator) resume(ctx context.Context, log InventoryLog) (next uint64, err error) {
	source := m.inventory.Cluster
	has, err := m.target.Log(ctx, source, m.run, log.Name, log.First, false)
	if err != nil || has.Last+1 == has.First {
		return has.Last + 1, err
	}
	same := false
	if has.Last >= log.First && has.Last <= log.Last {
		id, err := m.source.EntryID(ctx, log.Name, has.Last)
		if err != nil && !errors.Is(err, topic.ErrNotFound) {
			return 0, err
		}
		same = err == nil && id == has.End
	}
	if same {
		return has.Last + 1, nil
	}
	m.options.Logger.Warn("migrate: a log is copied again from its beginning: the copied entries are not in the source any more", "log", log.Name)
	has, err = m.target.Log(ctx, source, m.run, log.Name, log.First, true)
	return has.Last + 1, err
}

func (m *Migrator) copyFrom(ctx context.Context, log InventoryLog, next uint64) error {
	for next <= log.Last {
		entries, err := m.source.Entries(ctx, log.Name, next, chunkBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 || entries[0].Sequence != next {
			return fmt.Errorf("%w: entry %d is not there any more", topic.ErrFenced, next)
		}
		last, err := m.target.Append(ctx, m.inventory.Cluster, m.run, log.Name, entries)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			m.bytes.Add(int64(len(entry.Data)))
		}
		m.records.Add(int64(len(entries)))
		next = last + 1
	}
	return nil
}

// put copies the wanted items of the metadata.
func (m *Migrator) put(ctx context.Context, wanted func(topic.Item) bool) error {
	return m.items(ctx, func(items []topic.Item) error {
		items = slices.DeleteFunc(items, func(item topic.Item) bool { return !wanted(item) })
		if len(items) == 0 {
			return nil
		}
		return m.target.Put(ctx, m.inventory.Cluster, m.run, items)
	})
}

// items calls each with the source's metadata, page by page.
func (m *Migrator) items(ctx context.Context, each func([]topic.Item) error) error {
	for after := ""; ; {
		items, err := m.source.Items(ctx, after, chunkBytes)
		if err != nil || len(items) == 0 {
			return err
		}
		after = items[len(items)-1].Key
		if err := each(items); err != nil {
			return err
		}
	}
}
