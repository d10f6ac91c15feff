package natsstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// waitingBytes is how many bytes changes may have that wait to be written; others wait
// until some are free.
const waitingBytes = 64 << 20

// meta is a topic.Meta: a log of changes, and in memory their result. One goroutine decides
// which changes are made, and writes those that arrived together as one entry. The fence
// ensures that it decided on the newest state.
//
// In a cluster one node writes. On the others that goroutine follows the log.
type meta struct {
	store *Store
	log   *log
	work  *lifecycle.Group
	free  *semaphore.Weighted
	wake  chan struct{} // holds one element if there may be something to do
	nodes *metaNodes    // nil for a single node, which always writes

	// Used by the goroutine only.
	buffer     []byte
	cleaning   *cleaning // the current round, or nil
	cleanAfter time.Time // after a failed round, when the next may start

	mu      sync.RWMutex
	state   metaState // changed by the goroutine only
	waiting []*pendingChange
	closed  bool
	// uncertain says that an entry may have been written that reads must wait for.
	// uncertainties counts how often that began.
	uncertain     bool
	uncertainties uint64
	// needs is the entry that reads wait for: this node has answers that rest on it.
	needs uint64
	// changed is closed when the state grows or another condition that calls wait for has
	// changed; nil if nobody waits.
	changed  chan struct{}
	trimming bool
	cleanAt  cleanLimits
	watches  topic.Watches
}

var _ topic.Meta = (*meta)(nil)

// operation is a Put, Delete or Sync.
type operation struct {
	stored
	expect uint64 // the expected revision of the key
	guards []topic.Guard
	// barrier says that it is a Sync, which changes nothing.
	barrier bool
}

func (o operation) size() int { return len(o.Key) + len(o.Value) + changeOverhead }

func (o operation) String() string {
	if o.barrier {
		return "sync the metadata"
	}
	return fmt.Sprintf("write key %q", o.Key)
}

// change is an operation that waits to be written.
type pendingChange struct {
	operation
	// deadline is when its caller gives up; if zero, the caller withdraws it.
	deadline time.Time
	outcome  error
	answer   func(answer) // called once
}

type answer struct {
	// sequence is the entry that the answer rests on: for a change that was made, the
	// entry that has it, which is also the revision.
	sequence uint64
	err      error
}

// openMeta opens and reads the metadata.
func openMeta(ctx context.Context, s *Store) (*meta, error) {
	stream, err := s.stream(ctx, jetstream.StreamConfig{
		Name: metaStream, Subjects: []string{metaSubject}, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	m := &meta{
		store: s, log: s.register("of the metadata", metaSubject, stream),
		work: lifecycle.NewGroup(context.Background()), free: semaphore.NewWeighted(waitingBytes),
		wake: make(chan struct{}, 1), cleanAt: defaultCleanLimits,
		state: metaState{items: newMetaItems(), from: 1},
	}
	m.log.small = true
	if s.cluster != nil {
		if err := m.joinNodes(); err != nil {
			return nil, fmt.Errorf("open the metadata: %w", err)
		}
	}
	if err := m.load(ctx); err != nil {
		m.leaveNodes()
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	if m.nodes != nil {
		m.work.Go("metadata", m.runNodes)
		return m, nil
	}
	m.trim()
	m.work.Go("metadata", m.run)
	return m, nil
}

// close closes the metadata. Changes that wait fail; close waits for those in flight, at
// most until they time out.
func (m *meta) close() error {
	m.mu.Lock()
	m.closed = true
	m.notify()
	m.mu.Unlock()
	m.rejectWaiting(topic.ErrClosed)
	err := m.work.Stop(context.Background())
	m.leaveNodes()
	m.log.end(topic.ErrClosed)
	m.log.drain()
	return err
}

// rejectWaiting fails all changes that wait to be written.
func (m *meta) rejectWaiting(err error) {
	m.mu.Lock()
	waiting := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	for _, c := range waiting {
		c.answer(answer{err: err})
	}
}

// notify wakes all calls that wait for changed. The caller holds mu.
func (m *meta) notify() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// nextChange returns a channel that the next notify closes. The caller holds mu.
func (m *meta) nextChange() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// wakeUp makes the goroutine check for work.
func (m *meta) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Get returns the value of a key.
func (m *meta) Get(ctx context.Context, key string) (topic.Item, error) {
	if err := checkKey(key); err != nil {
		return topic.Item{}, err
	}
	if err := m.ready(ctx); err != nil {
		return topic.Item{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	item, exists := m.state.items.get(key)
	if !exists {
		return topic.Item{}, fmt.Errorf("%w: key %q", topic.ErrNotFound, key)
	}
	return topic.Item{Key: key, Value: item.copy(), Revision: item.revision}, nil
}

// List returns all items whose key begins with prefix, as of one moment between the call
// and its return.
func (m *meta) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.list(prefix), nil
}

// ready waits until the state has all entries that answers to this node rest on.
func (m *meta) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.RLock()
	known, err := m.isKnown()
	m.mu.RUnlock()
	if known || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.store.options.Timeout, errTimeout)
	defer cancel()
	for {
		m.mu.Lock()
		known, err := m.isKnown()
		if known || err != nil {
			m.mu.Unlock()
			return err
		}
		changed := m.nextChange()
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("read the metadata: %w", context.Cause(ctx))
		}
	}
}

// isKnown reports whether reads may be answered. The caller holds mu.
func (m *meta) isKnown() (bool, error) {
	if m.closed {
		return false, topic.ErrClosed
	}
	return !m.uncertain && m.state.last >= m.needs, nil
}

// Sync returns when the state has all changes that were written before the call. In a
// cluster that takes an entry, perhaps together with changes.
func (m *meta) Sync(ctx context.Context) error {
	if m.nodes != nil {
		if _, err := m.submit(ctx, operation{barrier: true}); err != nil {
			return err
		}
	}
	return m.ready(ctx)
}

// Put sets a value if the key has that revision.
func (m *meta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	if len(value) > maxValueBytes {
		return 0, fmt.Errorf("value of key %q has %d bytes: want at most %d", key, len(value), maxValueBytes)
	}
	return m.submit(ctx, operation{
		stored: stored{Key: key, Value: bytes.Clone(value)}, expect: revision, guards: slices.Clone(guards),
	})
}

// Delete removes a key if it has that revision.
func (m *meta) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	_, err := m.submit(ctx, operation{
		stored: stored{Key: key, Delete: true}, expect: revision, guards: slices.Clone(guards),
	})
	return err
}

