package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/topic"
)

const (
	maxKeyBytes   = 600
	maxValueBytes = 4 << 20
	// waitingBytes bounds the changes that wait to be written; others wait until some are.
	waitingBytes = 64 << 20
	// changeOverhead is about the memory of a change without its key and value.
	changeOverhead = 200
)

// meta is a topic.Meta on Pebble. One goroutine decides on the changes that arrived together,
// and writes them as one batch.
type meta struct {
	store   *Store
	free    *semaphore.Weighted
	wake    chan struct{} // holds one element if there may be something to do
	watches topic.Watches

	// durable is what reads see: not what is being written, so that they need not wait for the disk.
	// visible is held for writing while it is replaced.
	visible sync.RWMutex
	durable *pebble.Snapshot

	revision atomic.Uint64 // the last one given

	mu      sync.Mutex
	closed  bool
	waiting []*change
}

var _ topic.Meta = (*meta)(nil)

// change is a Put, or a Delete, that waits for its outcome.
type change struct {
	key      string
	value    []byte
	deletes  bool
	expect   uint64 // the expected revision of the key
	guards   []topic.Guard
	revision uint64
	outcome  chan error
}

func (c *change) String() string { return fmt.Sprintf("write key %q", c.key) }

func openMeta(s *Store) (*meta, error) {
	m := &meta{store: s, free: semaphore.NewWeighted(waitingBytes), wake: make(chan struct{}, 1)}
	value, err := pebblekv.Get(s.db, keyRevision)
	if err != nil {
		return nil, err
	}
	if value != nil {
		r := pebblekv.Reader{Rest: value}
		if m.revision.Store(r.Uvarint()); !r.Whole() {
			return nil, pebblekv.Corrupt(keyRevision, "it is not a revision")
		}
	}
	m.durable = s.db.NewSnapshot()
	return m, nil
}

// show makes what was written visible, once it is durable.
func (m *meta) show() error {
	m.visible.Lock()
	defer m.visible.Unlock()
	err := m.durable.Close()
	m.durable = m.store.db.NewSnapshot()
	return err
}

// close makes all later calls fail, and waits for changes in progress.
func (m *meta) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.wakeUp()
}

func (m *meta) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Get returns the value of a key.
func (m *meta) Get(ctx context.Context, key string) (item topic.Item, err error) {
	if err := checkKey(key); err != nil {
		return topic.Item{}, err
	}
	err = m.reading(ctx, func() error {
		value, err := pebblekv.Get(m.durable, itemKey(key))
		if err == nil && value == nil {
			err = fmt.Errorf("%w: key %q", topic.ErrNotFound, key)
		}
		if err == nil {
			item, err = decodeItem(itemKey(key), value)
		}
		return err
	})
	return item, err
}

// List returns all items whose key begins with prefix, as of one moment.
func (m *meta) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	items := []topic.Item{}
	err := m.reading(ctx, func() error {
		from := itemKey(prefix)
		return pebblekv.Scan(m.durable, from, afterPrefix(from), func(key, value []byte) (bool, error) {
			item, err := decodeItem(key, bytes.Clone(value))
			items = append(items, item)
			return true, err
		})
	})
	return items, err
}

// reading calls read while durable is not replaced.
func (m *meta) reading(ctx context.Context, read func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.store.enter(); err != nil {
		return err
	}
	defer m.store.running.Done()
	m.visible.RLock()
	defer m.visible.RUnlock()
	return read()
}

// Sync has nothing to wait for: there is no other node.
func (m *meta) Sync(ctx context.Context) error {
	return m.reading(ctx, func() error { return nil })
}

// Put sets a value if the key has that revision.
func (m *meta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	if len(value) > maxValueBytes {
		return 0, fmt.Errorf("value of key %q has %d bytes: want at most %d", key, len(value), maxValueBytes)
	}
	if err := m.store.small.Check(time.Now(), len(key)+len(value)); err != nil {
		return 0, err
	}
	c := &change{key: key, value: bytes.Clone(value), expect: revision, guards: slices.Clone(guards)}
	err := m.submit(ctx, c)
	return c.revision, err
}

// Delete removes a key if it has that revision.
func (m *meta) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	return m.submit(ctx, &change{key: key, deletes: true, expect: revision, guards: slices.Clone(guards)})
}

// Watch calls signal whenever an item whose key begins with prefix may have changed,
// until cancel is called.
func (m *meta) Watch(prefix string, signal func()) (cancel func()) {
	return m.watches.Add(prefix, signal)
}

// submit hands a change to the goroutine and waits for its outcome.
func (m *meta) submit(ctx context.Context, c *change) error {
	if err := checkKey(c.key); err != nil {
		return err
	}
	size := int64(len(c.key) + len(c.value) + changeOverhead)
	if err := m.free.Acquire(ctx, size); err != nil {
		return fmt.Errorf("%v: not written: %w", c, err)
	}
	c.outcome = make(chan error, 1)
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		m.free.Release(size)
		return topic.ErrClosed
	}
	m.waiting = append(m.waiting, c)
	m.mu.Unlock()
	m.wakeUp()
	// It is a moment's work of a disk: a caller that cannot wait that long could not know
	// whether the change was made.
	defer m.free.Release(size)
	return <-c.outcome
}

