package natsstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

const (
	// changesBytes is how much of changes is written together; a larger one goes
	// alone.
	changesBytes = 1 << 20
	// commitTries bounds how often changes are decided anew because another entry
	// came first.
	commitTries = 10
	// metaPage is how much of the log is read at a time.
	metaPage = 8 << 20

	lookAgainMin = 50 * time.Millisecond
	lookAgainMax = 5 * time.Second
)

// cleanLimits say when and how the log of changes is cleaned: smaller in tests.
type cleanLimits struct {
	// slack is how much more than twice its values the log may hold before.
	slack uint64
	// bytes is how much of values is written anew at a time, or one value.
	bytes int
}

var defaultCleanLimits = cleanLimits{slack: 4 << 20, bytes: 256 << 10}

// run writes what waits, and cleans.
func (m *meta) run(ctx context.Context) error {
	pause := lookAgainMin
	for ctx.Err() == nil {
		if m.isUnsure() {
			if err := m.catchUp(ctx); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				m.store.options.Logger.Error("topic store: metadata cannot be read", "error", err, "again_in", pause)
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(pause):
				}
				pause = min(2*pause, lookAgainMax)
				continue
			}
			pause = lookAgainMin
		}
		changes := m.take()
		if len(changes) > 0 {
			m.commit(ctx, changes)
		}
		if m.carry() || len(changes) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
	}
	return nil
}

// take takes the changes that are written next.
func (m *meta) take() []*change {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, size := 0, 0
	for n < len(m.waiting) {
		c := m.waiting[n]
		size += len(c.Key) + len(c.Value) + changeOverhead
		if n > 0 && size > changesBytes {
			break
		}
		n++
	}
	taken := m.waiting[:n:n]
	m.waiting = m.waiting[n:]
	if len(m.waiting) == 0 {
		m.waiting = nil
	}
	return taken
}

// commit decides on changes, writes them, and tells each what came of it.
func (m *meta) commit(ctx context.Context, changes []*change) {
	var err error
	for range commitTries {
		d := m.state.decide(m.buffer, changesHead{From: m.state.from, Bytes: m.state.bytes})
		for _, c := range changes {
			c.verdict = d.add(c.stored, c.expect)
		}
		if err = nil; !d.empty {
			err = m.append(d.data)
		}
		if !isFenced(err) || m.catchUp(ctx) != nil {
			break
		}
	}
	if isFenced(err) {
		err = fmt.Errorf("%w: others wrote first: %w", topic.ErrUncertain, err)
	}
	for _, c := range changes {
		switch {
		case err != nil:
			// Also those with a verdict: it may rest on one that was not written.
			c.answer <- answer{err: fmt.Errorf("write key %q: %w", c.Key, err)}
		case c.verdict != nil:
			c.answer <- answer{err: c.verdict}
		default:
			c.answer <- answer{revision: m.state.last}
		}
	}
}

// append writes the next entry and makes it part of the state.
func (m *meta) append(data []byte) error {
	if m.buffer = data; cap(data) > 2*changesBytes {
		m.buffer = nil
	}
	entry := topic.Entry{Sequence: m.state.last + 1, Data: data}
	outcome := make(chan error, 1)
	m.log.Append(entry, func(err error) { outcome <- err })
	err := <-outcome
	if err == nil {
		err = m.apply(entry)
	}
	if err != nil && !errors.Is(err, topic.ErrFull) {
		m.doubt()
	}
	return err
}

func (m *meta) apply(entry topic.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.state.apply(entry); err != nil {
		return err
	}
	if m.cleaning != nil {
		m.cleaning.bytes += uint64(len(entry.Data))
	}
	return nil
}

// doubt notes that there may be entries that the state does not know.
func (m *meta) doubt() {
	m.cleaning = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsure == nil {
		m.unsure = make(chan struct{})
	}
}

func (m *meta) isUnsure() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.unsure != nil
}

// catchUp reads the entries that the state does not know.
func (m *meta) catchUp(ctx context.Context) error {
	_, last, err := m.log.Ends(ctx)
	if err != nil {
		return err
	}
	if err := m.read(ctx, last); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsure != nil {
		close(m.unsure)
		m.unsure = nil
	}
	return nil
}

// load reads the metadata when the store is opened. The last entry says where
// that begins: what was before may be gone, or partly so.
func (m *meta) load(ctx context.Context) error {
	_, last, err := m.log.Ends(ctx)
	if err != nil || last == 0 {
		return err
	}
	entries, err := m.log.Read(ctx, last, 1)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("its last entry, %d, was removed from outside", last)
	}
	head, err := readChanges(entries[0].Data, func(stored) {})
	if err != nil {
		return fmt.Errorf("entry %d: %w", last, err)
	}
	if head.From == 0 || head.From > last {
		return fmt.Errorf("entry %d: %w: it says that entry %d is the first", last, errChanges, head.From)
	}
	m.state.last = head.From - 1
	return m.read(ctx, last)
}

// read makes the entries up to one part of the state.
func (m *meta) read(ctx context.Context, last uint64) error {
	for m.state.last < last {
		entries, err := m.log.Read(ctx, m.state.last+1, metaPage)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fmt.Errorf("entry %d of %d is missing", m.state.last+1, last)
		}
		for _, entry := range entries {
			if entry.Sequence != m.state.last+1 {
				return fmt.Errorf("entry %d of %d is missing", m.state.last+1, last)
			}
			if err := m.apply(entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// carry writes one entry of the round of cleaning that is under way or due, and
// tells whether there was one.
func (m *meta) carry() bool {
	if m.isUnsure() {
		return false
	}
	m.mu.RLock()
	limits := m.cleanAt
	m.mu.RUnlock()
	if m.cleaning == nil {
		if m.state.bytes <= 2*m.state.live+limits.slack {
			return false
		}
		m.cleaning = m.state.clean()
	}
	round := m.cleaning
	err := m.append(round.next(&m.state, m.buffer, limits.bytes))
	switch {
	case err != nil:
		// A later round begins anew. Until something is written, nothing grows.
		m.cleaning = nil
		m.store.options.Logger.Warn("topic store: superseded metadata stays for now", "error", err)
		return false
	case len(round.keys) == 0:
		m.cleaning = nil
		m.trim()
	}
	return true
}

// trim removes the entries that do not count any more, in the background. What
// stays because that fails, the next round or start removes.
func (m *meta) trim() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trimming || m.state.from == 1 {
		return
	}
	m.trimming = true
	before := m.state.from
	m.work.Go("trim metadata", func(ctx context.Context) error {
		if err := m.log.Trim(ctx, before); err != nil && ctx.Err() == nil {
			m.store.options.Logger.Warn("topic store: superseded metadata stays for now", "error", err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.trimming = false
		return nil
	})
}
