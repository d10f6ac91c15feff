package topic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// importing is a log that is being imported.
type importing struct {
	mu   sync.Mutex // held while entries are appended
	log  Log
	end  Entry // the last entry, without data; of sequence 0: not known
	next uint64
}

// ImportedLog is how far a log is.
type ImportedLog struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// End is the last entry, the zero value if there is none: if the other store
	// has another one there, its log has lost its end since, and must be copied
	// anew.
	End EntryID `json:"end"`
}

// Log returns how far a log is that begins at first in the other store. It is made if
// it does not exist, and made anew if entries are missing after its last one, or with
// anew. An import that is not being copied is an ErrConflict.
func (m *Import) Log(ctx context.Context, source string, run int64, name string, first uint64, anew bool) (ImportedLog, error) {
	var at ImportedLog
	nodes, err := m.planned(ctx, source, run, name)
	if err != nil {
		return at, err
	}
	maker, ok := m.store.(LogMaker)
	if !ok {
		return at, errors.New("the store cannot make logs that begin at a sequence")
	}
	i := m.importing(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	for tries := 0; ; tries++ {
		if i.log, err = maker.MakeLog(ctx, name, nodes, first); err != nil {
			return at, err
		}
		if at.First, at.Last, err = i.log.Ends(ctx); err != nil {
			return at, err
		}
		if !anew && at.First <= first && at.Last+1 >= first || tries > 0 {
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
	i.end, i.next = Entry{Mark: Mark{MaxTimestamp: NoTimestamp}}, at.Last+1
	if at.First > at.Last {
		return nil
	}
	end, err := readEntry(ctx, i.log, at.Last)
	if err != nil {
		return err
	}
	at.End = idOf(end)
	i.end = Entry{Sequence: end.Sequence, Mark: end.Mark}
	return nil
}

// planned returns the nodes of a log that is being imported.
func (m *Import) planned(ctx context.Context, source string, run int64, name string) ([]int32, error) {
	record, _, err := m.of(ctx, source, run, ImportCopying)
	if err != nil {
		return nil, err
	}
	for _, topic := range record.Topics {
		if nodes, ok := topic.nodes(name); ok {
			return nodes, nil
		}
	}
	return nil, fmt.Errorf("%w: %q is not of the import", ErrNoLog, name)
}

func (m *Import) importing(name string) *importing {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logs[name] == nil {
		m.logs[name] = &importing{}
	}
	return m.logs[name]
}

// Append appends entries to a log for which Log was asked before, and returns its
// last sequence when they are durable. They must follow the last one, or be there
// already. Errors: ErrFenced if they do not follow, or somebody else has appended: ask
// Log again; ErrCorrupt.
func (m *Import) Append(ctx context.Context, source string, run int64, name string, entries []Entry) (last uint64, err error) {
	if _, err := m.planned(ctx, source, run, name); err != nil {
		return 0, err
	}
	i := m.importing(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.log == nil {
		return 0, fmt.Errorf("%w: where log %s ends is not known here", ErrFenced, name)
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
			i.log = nil // where it ends is not known any more
			return 0, fmt.Errorf("append to log %s: %w", name, err)
		}
	}
	if n := len(entries); n > 0 {
		i.end = Entry{Sequence: entries[n-1].Sequence, Mark: entries[n-1].Mark}
		i.next = i.end.Sequence + 1
	}
	return i.next - 1, nil
}

// check returns an ErrFenced if entries do not follow the last one, and an ErrCorrupt
// if they are not what was once written.
func (i *importing) check(name string, entries []Entry) error {
	end, next := i.end.Mark, i.next
	for n, entry := range entries {
		if entry.Sequence != next {
			return fmt.Errorf("%w: entry %d of log %s, want %d", ErrFenced, entry.Sequence, name, next)
		}
		if m := entry.Mark; (i.end.Sequence > 0 || n > 0) && m.before(end) {
			return fmt.Errorf("%w: entry %d of log %s: its mark %+v is before %+v, that of the one before", ErrCorrupt, entry.Sequence, name, m, end)
		}
		if err := checkEntry(name, entry); err != nil {
			return fmt.Errorf("entry %d of log %s: %w", entry.Sequence, name, err)
		}
		end, next = entry.Mark, next+1
	}
	return nil
}

// before tells whether a field is less than in another mark.
func (m Mark) before(other Mark) bool {
	return m.Base < other.Base || m.Next < other.Next || m.Epoch < other.Epoch ||
		m.MaxTimestamp < other.MaxTimestamp || m.Bytes < other.Bytes || m.Released < other.Released
}

// checkEntry checks the data of an entry, by what its log holds.
func checkEntry(log string, entry Entry) error {
	if !strings.HasPrefix(log, recordsPrefix) {
		_, err := readDelayEntry(entry.Data)
		return err
	}
	batches, err := SplitBatches(entry.Data)
	for _, batch := range batches {
		if err == nil {
			err = batch.Check()
		}
	}
	return err
}
