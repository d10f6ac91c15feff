package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
)

// Source is a store that can name its logs.
type Source interface {
	topic.Store
	// Logs returns the names of all logs.
	Logs(ctx context.Context) ([]string, error)
	// Revision returns a revision of the metadata that is not below any that was given.
	Revision() uint64
}

// Target is a store that takes metadata with its revisions.
type Target interface {
	topic.Store
	// Restore sets items, with their revisions. Later changes get revisions above revision.
	Restore(ctx context.Context, items []topic.Item, revision uint64) error
}

const (
	// logsAtOnce bounds the logs that are copied in parallel, pageBytes what is read of one at
	// a time.
	logsAtOnce = 4
	pageBytes  = 4 << 20
)

// Progress counts what a conversion has copied.
type Progress struct {
	Logs, Entries, Bytes atomic.Int64
}

// Result is what a conversion has copied.
type Result struct {
	Logs, Items    int
	Entries, Bytes int64
}

// Run copies a source into an empty target, and checks that nothing is missing. Both must not
// be served. The data is durable when the target was closed.
func Run(ctx context.Context, from Source, to Target, progress *Progress) (Result, error) {
	names, err := from.Logs(ctx)
	if err != nil {
		return Result{}, err
	}
	copying, within := errgroup.WithContext(ctx)
	copying.SetLimit(logsAtOnce)
	for _, name := range names {
		copying.Go(func() error {
			if err := copyLog(within, from, to, name, progress); err != nil {
				return fmt.Errorf("log %s: %w", name, err)
			}
			progress.Logs.Add(1)
			return nil
		})
	}
	if err := copying.Wait(); err != nil {
		return Result{}, err
	}
	items, err := copyMeta(ctx, from, to)
	if err != nil {
		return Result{}, fmt.Errorf("metadata: %w", err)
	}
	return Result{Logs: len(names), Items: items, Entries: progress.Entries.Load(), Bytes: progress.Bytes.Load()}, nil
}

// copyLog copies a log, and compares its ends and its last entry.
func copyLog(ctx context.Context, from, to topic.Store, name string, progress *Progress) error {
	source, err := from.OpenLog(ctx, name, nil)
	if err != nil {
		return err
	}
	first, last, err := source.Ends(ctx)
	if err != nil {
		return err
	}
	target, err := to.MakeLog(ctx, name, []int32{to.Cluster().Node()}, first)
	if err != nil {
		return err
	}
	sum := crc32.New(topic.Castagnoli)
	for next := first; next <= last; {
		entries, err := source.Read(ctx, next, pageBytes)
		if err == nil {
			err = appendAll(target, entries, next)
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			progress.Bytes.Add(int64(len(entry.Data)))
			_, _ = sum.Write(entry.Data)
		}
		progress.Entries.Add(int64(len(entries)))
		next += uint64(len(entries))
	}
	return compare(ctx, target, first, last, sum.Sum32())
}

// appendAll appends entries that must continue a log with the sequence next.
func appendAll(log topic.Log, entries []topic.Entry, next uint64) error {
	if len(entries) == 0 {
		return fmt.Errorf("entry %d: %w", next, topic.ErrNotFound)
	}
	outcomes := make(chan error, len(entries))
	for _, entry := range entries {
		log.Append(entry, func(err error) { outcomes <- err })
	}
	var err error
	for range entries {
		err = errors.Join(err, <-outcomes)
	}
	return err
}

// compare reads a copy, and returns an error unless it has these ends and this checksum of all
// data.
func compare(ctx context.Context, log topic.Log, first, last uint64, sum uint32) error {
	begins, ends, err := log.Ends(ctx)
	if err != nil {
		return err
	}
	if begins != first || ends != last {
		return fmt.Errorf("the copy has entries %d to %d, want %d to %d", begins, ends, first, last)
	}
	copied := crc32.New(topic.Castagnoli)
	for next := first; next <= last; {
		entries, err := log.Read(ctx, next, pageBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fmt.Errorf("the copy has no entry %d", next)
		}
		for _, entry := range entries {
			_, _ = copied.Write(entry.Data)
		}
		next += uint64(len(entries))
	}
	if copied.Sum32() != sum {
		return errors.New("the copy has other data")
	}
	return nil
}

// copyMeta copies the metadata, compares it, and returns the number of its items.
func copyMeta(ctx context.Context, from Source, to Target) (int, error) {
	items, err := from.Meta().List(ctx, "")
	if err != nil {
		return 0, err
	}
	if err := to.Restore(ctx, items, from.Revision()); err != nil {
		return 0, err
	}
	copied, err := to.Meta().List(ctx, "")
	if err != nil {
		return 0, err
	}
	if len(copied) != len(items) {
		return 0, fmt.Errorf("the copy has %d items, want %d", len(copied), len(items))
	}
	for i, item := range items {
		if copied[i].Key != item.Key || copied[i].Revision != item.Revision || !bytes.Equal(copied[i].Value, item.Value) {
			return 0, fmt.Errorf("item %q differs in the copy", item.Key)
		}
	}
	return len(items), nil
}
