package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/topic"
)

// Memory is a topic.Store in memory, for tests of the layers above. It passes the suite, and
// can be made to fail: [Memory.Hold] and [Memory.FailAppends].
type Memory struct {
	mu   sync.Mutex
	logs map[string]*memoryLog
	meta memoryMeta
	held chan struct{} // closed by Release
	fail error
	// failing is the prefix of the names of logs that fail.
	failing string
	stored  bool
	closed  bool
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := &Memory{logs: map[string]*memoryLog{}}
	m.meta.items = map[string]topic.Item{}
	return m
}

// Hold delays the acknowledgements of appends, which are stored already, until Release.
func (m *Memory) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = make(chan struct{})
}

// Release ends Hold.
func (m *Memory) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		close(m.held)
		m.held = nil
	}
}

// FailAppends makes each append fail, until it is called with nil. With stored the entries
// are written nevertheless, as with topic.ErrUncertain.
func (m *Memory) FailAppends(err error, stored bool) { m.FailAppendsTo("", err, stored) }

// FailAppendsTo is FailAppends for the logs whose name begins with prefix.
func (m *Memory) FailAppendsTo(prefix string, err error, stored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing, m.fail, m.stored = prefix, err, stored
}

// OpenLog implements [topic.Store].
func (m *Memory) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	return m.MakeLog(ctx, name, nodes, 1)
}

// MakeLog implements [topic.Store].
func (m *Memory) MakeLog(_ context.Context, name string, nodes []int32, first uint64) (topic.Log, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, topic.ErrClosed
	}
	log := m.logs[name]
	if log == nil {
		if len(nodes) == 0 {
			return nil, topic.ErrNoLog
		}
		log = &memoryLog{store: m, name: name, first: first, grown: make(chan struct{})}
		m.logs[name] = log
	}
	return log, nil
}

// DeleteLog implements [topic.Store].
func (m *Memory) DeleteLog(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if log := m.logs[name]; log != nil {
		log.mu.Lock()
		log.deleted = true
		close(log.grown)
		log.grown = make(chan struct{})
		log.mu.Unlock()
		delete(m.logs, name)
	}
	return nil
}

// Meta implements [topic.Store].
func (m *Memory) Meta() topic.Meta { return &m.meta }

// Cluster implements [topic.Store].
func (m *Memory) Cluster() topic.Cluster { return topic.Single{} }

// Close implements [topic.Store]. [Memory.Reopen] opens the data again.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Reopen returns a store with the data of this one, as after a restart.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	again := NewMemory()
	for name, log := range m.logs {
		log.mu.Lock()
		again.logs[name] = &memoryLog{
			store: again, name: name, first: log.first, entries: slices.Clone(log.entries), grown: make(chan struct{}),
		}
		log.mu.Unlock()
	}
	items, _ := m.meta.List(context.Background(), "")
	for _, item := range items {
		again.meta.items[item.Key] = item
	}
	again.meta.revision = m.meta.revision
	return again
}

// Cut removes the entries of a log after a sequence, as a power cut before a sync may.
func (m *Memory) Cut(name string, after uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.logs[name]
	log.mu.Lock()
	defer log.mu.Unlock()
	log.entries = log.entries[:after+1-log.first]
}

// memoryLog is one log of a Memory.
type memoryLog struct {
	store *Memory
	name  string

	mu      sync.Mutex
	first   uint64
	entries []topic.Entry // from first on
	grown   chan struct{} // closed, and replaced, when something is appended
	deleted bool

	dones dones
}

func (l *memoryLog) last() uint64 { return l.first + uint64(len(l.entries)) - 1 }

// Append implements [topic.Log].
func (l *memoryLog) Append(entry topic.Entry, done func(error)) {
	l.store.mu.Lock()
	held, fail, stored, closed := l.store.held, l.store.fail, l.store.stored, l.store.closed
	if !strings.HasPrefix(l.name, l.store.failing) {
		fail = nil
	}
	l.store.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := fail
	switch {
	case closed:
		err = topic.ErrClosed
	case l.deleted:
		err = topic.ErrNoLog
	case fail != nil && !stored:
	case entry.Sequence != l.last()+1:
		err = topic.ErrFenced
	default:
		entry.Data, entry.Sum = slices.Clone(entry.Data), 0 // it checks nothing
		l.entries = append(l.entries, entry)
		close(l.grown)
		l.grown = make(chan struct{})
	}
	l.dones.add(func() {
		if held != nil {
			<-held
		}
		done(err)
	})
}

// Read implements [topic.Log].
func (l *memoryLog) Read(_ context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted {
		return nil, topic.ErrNoLog
	}
	if from = max(from, l.first); from > l.last() {
		return nil, nil
	}
	var read []topic.Entry
	size := 0
	for _, entry := range l.entries[from-l.first:] {
		if size += len(entry.Data); len(read) > 0 && size > maxBytes {
			break
		}
		read = append(read, entry)
	}
	return read, nil
}

// Trim implements [topic.Log].
func (l *memoryLog) Trim(_ context.Context, before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted {
		return topic.ErrNoLog
	}
	if before = min(before, l.last()+1); before > l.first {
		l.entries = slices.Clone(l.entries[before-l.first:])
		l.first = before
	}
	return nil
}

// Ends implements [topic.Log].
func (l *memoryLog) Ends(context.Context) (first, last uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted {
		return 0, 0, topic.ErrNoLog
	}
	return l.first, l.last(), nil
}

// Wait implements [topic.Log].
func (l *memoryLog) Wait(ctx context.Context, sequence uint64) error {
	for {
		l.mu.Lock()
		last, grown, deleted := l.last(), l.grown, l.deleted
		l.mu.Unlock()
		switch {
		case deleted:
			return topic.ErrNoLog
		case last >= sequence:
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dones calls the dones of a log's appends in order, from a goroutine that runs while there
// are any.
type dones struct {
	mu      sync.Mutex
	waiting []func()
	calling bool
}

func (d *dones) add(done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, done)
	if !d.calling {
		d.calling = true
		go d.call()
	}
}

func (d *dones) call() {
	for {
		d.mu.Lock()
		if len(d.waiting) == 0 {
			d.calling = false
			d.mu.Unlock()
			return
		}
		done := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.mu.Unlock()
		done()
	}
}
