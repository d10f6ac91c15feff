package natsstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

const (
	// changesBytes is how many bytes of changes are written together; a larger change
	// is written alone.
	changesBytes = 1 << 20
	// commitTries bounds how often changes are decided again because another entry came
	// first.
	commitTries = 10

	// cleanEntries is how many entries may count, however short they are.
	cleanEntries = 100_000

	rereadMin = 50 * time.Millisecond
	rereadMax = 5 * time.Second
	// rereadWarn is how long reading the metadata may fail before it is logged.
	rereadWarn = 5 * time.Second
)

// cleanLimits say when and how the log of changes is cleaned. Tests use smaller ones.
type cleanLimits struct {
	// slack is how many bytes the log may have beyond twice those of its values.
	slack uint64
	// entries is how many entries may count.
	entries uint64
	// bytes is how many bytes of values are copied to the end at a time, at least one value.
	bytes int
}

var defaultCleanLimits = cleanLimits{slack: 4 << 20, entries: cleanEntries, bytes: 256 << 10}

// run writes waiting changes and cleans the log. It is the goroutine of a single node.
func (m *meta) run(ctx context.Context) error {
	var failed pauses
	for ctx.Err() == nil {
		if m.isUncertain() {
			if err := m.catchUp(ctx); err != nil {
				m.pause(ctx, &failed, err)
				continue
			}
			m.markCertain()
			failed = pauses{}
		}
		if m.writePending(ctx) {
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

// writePending writes one entry, and reports whether there was anything to write.
func (m *meta) writePending(ctx context.Context) bool {
	changes := m.take()
	if len(changes) > 0 {
		m.commit(ctx, changes)
	}
	return m.cleanStep() || len(changes) > 0
}

// pauses is the backoff between failed attempts.
type pauses struct {
	since time.Time // when the first failed
	last  time.Duration
}

// pause waits before the log is read again, with exponential backoff.
func (m *meta) pause(ctx context.Context, p *pauses, err error) {
	if ctx.Err() != nil {
		return
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	most := rereadMax
	if m.nodes != nil {
		most = leadsEvery
	}
	p.last = min(max(2*p.last, rereadMin), most)
	log, failing := m.store.options.Logger, time.Since(p.since)
	if m.nodes == nil || failing > rereadWarn {
		log.Error("topic store: metadata cannot be read", "error", err, "failing_for", failing, "again_in", p.last)
	} else {
		// Another node may soon lead, or have the missing entry.
		log.Debug("topic store: metadata cannot be read", "error", err, "again_in", p.last)
	}
	select {
	case <-ctx.Done():
	case <-time.After(p.last):
	}
}

// take removes the changes to write next from those that wait. It rejects changes past
// their deadline.
func (m *meta) take() []*pendingChange {
	taken, late := m.split()
	for _, c := range late {
		c.answer(answer{err: errNotWriter})
	}
	return taken
}

// split removes the changes to write next, and those past their deadline, from those that
// wait.
func (m *meta) split() (taken, late []*pendingChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, size := 0, 0
	now := time.Now()
	for ; n < len(m.waiting); n++ {
		c := m.waiting[n]
		if !c.deadline.IsZero() && now.After(c.deadline) {
			late = append(late, c)
			continue
		}
		if size += c.size(); len(taken) > 0 && size > changesBytes {
			break
		}
		taken = append(taken, c)
	}
	if m.waiting = m.waiting[n:]; len(m.waiting) == 0 {
		m.waiting = nil
	}
	return taken, late
}

// commit decides on changes, writes them, and answers each.
//
// A single node that is fenced decides again. In a cluster a fenced node is no longer the
// writer, and rejects all changes. As it may have lost that role without knowing, it
// writes an entry even if it refuses all changes: the refusals then hold for a moment after
// the changes were requested.
func (m *meta) commit(ctx context.Context, changes []*pendingChange) {
	var err error
	for range commitTries {
		d := m.state.decide(m.buffer, changesHead{From: m.state.from, Bytes: m.state.bytes})
		for _, c := range changes {
			if c.outcome = nil; !c.barrier {
				c.outcome = d.add(c.stored, c.expect, c.guards...)
			}
		}
		if err = nil; !d.empty || m.nodes != nil {
			err = m.append(d.data)
		}
		if !isFenced(err) || m.nodes != nil || m.catchUp(ctx) != nil {
			break
		}
	}
	switch {
	case m.nodes != nil && isUnwritten(err):
		err = errNotWriter
	case isFenced(err):
		err = fmt.Errorf("%w: others wrote first: %w", topic.ErrUncertain, err)
	}
	for _, c := range changes {
		a := answer{sequence: m.state.last, err: c.outcome}
		if err != nil {
			// Refused changes too: the refusal may rest on a change that was not written.
			a = answer{err: fmt.Errorf("%v: %w", c.operation, err)}
		}
		c.answer(a)
	}
	if err != nil && m.nodes != nil && !errors.Is(err, topic.ErrFull) {
		m.endTerm()
	}
}

// append writes the next entry and applies it to the state.
func (m *meta) append(data []byte) error {
	if m.buffer = data; cap(data) > 2*changesBytes {
		m.buffer = nil
	}
	entry := topic.Entry{Sequence: m.state.last + 1, Data: data}
	if m.nodes != nil {
		entry.Mark.Base = m.nodes.writerID
	}
	outcome := make(chan error, 1)
	m.log.Append(entry, func(err error) { outcome <- err })
	err := <-outcome
	if err == nil {
		err = m.apply(entry)
	}
	if err == nil {
		m.announce(entry)
		return nil
	}
	if !errors.Is(err, topic.ErrFull) && (m.nodes == nil || !isUnwritten(err)) {
		m.markUncertain()
	}
	return err
}

// isUnwritten reports whether an append in a cluster was refused because the stream had no
// leader or another node wrote.
func isUnwritten(err error) bool { return isFenced(err) || errors.Is(err, errNoLeader) }

func (m *meta) apply(entry topic.Entry) error {
	m.mu.Lock()
	keys, err := m.state.apply(entry)
	if err == nil && m.cleaning != nil {
		m.cleaning.bytes += uint64(len(entry.Data))
	}
	m.notify()
	m.mu.Unlock()
	m.watches.Notify(keys...)
	return err
}

// markUncertain records that there may be entries that the state does not have.
func (m *meta) markUncertain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uncertain = true
	m.uncertainties++
}

// markCertain records that the state has all entries.
func (m *meta) markCertain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uncertain = false
	m.notify()
}

func (m *meta) isUncertain() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.uncertain
}

// cleanStep writes one entry of the current or next round of cleaning, and reports whether
// there was one to write.
func (m *meta) cleanStep() bool {
	if m.isUncertain() || time.Now().Before(m.cleanAfter) {
		return false
	}
	m.mu.RLock()
	limits := m.cleanAt
	m.mu.RUnlock()
	if m.cleaning == nil {
		if m.state.bytes <= 2*m.state.live+limits.slack && m.state.last < m.state.from+limits.entries {
			return false
		}
		m.cleaning = m.state.clean()
	}
	round := m.cleaning
	err := m.append(round.next(&m.state, m.buffer, limits.bytes))
	switch {
	case err != nil:
		// The next round starts over. Without writes the log does not grow.
		m.cleaning, m.cleanAfter = nil, time.Now().Add(rereadMax)
		if m.nodes != nil && !errors.Is(err, topic.ErrFull) {
			m.endTerm()
		} else {
			m.store.options.Logger.Warn("topic store: superseded metadata stays for now", "error", err)
		}
		return false
	case len(round.keys) == 0:
		m.cleaning = nil
		m.trim()
	}
	return true
}

// trim removes the entries that no longer count, in the background. If that fails, the
// next round or start removes them.
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