// submit writes an operation, here or through the node that writes, and returns its entry.
// It repeats an operation that was certainly not written because no node, or another node,
// is the writer, for at most Options.Timeout.
func (m *meta) submit(ctx context.Context, o operation) (uint64, error) {
	if err := checkKey(o.Key); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	within, cancel := m.store.bound(ctx)
	defer cancel()
	size := int64(o.size())
	if err := m.free.Acquire(within, size); err != nil {
		return 0, fmt.Errorf("%v: not written: %w", o, err)
	}
	defer m.free.Release(size)
	for {
		sequence, err := m.write(ctx, within, o)
		if !errors.Is(err, errNotWriter) {
			return sequence, err
		}
		if err := m.awaitWriter(within); err != nil {
			return 0, fmt.Errorf("%v: not written: no node writes the metadata: %w", o, err)
		}
	}
}

// write hands an operation to this node's goroutine, or to the node that writes, and waits
// for the outcome.
func (m *meta) write(ctx, within context.Context, o operation) (uint64, error) {
	answers := make(chan answer, 1)
	c := &pendingChange{operation: o, answer: func(a answer) { answers <- a }}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return 0, topic.ErrClosed
	}
	if m.nodes != nil && !m.nodes.writes {
		term := m.nodes.term
		m.mu.Unlock()
		return m.forward(ctx, within, term, o)
	}
	m.waiting = append(m.waiting, c)
	m.mu.Unlock()
	m.wakeUp()
	select {
	case a := <-answers:
		return a.sequence, a.err
	case <-within.Done():
	}
	if m.withdraw(c) {
		return 0, fmt.Errorf("%v: not written: %w", o, within.Err())
	}
	// It is being written, which has its own timeout.
	select {
	case a := <-answers:
		return a.sequence, a.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %v: %w", topic.ErrUncertain, o, ctx.Err())
	}
}

// Watch calls signal whenever an item whose key begins with prefix may have changed,
// until cancel is called.
func (m *meta) Watch(prefix string, signal func()) (cancel func()) {
	return m.watches.Add(prefix, signal)
}

// withdraw removes a change that waits. It reports false if it is already being written.
func (m *meta) withdraw(c *pendingChange) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, other := range m.waiting {
		if other == c {
			m.waiting = append(m.waiting[:i:i], m.waiting[i+1:]...)
			return true
		}
	}
	return false
}

func checkKey(key string) error {
	if len(key) > maxKeyBytes {
		return fmt.Errorf("key of %d bytes: want at most %d", len(key), maxKeyBytes)
	}
	return nil
}
