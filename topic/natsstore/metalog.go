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

	// cleanEntries is how many entries may count, however short they are.
	cleanEntries = 100_000

	lookAgainMin = 50 * time.Millisecond
	lookAgainMax = 5 * time.Second
	// lookAgainWarn is how long reading the metadata may fail before it is said.
	lookAgainWarn = 5 * time.Second
)

// cleanLimits say when and how the log of changes is cleaned: smaller in tests.
type cleanLimits struct {
	// slack is how much more than twice its values the log may hold before.
	slack uint64
	// entries is how many may count.
	entries uint64
	// bytes is how much of values is written anew at a time, or one value.
	bytes int
}

var defaultCleanLimits = cleanLimits{slack: 4 << 20, entries: cleanEntries, bytes: 256 << 10}

// run writes what waits, and cleans. It is the goroutine of one node.
func (m *meta) run(ctx context.Context) error {
	var failed pauses
	for ctx.Err() == nil {
		if m.isUnsure() {
			if err := m.catchUp(ctx); err != nil {
				m.pause(ctx, &failed, err)
				continue
			}
			m.sure()
			failed = pauses{}
		}
		if m.advance(ctx) {
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

// advance writes once, and tells whether there was something to write.
func (m *meta) advance(ctx context.Context) bool {
	changes := m.take()
	if len(changes) > 0 {
		m.commit(ctx, changes)
	}
	return m.carry() || len(changes) > 0
}

// pauses are those between tries that fail.
type pauses struct {
	since time.Time // when the first failed
	last  time.Duration
}

// pause waits before the log is read again, ever longer.
func (m *meta) pause(ctx context.Context, p *pauses, err error) {
	if ctx.Err() != nil {
		return
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	most := lookAgainMax
	if m.nodes != nil {
		most = leadsEvery
	}
	p.last = min(max(2*p.last, lookAgainMin), most)
	log, failing := m.store.options.Logger, time.Since(p.since)
	if m.nodes == nil || failing > lookAgainWarn {
		log.Error("topic store: metadata cannot be read", "error", err, "failing_for", failing, "again_in", p.last)
	} else {
		// Others may lead in a moment, or have what is missing.
		log.Debug("topic store: metadata cannot be read", "error", err, "again_in", p.last)
	}
	select {
	case <-ctx.Done():
	case <-time.After(p.last):
	}
}

// take takes the changes that are written next. Those for which nobody waits any
// more are not.
func (m *meta) take() []*change {
	taken, late := m.split()
	for _, c := range late {
		c.answer(answer{err: errTurnedBack})
	}
	return taken
}

// split takes changes off those that wait: those to write next, and those that
// are too late.
func (m *meta) split() (taken, late []*change) {
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

// commit decides on changes, writes them, and tells each what came of it.
//
// One node that is fenced decides anew: it does not lose its place. Of several
// nodes the writer is it no more, so it turns all back. And as it may
// be that already without knowing, it writes an entry even if no change is made:
// that they are refused is then true of a moment after they were asked for.
func (m *meta) commit(ctx context.Context, changes []*change) {
	var err error
	for range commitTries {
		d := m.state.decide(m.buffer, changesHead{From: m.state.from, Bytes: m.state.bytes})
		for _, c := range changes {
			if c.verdict = nil; !c.barrier {
				c.verdict = d.add(c.stored, c.expect, c.guards...)
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
		err = errTurnedBack
	case isFenced(err):
		err = fmt.Errorf("%w: others wrote first: %w", topic.ErrUncertain, err)
	}
	for _, c := range changes {
		a := answer{sequence: m.state.last, err: c.verdict}
		if err != nil {
			// Also those with a verdict: it may rest on one that was not written.
			a = answer{err: fmt.Errorf("%v: %w", c.operation, err)}
		}
		c.answer(a)
	}
	if err != nil && m.nodes != nil && !errors.Is(err, topic.ErrFull) {
		m.yield()
	}
}

// append writes the next entry and makes it part of the state.
func (m *meta) append(data []byte) error {
	if m.buffer = data; cap(data) > 2*changesBytes {
		m.buffer = nil
	}
	entry := topic.Entry{Sequence: m.state.last + 1, Data: data}
	if m.nodes != nil {
		entry.Mark.Base = m.nodes.own
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
		m.doubt()
	}
	return err
}

// isUnwritten tells whether an append of one of several nodes was refused: nobody
// led the stream, or another node wrote.
func isUnwritten(err error) bool { return isFenced(err) || errors.Is(err, errNoLeader) }

func (m *meta) apply(entry topic.Entry) error {
	m.mu.Lock()
	keys, err := m.state.apply(entry)
	if err == nil && m.cleaning != nil {
		m.cleaning.bytes += uint64(len(entry.Data))
	}
	m.tell()
	m.mu.Unlock()
	m.watches.tell(keys)
	return err
}

// doubt notes that there may be entries that the state does not know.
func (m *meta) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsure = true
	m.doubts++
}

// sure notes that the state has all that there was a doubt about.
func (m *meta) sure() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsure = false
	m.tell()
}

func (m *meta) isUnsure() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.unsure
}

// carry writes one entry of the round of cleaning that is under way or due, and
// tells whether there was one.
func (m *meta) carry() bool {
	if m.isUnsure() || time.Now().Before(m.cleanAfter) {
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
		// A later round begins anew. Until something is written, nothing grows.
		m.cleaning, m.cleanAfter = nil, time.Now().Add(lookAgainMax)
		if m.nodes != nil && !errors.Is(err, topic.ErrFull) {
			m.yield()
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
