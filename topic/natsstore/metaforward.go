package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/topic"
)

// forward sends an operation to the writer of a term and waits for the answer, as long as
// the operation may wait there and be written. Without an answer it is uncertain, and reads
// wait until its outcome is known.
func (m *meta) forward(ctx, within context.Context, term uint64, o operation) (uint64, error) {
	n := m.nodes
	m.mu.RLock()
	reachable, during := n.reachable && n.term == term, n.termCtx
	m.mu.RUnlock()
	if !reachable {
		return 0, errNotWriter
	}
	deadline, _ := within.Deadline()
	left := time.Until(deadline)
	data, err := writeRequest{operation: o, Within: left}.encode()
	if err != nil {
		return 0, err
	}
	wait, cancel := context.WithTimeout(ctx, left+m.store.options.Timeout)
	defer cancel()
	stop := context.AfterFunc(during, cancel)
	defer stop()
	message, err := n.conn.RequestWithContext(wait, writeSubject+"."+strconv.FormatUint(term, 10), data)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded) {
		m.writerUnreachable(term)
		return 0, errNotWriter
	}
	var a answer
	if err == nil {
		a, err = decodeAnswer(message.Data)
	}
	if err == nil && errors.Is(a.err, topic.ErrUncertain) {
		err = a.err
	}
	if err != nil {
		m.markUncertain()
		m.wakeUp()
		return 0, fmt.Errorf("%w: %v: %w", topic.ErrUncertain, o, err)
	}
	if errors.Is(a.err, errNotWriter) {
		m.writerUnreachable(term)
		return 0, errNotWriter
	}
	m.mu.Lock()
	m.needs = max(m.needs, a.sequence)
	m.mu.Unlock()
	return a.sequence, a.err
}

// writerUnreachable records that the writer of a term takes no changes.
func (m *meta) writerUnreachable(term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes.term == term {
		m.nodes.reachable = false
	}
}

// awaitWriter waits until a writer is known.
func (m *meta) awaitWriter(ctx context.Context) error {
	n := m.nodes
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return topic.ErrClosed
		}
		if n.writes || n.reachable {
			m.mu.Unlock()
			return nil
		}
		ask := time.Since(n.askedAt) >= askEvery
		if ask {
			n.askedAt = time.Now()
		}
		changed := m.nextChange()
		m.mu.Unlock()
		if ask {
			_ = n.conn.Publish(askSubject, nil) // repeated if it is lost
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(askEvery):
		}
	}
}

// handleRequests returns the handler of changes that other nodes send in a term of this
// node.
func (m *meta) handleRequests(term uint64) nats.MsgHandler {
	return func(message *nats.Msg) {
		respond := func(a answer) {
			if errors.Is(a.err, topic.ErrClosed) {
				a = answer{err: errNotWriter}
			}
			_ = message.Respond(a.encode()) // without it the sender treats the change as uncertain
		}
		r, err := decodeWriteRequest(message.Data)
		if err != nil {
			respond(answer{err: fmt.Errorf("%w: %w", errFailed, err)})
			return
		}
		size := int64(r.size())
		if !m.free.TryAcquire(size) {
			respond(answer{err: errNotWriter})
			return
		}
		c := &pendingChange{operation: r.operation, deadline: time.Now().Add(r.Within), answer: func(a answer) {
			m.free.Release(size)
			respond(a)
		}}
		m.mu.Lock()
		taken := !m.closed && m.nodes.writes && m.nodes.term == term
		if taken {
			m.waiting = append(m.waiting, c)
		}
		m.mu.Unlock()
		if !taken {
			c.answer(answer{err: errNotWriter})
			return
		}
		m.wakeUp()
	}
}
