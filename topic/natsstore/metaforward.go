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

// forward sends an operation to who writes in a term, and waits for the answer:
// as long as it may wait there, and be written. Without an answer it is
// uncertain, and reads wait until it is known what came of it.
func (m *meta) forward(ctx, within context.Context, term uint64, o operation) (uint64, error) {
	n := m.nodes
	m.mu.RLock()
	reachable, during := n.reachable && n.term == term, n.during
	m.mu.RUnlock()
	if !reachable {
		return 0, errTurnedBack
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
		m.lost(term)
		return 0, errTurnedBack
	}
	var a answer
	if err == nil {
		a, err = decodeAnswer(message.Data)
	}
	if err == nil && errors.Is(a.err, topic.ErrUncertain) {
		err = a.err
	}
	if err != nil {
		m.doubt()
		m.rouse()
		return 0, fmt.Errorf("%w: %v: %w", topic.ErrUncertain, o, err)
	}
	if errors.Is(a.err, errTurnedBack) {
		m.lost(term)
		return 0, errTurnedBack
	}
	m.mu.Lock()
	m.needs = max(m.needs, a.sequence)
	m.mu.Unlock()
	return a.sequence, a.err
}

// lost notes that the writer of a term does not take changes.
func (m *meta) lost(term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes.term == term {
		m.nodes.reachable = false
	}
}

// awaitWriter waits until a node is known that writes.
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
		ask := time.Since(n.asked) >= askEvery
		if ask {
			n.asked = time.Now()
		}
		news := m.listen()
		m.mu.Unlock()
		if ask {
			_ = n.conn.Publish(askSubject, nil) // lost: asked again
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		case <-time.After(askEvery):
		}
	}
}

// requested takes a change that another node sends in a term of this one.
func (m *meta) requested(term uint64) nats.MsgHandler {
	return func(message *nats.Msg) {
		respond := func(a answer) {
			if errors.Is(a.err, topic.ErrClosed) {
				a = answer{err: errTurnedBack}
			}
			_ = message.Respond(a.encode()) // Who gets none is uncertain.
		}
		r, err := decodeWriteRequest(message.Data)
		if err != nil {
			respond(answer{err: fmt.Errorf("%w: %w", errFailed, err)})
			return
		}
		size := int64(r.size())
		if !m.room.TryAcquire(size) {
			respond(answer{err: errTurnedBack})
			return
		}
		c := &change{operation: r.operation, deadline: time.Now().Add(r.Within), answer: func(a answer) {
			m.room.Release(size)
			respond(a)
		}}
		m.mu.Lock()
		taken := !m.closed && m.nodes.writes && m.nodes.term == term
		if taken {
			m.waiting = append(m.waiting, c)
		}
		m.mu.Unlock()
		if !taken {
			c.answer(answer{err: errTurnedBack})
			return
		}
		m.rouse()
	}
}