// run writes changes until the metadata is closed.
func (m *meta) run(context.Context) error {
	for range m.wake {
		m.mu.Lock()
		changes, closed := m.waiting, m.closed
		m.waiting = nil
		m.mu.Unlock()
		m.write(changes)
		if closed {
			return nil
		}
	}
	return nil
}

// write decides on changes, writes those that are made, and reports all outcomes.
func (m *meta) write(changes []*change) {
	batch := m.store.db.NewIndexedBatch()
	outcomes := make([]error, len(changes))
	var made []string
	for i, c := range changes {
		if outcomes[i] = m.decide(batch, c); outcomes[i] == nil {
			made = append(made, c.key)
		}
	}
	if err := m.commit(batch, len(made) > 0); err != nil {
		for i := range outcomes { // refusals too may rest on what was not written
			outcomes[i] = err
		}
	} else {
		m.watches.Notify(made...)
	}
	for i, c := range changes {
		c.outcome <- outcomes[i]
	}
}

// decide adds a change to a batch if its conditions hold.
func (m *meta) decide(batch *pebble.Batch, c *change) error {
	is, err := revisionOf(batch, c.key)
	switch {
	case err != nil:
		return err
	case c.deletes && is == 0:
		return fmt.Errorf("%w: key %q", topic.ErrNotFound, c.key)
	case is != c.expect:
		return fmt.Errorf("%w: key %q is at revision %d, want %d", topic.ErrConflict, c.key, is, c.expect)
	}
	for _, guard := range c.guards {
		is, err := revisionOf(batch, guard.Key)
		if err != nil {
			return err
		}
		if is != guard.Revision {
			return fmt.Errorf("%w: guard %q is at revision %d, want %d", topic.ErrConflict, guard.Key, is, guard.Revision)
		}
	}
	if c.deletes {
		return batch.Delete(itemKey(c.key), nil)
	}
	c.revision = m.revision.Add(1)
	return setItem(batch, topic.Item{Key: c.key, Value: c.value, Revision: c.revision})
}

// commit makes a batch durable, and visible then.
func (m *meta) commit(batch *pebble.Batch, changes bool) error {
	if !changes {
		return batch.Close()
	}
	if err := batch.Set(keyRevision, binary.AppendUvarint(nil, m.revision.Load()), nil); err != nil {
		return err
	}
	if err := m.store.commit(batch); err != nil {
		return err
	}
	return m.show()
}

// revisionOf returns the revision of a key, 0 if it does not exist.
func revisionOf(reader pebble.Reader, key string) (uint64, error) {
	value, closer, err := reader.Get(itemKey(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	item, err := decodeItem(itemKey(key), value)
	return item.Revision, errors.Join(err, closer.Close())
}

// setItem adds an item to a batch.
func setItem(batch *pebble.Batch, item topic.Item) error {
	return batch.Set(itemKey(item.Key), append(binary.AppendUvarint(nil, item.Revision), item.Value...), nil)
}

// decodeItem returns the item of a key of the database. Its value shares memory with value.
func decodeItem(key, value []byte) (topic.Item, error) {
	r := pebblekv.Reader{Rest: value}
	item := topic.Item{Key: string(key[1:]), Revision: r.Uvarint(), Value: r.Rest}
	if r.Bad {
		return item, pebblekv.Corrupt(key, "it has no revision")
	}
	return item, nil
}

func itemKey(key string) []byte { return append([]byte{prefixItem}, key...) }

// afterPrefix returns the first key after those that begin with prefix.
func afterPrefix(prefix []byte) []byte {
	after := bytes.Clone(prefix)
	for after[len(after)-1] == 0xff {
		after = after[:len(after)-1]
	}
	after[len(after)-1]++
	return after
}

func checkKey(key string) error {
	if len(key) > maxKeyBytes {
		return fmt.Errorf("key of %d bytes: want at most %d", len(key), maxKeyBytes)
	}
	return nil
}

// restoreBytes bounds the batches in which items are restored.
const restoreBytes = 8 << 20

// Restore sets items of another store, with their revisions, in a store that has no metadata
// yet. Later changes get revisions above revision. It is not one operation: a store that was
// being restored when its process ended must be made again.
func (s *Store) Restore(_ context.Context, items []topic.Item, revision uint64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.running.Done()
	m := s.meta
	batch := s.db.NewBatch()
	for _, item := range items {
		if err := setItem(batch, item); err != nil {
			return err
		}
		if batch.Len() > restoreBytes {
			if err := s.commit(batch); err != nil {
				return err
			}
			batch = s.db.NewBatch()
		}
		revision = max(revision, item.Revision)
	}
	if err := batch.Set(keyRevision, binary.AppendUvarint(nil, revision), nil); err != nil {
		return err
	}
	m.revision.Store(revision)
	if err := s.commit(batch); err != nil {
		return err
	}
	return m.show()
}
