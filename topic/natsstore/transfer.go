package natsstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// transfersAtOnce is how many streams are transferred at a time.
const transfersAtOnce = 16

// Leave announces that this node leaves, and transfers the leadership of all streams that
// it leads, the metadata's among them, and of the engine's own metadata. A stream without
// another current replica stays. Leave returns when the others lead, or ctx ends.
func (c *cluster) Leave(ctx context.Context) error {
	c.leave()
	var errs []error
	var mu sync.Mutex
	var work sync.WaitGroup
	slots := make(chan struct{}, transfersAtOnce)
	for _, stream := range c.names(ctx) {
		if !c.store.engine.leads(stream) {
			continue
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if err := c.transfer(ctx, stream, anyOf); err != nil && !errors.Is(err, errNoOther) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("transfer stream %s: %w", stream, err))
			}
		})
	}
	work.Wait()
	// Last, because the engine answers no requests until it has another leader.
	if err := c.transferEngine(ctx); err != nil {
		errs = append(errs, fmt.Errorf("transfer the engine's metadata: %w", err))
	}
	c.wakeUp()
	return errors.Join(errs...)
}

// transferEngine transfers the leadership of the engine's own metadata, if this node has it.
func (c *cluster) transferEngine(ctx context.Context) error {
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
	return c.poll(ctx, func() bool { return !c.store.engine.JetStreamIsLeader() })
}

// Remove removes a stopped node from the cluster: it no longer counts for majorities, and
// its logs get another replica where their placement allows one. It is idempotent.
// Errors: ErrAlive.
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
	err = c.store.retry(ctx, func(ctx context.Context) error {
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

// transferAgain is how long a node waits for a transfer to take effect. After that it may
// have been elected again, and repeats the transfer.
const transferAgain = time.Second

// errNoOther says that no other replica can lead a stream.
var errNoOther = errors.New("no other live node has all entries")

// Resign transfers the leadership of a log, preferably to a given node, and waits until
// this node no longer leads, at most Options.Timeout. It fails for a log with one replica.
func (c *cluster) Resign(ctx context.Context, log string, to int32) error {
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	err := c.transfer(ctx, logStream+log, func(others []int32) int32 {
		if slices.Contains(others, to) {
			return to
		}
		return others[0]
	})
	if err != nil {
		return c.store.failure(fmt.Errorf("resign from log %s: %w", log, err))
	}
	c.wakeUp()
	return nil
}

// anyOf returns a random node.
func anyOf(nodes []int32) int32 { return nodes[rand.IntN(len(nodes))] }

// transfer transfers the leadership of a stream to the node that choose returns, one of
// those that have all entries. It returns when this node no longer leads.
func (c *cluster) transfer(ctx context.Context, stream string, choose func(others []int32) int32) error {
	for c.store.engine.leads(stream) {
		info, err := c.store.info(ctx, stream)
		if err != nil {
			return err
		}
		alive := c.Alive()
		others := slices.DeleteFunc(replicasOf(info).Current, func(node int32) bool {
			return node == c.options.Node || !slices.Contains(alive, node)
		})
		if len(others) == 0 {
			return errNoOther
		}
		if err := c.askToTransfer(ctx, stream, choose(others)); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, transferAgain)
		_ = c.poll(within, func() bool { return !c.store.engine.leads(stream) })
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// askToTransfer asks the leader of a stream to transfer the leadership to a node.
func (c *cluster) askToTransfer(ctx context.Context, stream string, to int32) error {
	request := server.JSApiLeaderStepdownRequest{Placement: &server.Placement{Preferred: serverName(to)}}
	return c.store.retry(ctx, func(ctx context.Context) error {
		var answer server.JSApiStreamLeaderStepDownResponse
		if err := ask(ctx, c.store.conn, fmt.Sprintf(server.JSApiStreamLeaderStepDownT, stream), request, &answer); err != nil {
			return err
		}
		// An earlier attempt may have succeeded.
		if answer.Error != nil && !strings.Contains(answer.Error.Description, "is already leader") {
			return answer.Error
		}
		return nil
	})
}
