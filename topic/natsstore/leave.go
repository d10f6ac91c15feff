package natsstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// resignsAtOnce is how many streams are handed over at a time.
const resignsAtOnce = 16

// Leave lets other nodes know that this one goes, and hands all that it leads to
// others: streams of several replicas, the metadata, and the engine's own
// metadata. What has no other replica that is current stays. It returns when
// the others lead, or ctx ends.
func (c *cluster) Leave(ctx context.Context) error {
	c.leave()
	var errs []error
	var mu sync.Mutex
	var work sync.WaitGroup
	room := make(chan struct{}, resignsAtOnce)
	for _, stream := range c.names(ctx) {
		if !c.store.engine.leads(stream) {
			continue
		}
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			// Not all to one.
			if err := c.resign(ctx, stream, anyOf); err != nil && !errors.Is(err, errNoOther) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("hand over stream %s: %w", stream, err))
			}
		})
	}
	work.Wait()
	// Last: without it, for a moment, the engine answers nothing.
	if err := c.stepDownEngine(ctx); err != nil {
		errs = append(errs, fmt.Errorf("hand over the engine's metadata: %w", err))
	}
	c.look()
	return errors.Join(errs...)
}

// stepDownEngine hands over the engine's own metadata, if this node leads it.
func (c *cluster) stepDownEngine(ctx context.Context) error {
	if !c.store.engine.JetStreamIsLeader() || len(c.Alive()) == 1 {
		return nil
	}
	conn, err := connectAs(c.store.engine, c.store.engine.systemLogin, c.store.options.Logger)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	var answer server.JSApiLeaderStepDownResponse
	if err := ask(ctx, conn, server.JSApiLeaderStepDown, struct{}{}, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	return c.until(ctx, func() bool { return !c.store.engine.JetStreamIsLeader() })
}

// Remove takes a node that has stopped out of the cluster: it does not count for
// a majority any more, and what it kept gets another replica where the placement
// allows one. A node that is not in it is removed already. Errors: ErrAlive.
func (c *cluster) Remove(ctx context.Context, node int32) error {
	if node == c.options.Node || slices.Contains(c.Alive(), node) {
		return fmt.Errorf("remove node %d: %w", node, ErrAlive)
	}
	conn, err := connectAs(c.store.engine, c.store.engine.systemLogin, c.store.options.Logger)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	err = c.store.attempts(ctx, func(ctx context.Context) error {
		var answer server.JSApiMetaServerRemoveResponse
		request := server.JSApiMetaServerRemoveRequest{Peer: peerID(node)}
		if err := ask(ctx, conn, server.JSApiRemoveServer, request, &answer); err != nil {
			return err
		}
		if answer.Error != nil && server.ErrorIdentifier(answer.Error.ErrCode) != server.JSClusterServerNotMemberErr {
			return answer.Error
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove node %d: %w", node, err)
	}
	return nil
}
