package natsstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/topic"
)

// deletedHeader marks the message that deletes a key.
const deletedHeader = "Sluice-Deleted"

// listBytes is how much one page of a list holds.
const listBytes = 8 << 20

// meta is a topic.Meta: a stream in which the newest message of each subject
// counts. What it supersedes is removed by a sweep.
type meta struct {
	store  *Store
	stream jetstream.Stream
	writes sync.WaitGroup // entered with store.mu held shared, and not closed
	sweep  sweep
}

var _ topic.Meta = (*meta)(nil)

// openMeta opens the metadata.
func openMeta(ctx context.Context, s *Store) (*meta, error) {
	stream, err := s.stream(ctx, jetstream.StreamConfig{Name: metaStream, Subjects: []string{metaSubject + ">"}})
	if err != nil {
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	m := &meta{store: s, stream: stream}
	m.sweep.init(m)
	// What the process before this one had not swept.
	latest := map[string]*nats.Msg{}
	superseded := map[string]bool{}
	err = m.scan(ctx, metaSubject+">", func(subject string, message *nats.Msg) {
		if latest[subject] != nil {
			superseded[subject] = true
		}
		latest[subject] = message
		message.Data = nil
	})
	if err != nil {
		return nil, fmt.Errorf("open the metadata: %w", err)
	}
	for subject, message := range latest {
		sequence, err := sequenceOf(message)
		if err != nil {
			return nil, fmt.Errorf("open the metadata: %w", err)
		}
		if superseded[subject] || isMarker(message) {
			m.sweep.add(subject, sequence, isMarker(message))
		}
	}
	return m, nil
}

func isMarker(message *nats.Msg) bool { return message.Header.Get(deletedHeader) != "" }

// Get returns the value of a key.
func (m *meta) Get(ctx context.Context, key string) (topic.Item, error) {
	subject, err := subjectOf(key)
	if err != nil {
		return topic.Item{}, err
	}
	message, err := m.newest(ctx, subject)
	if err != nil {
		return topic.Item{}, err
	}
	if message == nil || isMarker(message) {
		return topic.Item{}, fmt.Errorf("%w: key %q", topic.ErrNotFound, key)
	}
	revision, err := sequenceOf(message)
	if err != nil {
		return topic.Item{}, err
	}
	return topic.Item{Key: key, Value: valueOf(message), Revision: revision}, nil
}

func valueOf(message *nats.Msg) []byte {
	if message.Data == nil {
		return []byte{}
	}
	return message.Data
}

func (m *meta) newest(ctx context.Context, subject string) (*nats.Msg, error) {
	if err := m.store.open(); err != nil {
		return nil, err
	}
	message, err := m.store.reader.newest(ctx, metaStream, subject)
	if err != nil {
		if closed := m.store.open(); closed != nil {
			return nil, closed
		}
		return nil, fmt.Errorf("read the metadata: %w", err)
	}
	return message, nil
}

// Put sets a value if the key has that revision.
func (m *meta) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if len(value) > maxValueBytes {
		return 0, fmt.Errorf("value of key %q has %d bytes: want at most %d", key, len(value), maxValueBytes)
	}
	subject, err := subjectOf(key)
	if err != nil {
		return 0, err
	}
	if err := m.enter(); err != nil {
		return 0, err
	}
	defer m.writes.Done()
	return m.write(ctx, key, &nats.Msg{Subject: subject, Data: value}, revision)
}

// enter lets a write begin unless the store is closed.
func (m *meta) enter() error {
	m.store.mu.RLock()
	defer m.store.mu.RUnlock()
	if m.store.closed {
		return topic.ErrClosed
	}
	m.writes.Add(1)
	return nil
}

// drain waits until no write is under way, at most until they time out, and ends
// the sweep.
func (m *meta) drain() {
	m.writes.Wait()
	m.sweep.end()
}

// writeTries bounds how often a write looks again for a marker that comes or goes.
const writeTries = 10

// write publishes a message if its key has that revision.
func (m *meta) write(ctx context.Context, key string, message *nats.Msg, revision uint64) (uint64, error) {
	after := revision
	for try := 1; ; try++ {
		sequence, err := m.publish(ctx, message, after)
		if !isFenced(err) || revision != 0 || try == writeTries {
			return sequence, conflict(err, key)
		}
		// A key that does not exist may have a marker, or have had one just now.
		newest, getErr := m.newest(ctx, message.Subject)
		switch {
		case getErr != nil:
			return 0, getErr
		case newest == nil:
			after = 0
		case !isMarker(newest):
			return 0, conflict(err, key)
		default:
			if after, err = sequenceOf(newest); err != nil {
				return 0, err
			}
		}
	}
}

