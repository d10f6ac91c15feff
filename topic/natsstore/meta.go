package natsstore

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// waitingBytes is what all changes that wait to be written may hold; others wait
// for room.
const waitingBytes = 64 << 20

// meta is a topic.Meta: a log of changes, and in memory what they come to. One
// goroutine decides which are made, and writes those that arrived together as
// one entry. Its fence makes sure that they were decided on the newest state.
type meta struct {
	store *Store
	log   *log
	work  *lifecycle.Group
	room  *semaphore.Weighted
	wake  chan struct{} // one is in it if there may be something to write

	// The writer's own.
	buffer   []byte
	cleaning *cleaning // nil: none is under way

	mu      sync.RWMutex
	state   metaState // changed by the writer alone
	waiting []*change
	closed  bool
	// unsure is there while an entry may have been written that the state does
	// not know, and closed when it does.
	unsure   chan struct{}
	trimming bool
	cleanAt  cleanLimits
}

var _ topic.Meta = (*meta)(nil)

// change is one Put or Delete that waits.
type change struct {
	stored
	expect  uint64 // the revision that the key must have
	verdict error
	answer  chan answer // takes one
}

type answer struct {
	revision uint64
	err      error
}

// openMeta opens the metadata, and reads it.
func openMeta(ctx context.Context, s *Store) (*meta, error) {
	stream, err := s.stream(ctx, jetstream.StreamConfig{
		Name: metaStream, Subjects: []string{metaSubject}, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	m := &meta{
		store: s, log: s.register("of the metadata", metaSubject, stream),
		work: lifecycle.NewGroup(context.Background()), room: semaphore.NewWeighted(waitingBytes),
		wake: make(chan struct{}, 1), cleanAt: defaultCleanLimits,
		state: metaState{items: map[string]metaItem{}, from: 1},
	}
	m.log.small = true
	if err := m.load(ctx); err != nil {
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	m.trim()
	m.work.Go("metadata", m.run)
	return m, nil
}

// close ends the writer: changes that wait fail, those under way are waited for,
// at most until they time out.
func (m *meta) close() error {
	m.mu.Lock()
	m.closed = true
	waiting := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	for _, c := range waiting {
		c.answer <- answer{err: topic.ErrClosed}
	}
	err := m.work.Stop(context.Background())
	m.log.end(topic.ErrClosed)
	m.log.drain()
	return err
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
	item, exists := m.state.items[key]
	if !exists {
		return topic.Item{}, fmt.Errorf("%w: key %q", topic.ErrNotFound, key)
	}
	return topic.Item{Key: key, Value: item.copy(), Revision: item.revision}, nil
}

// List returns all items whose key begins with prefix: the state at one moment
// between the call and its return.
func (m *meta) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.list(prefix), nil
}

// ready waits until the state has all that was written before the call.
func (m *meta) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.RLock()
	unsure, closed := m.unsure, m.closed
	m.mu.RUnlock()
	if closed {
		return topic.ErrClosed
	}
	if unsure == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.store.options.Timeout, errUnanswered)
	defer cancel()
	select {
	case <-unsure:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("read the metadata: %w", context.Cause(ctx))
	}
}

// Put sets a value if the key has that revision.
func (m *meta) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if len(value) > maxValueBytes {
		return 0, fmt.Errorf("value of key %q has %d bytes: want at most %d", key, len(value), maxValueBytes)
	}
	return m.submit(ctx, stored{Key: key, Value: bytes.Clone(value)}, revision)
}

// Delete removes a key if it has that revision.
func (m *meta) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := m.submit(ctx, stored{Key: key, Delete: true}, revision)
	return err
}

// submit hands a change to the writer, and waits for what comes of it.
func (m *meta) submit(ctx context.Context, what stored, expect uint64) (uint64, error) {
	if err := checkKey(what.Key); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	within, cancel := m.store.bound(ctx)
	defer cancel()
	size := int64(len(what.Key) + len(what.Value) + changeOverhead)
	if err := m.room.Acquire(within, size); err != nil {
		return 0, fmt.Errorf("write key %q: not written: %w", what.Key, err)
	}
	defer m.room.Release(size)
	c := &change{stored: what, expect: expect, answer: make(chan answer, 1)}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return 0, topic.ErrClosed
	}
	m.waiting = append(m.waiting, c)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	select {
	case a := <-c.answer:
		return a.revision, a.err
	case <-within.Done():
	}
	if m.withdraw(c) {
		return 0, fmt.Errorf("write key %q: not written: %w", what.Key, within.Err())
	}
	// It is being written, which has a bound of its own.
	select {
	case a := <-c.answer:
		return a.revision, a.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: write key %q: %w", topic.ErrUncertain, what.Key, ctx.Err())
	}
}

// withdraw takes back a change that nobody has begun to write.
func (m *meta) withdraw(c *change) bool {
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
