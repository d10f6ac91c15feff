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

// waitingBytes is what all changes that wait to be written may hold; others wait
// for room.
const waitingBytes = 64 << 20

// meta is a topic.Meta: a log of changes, and in memory what they come to. One
// goroutine decides which are made, and writes those that arrived together as
// one entry. Its fence makes sure that they were decided on the newest state.
//
// Of several nodes one writes. On the others that goroutine follows the log.
type meta struct {
	store *Store
	log   *log
	work  *lifecycle.Group
	room  *semaphore.Weighted
	wake  chan struct{} // one is in it if there may be something to do
	nodes *metaNodes    // nil: there is one node, which writes

	// The goroutine's own.
	buffer     []byte
	cleaning   *cleaning // nil: none is under way
	cleanAfter time.Time // a round that failed is not begun anew before

	mu      sync.RWMutex
	state   metaState // changed by the goroutine alone
	waiting []*change
	closed  bool
	// unsure says that something may be written that reads must wait for, and
	// doubts counts how often it began to.
	unsure bool
	doubts uint64
	// needs is the entry that reads wait for: what this node was answered is in it
	// or before.
	needs uint64
	// news is closed when the state grows or what reads and writes wait for has
	// changed otherwise; made by who waits.
	news     chan struct{}
	trimming bool
	cleanAt  cleanLimits
	watches  watches
}

var _ topic.Meta = (*meta)(nil)

// operation is what a Put, Delete or Sync asks for.
type operation struct {
	stored
	expect uint64 // the revision that the key must have
	guards []topic.Guard
	// barrier says that it changes nothing: it is a Sync.
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
type change struct {
	operation
	// deadline is when nobody waits for it any more; zero: who does takes it back.
	deadline time.Time
	verdict  error
	answer   func(answer) // called once
}

type answer struct {
	// sequence is the entry that the answer rests on: of a change that was made,
	// the one that has it, whose number is the revision.
	sequence uint64
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

// close ends the writer: changes that wait fail, those under way are waited for,
// at most until they time out.
func (m *meta) close() error {
	m.mu.Lock()
	m.closed = true
	m.tell()
	m.mu.Unlock()
	m.turnBack(topic.ErrClosed)
	err := m.work.Stop(context.Background())
	m.leaveNodes()
	m.log.end(topic.ErrClosed)
	m.log.drain()
	return err
}

// turnBack answers all changes that wait: none was written.
func (m *meta) turnBack(err error) {
	m.mu.Lock()
	waiting := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	for _, c := range waiting {
		c.answer(answer{err: err})
	}
}

// tell wakes who waits for news, with mu held.
func (m *meta) tell() {
	if m.news != nil {
		close(m.news)
		m.news = nil
	}
}

// listen returns what is closed at the next news, with mu held.
func (m *meta) listen() <-chan struct{} {
	if m.news == nil {
		m.news = make(chan struct{})
	}
	return m.news
}

// rouse makes the goroutine look what there is to do.
func (m *meta) rouse() {
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

// ready waits until the state has what this node was answered before the call.
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
	ctx, cancel := context.WithTimeoutCause(ctx, m.store.options.Timeout, errUnanswered)
	defer cancel()
	for {
		m.mu.Lock()
		known, err := m.isKnown()
		if known || err != nil {
			m.mu.Unlock()
			return err
		}
		news := m.listen()
		m.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("read the metadata: %w", context.Cause(ctx))
		}
	}
}

// isKnown tells, with mu held, whether reads may be answered.
func (m *meta) isKnown() (bool, error) {
	if m.closed {
		return false, topic.ErrClosed
	}
	return !m.unsure && m.state.last >= m.needs, nil
}

// Sync returns when the state has all that was written before the call. With
// several nodes that takes an entry of its own, or a part of one.
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

// submit has an operation written, here or by the node that writes, and returns
// its entry. What was surely not written because nobody writes, or another than
// it was sent to, is tried again, for at most Options.Timeout.
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
	if err := m.room.Acquire(within, size); err != nil {
		return 0, fmt.Errorf("%v: not written: %w", o, err)
	}
	defer m.room.Release(size)
	for {
		sequence, err := m.write(ctx, within, o)
		if !errors.Is(err, errTurnedBack) {
			return sequence, err
		}
		if err := m.awaitWriter(within); err != nil {
			return 0, fmt.Errorf("%v: not written: no node writes the metadata: %w", o, err)
		}
	}
}

// write hands an operation to this node's goroutine, and waits for what comes of
// it; if another node writes, it goes there.
func (m *meta) write(ctx, within context.Context, o operation) (uint64, error) {
	answers := make(chan answer, 1)
	c := &change{operation: o, answer: func(a answer) { answers <- a }}
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
	m.rouse()
	select {
	case a := <-answers:
		return a.sequence, a.err
	case <-within.Done():
	}
	if m.withdraw(c) {
		return 0, fmt.Errorf("%v: not written: %w", o, within.Err())
	}
	// It is being written, which has a bound of its own.
	select {
	case a := <-answers:
		return a.sequence, a.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %v: %w", topic.ErrUncertain, o, ctx.Err())
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
