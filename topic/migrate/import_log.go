package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/delay"
)

// importing is the state of a log that is being imported.
type importing struct {
	mu   sync.Mutex // held while entries are appended
	log  topic.Log
	end  topic.Entry // the last entry, without data; of sequence 0: unknown
	next uint64
}

// ImportedLog is the progress of a log.
type ImportedLog struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// End is the last entry, the zero value if there is none. If the source has another
	// entry there, its log has lost its end since, and must be copied again.
	End EntryID `json:"end"`
}

// Log returns the progress of a log that begins at first in the source. It creates a
// missing log, and creates it again if entries are missing after its last one, or if
// again is set. An import that is not being copied is an ErrConflict.
func (m *Import) Log(ctx context.Context, source string, run int64, name string, first uint64, restart bool) (ImportedLog, error) {
	var at ImportedLog
	nodes, err := m.planned(ctx, source, run, name)
	if err != nil {
		return at, err
	}
	i := m.importing(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	for tries := 0; ; tries++ {
		if i.log, err = m.store.MakeLog(ctx, name, nodes, first); err != nil {
			return at, err
		}
		if at.First, at.Last, err = i.log.Ends(ctx); err != nil {
			return at, err
		}
		if !restart && at.First <= first && at.Last+1 >= first || tries > 0 {
			break
		}
		if err := m.store.DeleteLog(ctx, name); err != nil {
			return at, err
		}
	}
	return at, i.look(ctx, &at)
}

// look reads the last entry.
func (i *importing) look(ctx context.Context, at *ImportedLog) error {
	i.end, i.next = topic.Entry{Mark: topic.Mark{MaxTimestamp: topic.NoTimestamp}}, at.Last+1
	if at.First > at.Last {
		return nil
	}
	end, err := topic.ReadEntry(ctx, i.log, at.Last)
	if err != nil {
		return err
	}
	at.End = idOf(end)
	i.end = topic.Entry{Sequence: end.Sequence, Mark: end.Mark}
	return nil
}

// planned returns the nodes of a log that is being imported.
func (m *Import) planned(ctx context.Context, source string, run int64, name string) ([]int32, error) {
	record, _, err := m.of(ctx, source, run, catalog.ImportCopying)
	if err != nil {
		return nil, err
	}
	for _, topic := range record.Topics {
		if nodes, ok := topic.Nodes(name); ok {
			return nodes, nil
		}
	}
	return nil, fmt.Errorf("%w: %q is not of the import", topic.ErrNoLog, name)
}

func (m *Import) importing(name string) *importing {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logs[name] == nil {
		m.logs[name] = &importing{}
	}
	return m.logs[name]
}

// Append appends entries to a log for which Log was called before, and returns its last
// sequence when they are durable. The entries must follow the last one, or be there
// already. Errors: ErrFenced if they do not follow, or another writer has appended: call
// Log again; ErrCorrupt.
func (m *Import) Append(ctx context.Context, source string, run int64, name string, entries []topic.Entry) (last uint64, err error) {
	if _, err := m.planned(ctx, source, run, name); err != nil {
		return 0, err
	}
	i := m.importing(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.log == nil {
		return 0, fmt.Errorf("%w: where log %s ends is not known here", topic.ErrFenced, name)
	}
	for len(entries) > 0 && entries[0].Sequence < i.next {
		entries = entries[1:]
	}
	if err := i.check(name, entries); err != nil {
		return 0, err
	}
	results := make(chan error, len(entries))
	for _, entry := range entries {
		i.log.Append(entry, func(err error) { results <- err })
	}
	for range entries {
		select {
		case appended := <-results:
			err = errors.Join(err, appended)
		case <-ctx.Done():
			err = errors.Join(err, ctx.Err())
		}
		if err != nil {
			i.log = nil // its end is unknown
			return 0, fmt.Errorf("append to log %s: %w", name, err)
		}
	}
	if n := len(entries); n > 0 {
		i.end = topic.Entry{Sequence: entries[n-1].Sequence, Mark: entries[n-1].Mark}
		i.next = i.end.Sequence + 1
	}
	return i.next - 1, nil
}

// check returns an ErrFenced if entries do not follow the last one, and an ErrCorrupt
// if their data is not as it was written.
func (i *importing) check(name string, entries []topic.Entry) error {
	end, next := i.end.Mark, i.next
	for n, entry := range entries {
		if entry.Sequence != next {
			return fmt.Errorf("%w: entry %d of log %s, want %d", topic.ErrFenced, entry.Sequence, name, next)
		}
		if m := entry.Mark; (i.end.Sequence > 0 || n > 0) && m.Before(end) {
			return fmt.Errorf("%w: entry %d of log %s: its mark %+v is before %+v, that of the one before", topic.ErrCorrupt, entry.Sequence, name, m, end)
		}
		if err := checkEntry(name, entry); err != nil {
			return fmt.Errorf("entry %d of log %s: %w", entry.Sequence, name, err)
		}
		end, next = entry.Mark, next+1
	}
	return nil
}

// checkEntry checks the data of an entry according to the kind of its log.
func checkEntry(log string, entry topic.Entry) error {
	if !strings.HasPrefix(log, catalog.RecordsPrefix) {
		return delay.CheckEntry(entry.Data)
	}
	batches, err := topic.SplitBatches(entry.Data)
	for _, batch := range batches {
		if err == nil {
			err = batch.Check()
		}
	}
	return err
}
