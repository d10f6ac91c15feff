package natsstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/topic"
)

// metaPage is how many bytes of the log are read at a time.
const metaPage = 8 << 20

// errMissing says that an entry is missing: it was removed, or the replica that answered
// does not have it yet.
var errMissing = errors.New("is missing")

// catchUp reads the entries that the state does not have.
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

// load reads the metadata when the store is opened. In a cluster it retries: a replica may
// lack entries that another has.
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

// stateAt reads the state after entry last. That entry has the sequence of the first entry
// that counts; earlier ones may be removed, all or some.
func (m *meta) stateAt(ctx context.Context, last uint64) (*metaState, error) {
	first, err := m.beginAt(ctx, last)
	if err != nil {
		return nil, err
	}
	state := &metaState{items: newMetaItems(), last: first - 1, from: first}
	err = m.entries(ctx, state.last, last, func(entry topic.Entry) error {
		_, err := state.apply(entry)
		return err
	})
	return state, err
}

// beginAt returns the sequence of the first entry that counts, which an entry has.
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
		return 0, fmt.Errorf("entry %d: %w: it names entry %d as the first", sequence, errChanges, head.From)
	}
	return head.From, nil
}

// read applies the entries up to last. If an entry that it needs was removed, because the
// node was away for long, it reads the whole state.
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

// replace replaces the state, and notifies the watches of all keys that differ.
func (m *meta) replace(state *metaState) {
	m.mu.Lock()
	keys := m.state.difference(state)
	m.state = *state
	m.notify()
	m.mu.Unlock()
	m.watches.Notify(keys...)
}

// entries calls each with the entries after `after`, up to last.
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
