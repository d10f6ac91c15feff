package natsstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/topic"
)

// metaPage is how much of the log is read at a time.
const metaPage = 8 << 20

// errMissing says that an entry is not there: it was removed, or who was asked
// does not have it yet.
var errMissing = errors.New("is missing")

// catchUp reads the entries that the state does not know.
func (m *meta) catchUp(ctx context.Context) error {
	_, last, err := m.log.Ends(ctx)
	if err != nil {
		return err
	}
	if last < m.state.last {
		return fmt.Errorf("it ends at entry %d, and entry %d was read before", last, m.state.last)
	}
	return m.read(ctx, last)
}

// load reads the metadata when the store is opened. Of several nodes, one may be
// asked that does not have all of it yet: another try asks another.
func (m *meta) load(ctx context.Context) error {
	var failed pauses
	for {
		err := m.loadOnce(ctx)
		if err == nil || m.nodes == nil || errors.Is(err, errChanges) {
			return err
		}
		if m.pause(ctx, &failed, err); ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func (m *meta) loadOnce(ctx context.Context) error {
	_, last, err := m.log.Ends(ctx)
	if err != nil || last == 0 {
		return err
	}
	state, err := m.stateAt(ctx, last)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = *state
	return nil
}

// stateAt reads what all entries up to one come to. That one says where they begin: what
// was before may be gone, or partly so.
func (m *meta) stateAt(ctx context.Context, last uint64) (*metaState, error) {
	first, err := m.beginAt(ctx, last)
	if err != nil {
		return nil, err
	}
	state := &metaState{items: map[string]metaItem{}, last: first - 1, from: first}
	err = m.entries(ctx, state.last, last, func(entry topic.Entry) error {
		_, err := state.apply(entry)
		return err
	})
	return state, err
}

// beginAt returns the first entry that counts, as one of them says.
func (m *meta) beginAt(ctx context.Context, sequence uint64) (uint64, error) {
	entries, err := m.log.Read(ctx, sequence, 1)
	if err != nil {
		return 0, err
	}
	if len(entries) == 0 || entries[0].Sequence != sequence {
		return 0, fmt.Errorf("its last entry, %d, %w", sequence, errMissing)
	}
	head, err := readChanges(entries[0].Data, func(stored) {})
	if err != nil {
		return 0, fmt.Errorf("entry %d: %w", sequence, err)
	}
	if head.From == 0 || head.From > sequence {
		return 0, fmt.Errorf("entry %d: %w: it says that entry %d is the first", sequence, errChanges, head.From)
	}
	return head.From, nil
}

// read makes the entries up to one part of the state. If what it needs was
// removed, because it was away for long, it begins anew.
func (m *meta) read(ctx context.Context, last uint64) error {
	err := m.entries(ctx, m.state.last, last, m.apply)
	if !errors.Is(err, errMissing) {
		return err
	}
	first, beginErr := m.beginAt(ctx, last)
	if beginErr != nil {
		return errors.Join(err, beginErr)
	}
	if first <= m.state.last+1 {
		return err
	}
	state, err := m.stateAt(ctx, last)
	if err != nil {
		return err
	}
	m.replace(state)
	return nil
}

// replace takes another state, and tells of all keys in which it differs.
func (m *meta) replace(state *metaState) {
	m.mu.Lock()
	keys := m.state.difference(state)
	m.state = *state
	m.tell()
	m.mu.Unlock()
	m.watches.tell(keys)
}

// entries calls each with the entries after one, up to another.
func (m *meta) entries(ctx context.Context, after, last uint64, each func(topic.Entry) error) error {
	for after < last {
		entries, err := m.log.Read(ctx, after+1, metaPage)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fmt.Errorf("entry %d of %d %w", after+1, last, errMissing)
		}
		for _, entry := range entries {
			if entry.Sequence != after+1 {
				return fmt.Errorf("entry %d of %d %w", after+1, last, errMissing)
			}
			if err := each(entry); err != nil {
				return err
			}
			after++
		}
	}
	return nil
}
