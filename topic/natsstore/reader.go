package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/topic"
)

const directGet = "$JS.API.DIRECT.GET."

// Bounds of reads.
const (
	// readConns is how many connections reads take turns on: a connection's
	// requests are served one after another.
	readConns = 2
	// readBatch is the most messages of one read.
	readBatch = 4096
	// readBytes is the most bytes of one read, but for its last message.
	readBytes = 16 << 20
	// readsBytes is what all reads under way may hold; others wait.
	readsBytes = 128 << 20
)

// errUnanswered says that a read was not answered in time.
var errUnanswered = errors.New("the engine did not answer in time")

// reader gets messages by batched direct get: nats.go has no call for it.
type reader struct {
	options Options
	conns   []*nats.Conn
	inbox   string
	turn    atomic.Uint64
	room    *semaphore.Weighted
	closed  chan struct{}

	mu    sync.Mutex
	calls map[uint64]*call // by the number in their reply subjects
}

// call is one read under way.
type call struct {
	messages []*nats.Msg
	last     *nats.Msg // the one that ends it; has no body
	done     chan struct{}
}

// request is what a direct get asks for.
type request struct {
	Sequence uint64 `json:"seq,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

func newReader(engine *server.Server, options Options) (*reader, error) {
	r := &reader{
		options: options, inbox: nats.NewInbox() + ".",
		room: semaphore.NewWeighted(readsBytes), calls: map[uint64]*call{}, closed: make(chan struct{}),
	}
	for range readConns {
		conn, err := connect(engine, options.Logger)
		if err != nil {
			r.close()
			return nil, err
		}
		r.conns = append(r.conns, conn)
		inbox := r.inbox + strconv.Itoa(len(r.conns)) + "."
		err = subscribe(conn, inbox+"*", func(message *nats.Msg) {
			if number, err := strconv.ParseUint(message.Subject[len(inbox):], 10, 64); err == nil {
				r.take(number, message)
			}
		})
		if err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// close ends the reads under way. It is called once.
func (r *reader) close() {
	close(r.closed)
	for _, conn := range r.conns {
		conn.Close()
	}
}

// take adds a message to its call, or ends the call.
func (r *reader) take(number uint64, message *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[number]
	if c == nil {
		return // It was given up.
	}
	if statusOf(message) == "" {
		c.messages = append(c.messages, message)
		return
	}
	c.last = message
	delete(r.calls, number)
	close(c.done)
}

// get returns the messages that a request asks for, in order: none if there are
// none yet.
func (r *reader) get(ctx context.Context, stream string, ask request) ([]*nats.Msg, error) {
	ask.Batch, ask.MaxBytes = readBatch, min(max(ask.MaxBytes, 1), readBytes)
	weight := int64(ask.MaxBytes) + maxMessage
	if err := r.room.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer r.room.Release(weight)
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, errUnanswered)
	defer cancel()
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	number := r.turn.Add(1)
	c := &call{done: make(chan struct{})}
	r.mu.Lock()
	r.calls[number] = c
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.calls, number)
		r.mu.Unlock()
	}()
	i := int(number % uint64(len(r.conns)))
	reply := r.inbox + strconv.Itoa(i+1) + "." + strconv.FormatUint(number, 10)
	if err := r.conns[i].PublishRequest(directGet+stream, reply, body); err != nil {
		return nil, readFailure(err)
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-r.closed:
		return nil, topic.ErrClosed
	case <-c.done:
	}
	switch status := statusOf(c.last); status {
	case "204":
		return c.messages, nil
	case "404":
		return nil, nil
	case "503":
		return nil, topic.ErrNoLog
	default:
		return nil, fmt.Errorf("read from stream %s: status %s", stream, status)
	}
}

func readFailure(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("%w: %w", topic.ErrClosed, err)
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: %w", topic.ErrNoLog, err)
	}
	return err
}

// sequenceOf returns the sequence of a message that was read.
func sequenceOf(message *nats.Msg) (uint64, error) {
	text := message.Header.Get(server.JSSequence)
	sequence, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("header %s is %q: want a number", server.JSSequence, text)
	}
	return sequence, nil
}

// Read returns entries in order, from the first with a sequence ≥ from on. One
// call returns at most 4,096 entries, and at most 16 MiB but for the last.
func (l *log) Read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	from = max(from, 1)
	l.mu.Lock()
	last := l.last // what is appended while the read is under way may be missed
	l.mu.Unlock()
	messages, err := l.store.reader.get(ctx, l.source, request{Sequence: from, MaxBytes: maxBytes})
	if err != nil {
		return nil, l.failure(fmt.Errorf("read log %s from %d: %w", l.name, from, err))
	}
	if len(messages) == 0 {
		return nil, l.checkEnd(ctx, from, last)
	}
	entries := make([]topic.Entry, len(messages))
	for i, message := range messages {
		entry, err := entryOf(message)
		if err != nil {
			return nil, fmt.Errorf("read log %s: %w", l.name, err)
		}
		if i > 0 && entry.Sequence != entries[i-1].Sequence+1 {
			return nil, fmt.Errorf("read log %s: entry %d is followed by %d: what is between cannot be read",
				l.name, entries[i-1].Sequence, entry.Sequence)
		}
		entries[i] = entry
	}
	return entries, nil
}

// checkEnd tells the end of a log, which had that last entry when a read began,
// from entries that the engine cannot read: it answers both in the same way.
func (l *log) checkEnd(ctx context.Context, from, last uint64) error {
	if from > last {
		return nil
	}
	first, last, err := l.Ends(ctx)
	if err != nil {
		return err
	}
	if first <= last && from <= last {
		return fmt.Errorf("read log %s from %d: it has entries %d to %d that cannot be read", l.name, from, first, last)
	}
	return nil
}

func entryOf(message *nats.Msg) (topic.Entry, error) {
	sequence, err := sequenceOf(message)
	if err != nil {
		return topic.Entry{}, err
	}
	mark, err := decodeMark(message.Header.Get(markHeader))
	if err != nil {
		return topic.Entry{}, fmt.Errorf("entry %d: %w", sequence, err)
	}
	data := message.Data
	if data == nil {
		data = []byte{}
	}
	return topic.Entry{Sequence: sequence, Mark: mark, Data: data}, nil
}
