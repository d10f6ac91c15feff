package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/topic"
)

const directGet = "$JS.API.DIRECT.GET."

// Bounds of reads.
const (
	// readConns is how many connections reads alternate between: the engine serves the
	// requests of a connection one after another.
	readConns = 2
	// readBatch bounds the messages of one read.
	readBatch = 4096
	// readBytes bounds the bytes of one read without its last message.
	readBytes = 16 << 20
	// readsBytes bounds the bytes of all reads in flight; others wait.
	readsBytes = 128 << 20
)

// errTimeout says that a read was not answered in time.
var errTimeout = errors.New("the engine did not answer in time")

// errGap says that entries that the log has are missing where a read was
// answered.
var errGap = errors.New("entries cannot be read")

// reader reads messages by batched direct get, which nats.go does not support.
type reader struct {
	options    Options
	conns      []*nats.Conn
	inbox      string
	lastNumber atomic.Uint64
	free       *semaphore.Weighted
	closed     chan struct{}

	mu    sync.Mutex
	calls map[uint64]*call // by the number in their reply subjects
}

// call is one read in flight. Its request may be sent more than once: the answer that
// arrives first counts.
type call struct {
	numbers  []uint64 // of the requests
	counts   uint64   // the number of the answer that counts; 0 before
	messages []*nats.Msg
	seen     int       // how many there were at the last look
	last     *nats.Msg // the one that ends it; has no body
	done     chan struct{}
}

// request is the body of a direct get.
type request struct {
	Sequence uint64 `json:"seq,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

func newReader(engine *engine, options Options) (*reader, error) {
	r := &reader{
		options: options, inbox: nats.NewInbox() + ".",
		free: semaphore.NewWeighted(readsBytes), calls: map[uint64]*call{}, closed: make(chan struct{}),
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

// close ends the reads in flight. It is called once.
func (r *reader) close() {
	close(r.closed)
	for _, conn := range r.conns {
		conn.Close()
	}
}

// take adds a message to its call, or completes the call.
func (r *reader) take(number uint64, message *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[number]
	if c == nil {
		return // the caller has given up
	}
	if c.counts == 0 {
		c.counts = number
	}
	if c.counts != number {
		return // another answer came first
	}
	if statusOf(message) == "" {
		c.messages = append(c.messages, message)
		return
	}
	c.last = message
	r.forget(c)
	close(c.done)
}

// forget stops a call from taking answers. The caller holds mu.
func (r *reader) forget(c *call) {
	for _, number := range c.numbers {
		delete(r.calls, number)
	}
}

// get returns the messages that a request asks for, in order. If no message arrives for
// patience, it repeats the request with a longer wait.
func (r *reader) get(ctx context.Context, stream string, ask request, patience time.Duration) ([]*nats.Msg, error) {
	ask.Batch, ask.MaxBytes = readBatch, min(max(ask.MaxBytes, 1), readBytes)
	weight := int64(ask.MaxBytes) + maxMessage
	if err := r.free.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer r.free.Release(weight)
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, errTimeout)
	defer cancel()
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	c := &call{done: make(chan struct{})}
	defer func() {
		r.mu.Lock()
		r.forget(c)
		r.mu.Unlock()
	}()
	if err := r.await(ctx, c, directGet+stream, body, patience); err != nil {
		return nil, err
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

// await sends a request and waits for the answer.
func (r *reader) await(ctx context.Context, c *call, subject string, body []byte, patience time.Duration) error {
	for {
		again := time.After(patience)
		if conn, reply := r.next(c); conn != nil {
			if err := conn.PublishRequest(subject, reply, body); err != nil {
				return readFailure(err)
			}
			patience = min(2*patience, attemptMax)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.closed:
			return topic.ErrClosed
		case <-c.done:
			return nil
		case <-again:
		}
	}
}

// next returns the connection and reply subject for the next request of a call, or nil if an
// answer is still arriving. It drops an answer that has stalled.
func (r *reader) next(c *call) (conn *nats.Conn, reply string) {
	number := r.lastNumber.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.last != nil || len(c.messages) > c.seen {
		c.seen = len(c.messages)
		return nil, ""
	}
	delete(r.calls, c.counts)
	c.counts, c.messages, c.seen = 0, nil, 0
	c.numbers = append(c.numbers, number)
	r.calls[number] = c
	i := int(number % uint64(len(r.conns)))
	return r.conns[i], r.inbox + strconv.Itoa(i+1) + "." + strconv.FormatUint(number, 10)
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

// Read returns entries in order, starting with the first sequence ≥ from. One call returns
// at most 4,096 entries, and at most 16 MiB without the last entry. In a cluster any replica
// may answer, preferably this node's own. If it lacks entries that the log is known to
// have, Read asks again, within Options.Timeout.
func (l *log) Read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	if err := l.ended(); err != nil {
		return nil, err
	}
	from = max(from, 1)
	if l.store.cluster == nil {
		return l.read(ctx, from, maxBytes)
	}
	ctx, cancel := l.store.bound(ctx)
	defer cancel()
	var entries []topic.Entry
	err := retry(ctx, func(ctx context.Context) (err error) {
		l.mu.Lock()
		from := max(from, l.first) // a replica that lags may not have trimmed yet
		l.mu.Unlock()
		entries, err = l.read(ctx, from, maxBytes)
		return err
	})
	return entries, err
}

// read makes one attempt.
func (l *log) read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	l.mu.Lock()
	last := l.last // the read may miss later appends
	l.mu.Unlock()
	patience := l.store.options.Timeout
	if l.store.cluster != nil {
		patience = attemptMin
	}
	messages, err := l.store.reader.get(ctx, l.source, request{Sequence: from, MaxBytes: maxBytes}, patience)
	if err != nil {
		return nil, l.readFailure(ctx, fmt.Errorf("read log %s from %d: %w", l.name, from, err))
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
			return nil, fmt.Errorf("read log %s: %w: entry %d is followed by %d", l.name, errGap, entries[i-1].Sequence, entry.Sequence)
		}
		entries[i] = entry
	}
	if l.store.cluster != nil && entries[0].Sequence > from {
		return entries, l.checkBegin(ctx, entries[0].Sequence)
	}
	return entries, nil
}

// readFailure maps the error of a read to topic's errors. In a cluster a missing answer does
// not mean that the log was deleted.
func (l *log) readFailure(ctx context.Context, err error) error {
	if l.ended() != nil || l.store.cluster == nil || !errors.Is(err, topic.ErrNoLog) {
		return l.failure(err)
	}
	if _, _, err := l.Ends(ctx); errors.Is(err, topic.ErrNoLog) {
		return err
	}
	return fmt.Errorf("%w: no replica answers", errNoLeader)
}

// checkBegin returns an error unless the log begins at begin: then the replica that
// answered lacks entries.
func (l *log) checkBegin(ctx context.Context, begin uint64) error {
	first, _, err := l.Ends(ctx)
	if err == nil && first < begin {
		err = fmt.Errorf("read log %s: %w: entries %d to %d", l.name, errGap, first, begin-1)
	}
	return err
}

// checkEnd returns an error for an empty read from a sequence that the log has: the engine
// answers reads beyond the end and of unreadable entries alike.
func (l *log) checkEnd(ctx context.Context, from, last uint64) error {
	if from > last {
		return nil
	}
	first, last, err := l.Ends(ctx)
	if err != nil {
		return err
	}
	if first <= last && from <= last {
		return fmt.Errorf("read log %s from %d: %w: it has entries %d to %d", l.name, from, errGap, first, last)
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
