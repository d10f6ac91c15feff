package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/topic"
)

// Requests of nodes to each other travel over the engine's connections between nodes, which
// only nodes with the secret, and with TLS a certificate, can make.

const (
	// requestSubject, followed by a dot and the number of a node, has the requests to it.
	requestSubject = "sluice.nodes.request"
	// answerTime bounds a request and its answer.
	answerTime = 10 * time.Second
	// answersAtOnce is how many requests of others a node answers concurrently. Further
	// ones have no answer, and their senders learn that at once.
	answersAtOnce = 64
	// noResponders is the status by which the engine reports that nobody answers a subject.
	noResponders = "503"
)

func requestsTo(node int32) string { return requestSubject + "." + strconv.Itoa(int(node)) }

// Ask sends a request to another node and returns its answer, within 10 s.
func (c *cluster) Ask(ctx context.Context, node int32, request []byte) ([]byte, error) {
	if len(request) > topic.MaxRequest {
		return nil, fmt.Errorf("a request to node %d has %d bytes: want at most %d", node, len(request), topic.MaxRequest)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	message, err := c.store.conn.RequestWithContext(ctx, requestsTo(node), request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: node %d is not there, or has too many requests", topic.ErrNoAnswer, node)
	case err != nil:
		return nil, fmt.Errorf("%w: node %d: %w", topic.ErrNoAnswer, node, err)
	}
	return message.Data, nil
}

// Answer answers the requests of other nodes with a function.
func (c *cluster) Answer(with func(ctx context.Context, request []byte) []byte) (cancel func(), err error) {
	free := semaphore.NewWeighted(answersAtOnce)
	subscription, err := c.store.conn.Subscribe(requestsTo(c.options.Node), func(message *nats.Msg) {
		if !free.TryAcquire(1) {
			refuseRequest(message)
			return
		}
		c.work.Go("answer to a node", func(ctx context.Context) error {
			defer free.Release(1)
			ctx, cancel := context.WithTimeout(ctx, answerTime)
			defer cancel()
			answer := with(ctx, message.Data)
			if len(answer) > topic.MaxRequest {
				c.store.options.Logger.Error("topic store: an answer to a node is too large", "bytes", len(answer))
				refuseRequest(message)
				return nil
			}
			_ = message.Respond(answer) // without it the sender waits in vain
			return nil
		})
	})
	if err != nil {
		return nil, c.store.failure(err)
	}
	return func() { _ = subscription.Unsubscribe() }, nil // it fails when the connection is closed
}

// refuseRequest answers as the engine does when nobody answers.
func refuseRequest(message *nats.Msg) {
	refusal := nats.NewMsg(message.Reply)
	refusal.Header.Set("Status", noResponders)
	_ = message.RespondMsg(refusal) // without it the sender waits in vain
}