func conflict(err error, key string) error {
	if isFenced(err) {
		return fmt.Errorf("%w: key %q", topic.ErrConflict, key)
	}
	if err != nil {
		return fmt.Errorf("write key %q: %w", key, err)
	}
	return nil
}

// publish writes a message after the one with that sequence, 0 for none.
func (m *meta) publish(ctx context.Context, message *nats.Msg, after uint64) (uint64, error) {
	if message.Header == nil {
		message.Header = nats.Header{}
	}
	message.Header[server.JSExpectedLastSubjSeq] = []string{strconv.FormatUint(after, 10)}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ctx, cancel := m.store.bound(ctx)
	defer cancel()
	if err := m.store.disk.checkSmall(time.Now(), len(message.Data)); err != nil {
		return 0, err
	}
	answer, err := m.store.conn.RequestMsgWithContext(ctx, message)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", topic.ErrUncertain, err)
	}
	sequence, err := parseAnswer(answer)
	if err == nil && (after > 0 || isMarker(message)) {
		m.sweep.add(message.Subject, sequence, isMarker(message))
	}
	return sequence, err
}

// Delete removes a key if it has that revision.
func (m *meta) Delete(ctx context.Context, key string, revision uint64) error {
	subject, err := subjectOf(key)
	if err != nil {
		return err
	}
	if err := m.enter(); err != nil {
		return err
	}
	defer m.writes.Done()
	if revision == 0 {
		return m.whyNot(ctx, key, subject)
	}
	marker := &nats.Msg{Subject: subject, Header: nats.Header{deletedHeader: []string{"1"}}}
	_, err = m.publish(ctx, marker, revision)
	if isFenced(err) {
		return m.whyNot(ctx, key, subject)
	}
	return conflict(err, key)
}

// whyNot says why a key cannot be deleted.
func (m *meta) whyNot(ctx context.Context, key, subject string) error {
	newest, err := m.newest(ctx, subject)
	switch {
	case err != nil:
		return err
	case newest == nil || isMarker(newest):
		return fmt.Errorf("%w: key %q", topic.ErrNotFound, key)
	}
	return fmt.Errorf("%w: key %q", topic.ErrConflict, key)
}

// List returns all items whose key begins with prefix: the state at one moment
// between the call and its return.
func (m *meta) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	if err := m.store.open(); err != nil {
		return nil, err
	}
	// A marker that was removed between two pages would show the key that it deletes.
	m.sweep.removal.RLock()
	defer m.sweep.removal.RUnlock()
	newest := map[string]*nats.Msg{}
	err := m.scan(ctx, filterOf(prefix), func(subject string, message *nats.Msg) { newest[subject] = message })
	if err != nil {
		if closed := m.store.open(); closed != nil {
			return nil, closed
		}
		return nil, fmt.Errorf("list the metadata: %w", err)
	}
	items := make([]topic.Item, 0, len(newest))
	for subject, message := range newest {
		key, err := keyOf(subject)
		if err != nil {
			return nil, err
		}
		if isMarker(message) || !strings.HasPrefix(key, prefix) {
			continue
		}
		revision, err := sequenceOf(message)
		if err != nil {
			return nil, err
		}
		items = append(items, topic.Item{Key: key, Value: valueOf(message), Revision: revision})
	}
	slices.SortFunc(items, func(a, b topic.Item) int { return strings.Compare(a.Key, b.Key) })
	return items, nil
}

// scan calls a function with each message that passes a filter, in order. The
// last one of each subject is the newest that it had when the last page was
// read: what changed since an earlier page has a higher sequence, and so is on a
// later one.
func (m *meta) scan(ctx context.Context, filter string, each func(subject string, message *nats.Msg)) error {
	for from := uint64(1); ; {
		messages, all, err := m.store.reader.get(ctx, metaStream, request{Sequence: from, Subject: filter, MaxBytes: listBytes})
		if err != nil {
			return err
		}
		for _, message := range messages {
			each(message.Header.Get(server.JSSubject), message)
		}
		if all || len(messages) == 0 {
			return nil
		}
		last, err := sequenceOf(messages[len(messages)-1])
		if err != nil {
			return err
		}
		from = last + 1
	}
}
