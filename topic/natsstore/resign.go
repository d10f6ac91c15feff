package natsstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// resignAgain is how long a node that has stepped down waits to see that it does not
// lead: then it may have been elected again, and steps down once more.
const resignAgain = time.Second

// errNoOther says that a stream has no other replica that could lead it.
var errNoOther = errors.New("no other node that is alive has all of it")

// Resign lets another node lead a log, and waits until this one does not, at most
// Options.Timeout. A log with one replica has nobody else.
func (c *cluster) Resign(ctx context.Context, log string, to int32) error {
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	err := c.resign(ctx, logStream+log, func(others []int32) int32 {
		if slices.Contains(others, to) {
			return to
		}
		return others[0]
	})
	if err != nil {
		return c.store.failure(fmt.Errorf("resign from log %s: %w", log, err))
	}
	c.look()
	return nil
}

// anyOf returns one of several nodes, by chance.
func anyOf(nodes []int32) int32 { return nodes[rand.IntN(len(nodes))] }

// resign lets another node lead a stream: the one that choose returns of those that
// have all of it. It returns when this one does not lead it any more.
func (c *cluster) resign(ctx context.Context, stream string, choose func(others []int32) int32) error {
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
		if err := c.stepDown(ctx, stream, choose(others)); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, resignAgain)
		_ = c.until(within, func() bool { return !c.store.engine.leads(stream) })
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// stepDown asks who leads a stream to let another node do that.
func (c *cluster) stepDown(ctx context.Context, stream string, to int32) error {
	request := server.JSApiLeaderStepdownRequest{Placement: &server.Placement{Preferred: serverName(to)}}
	return c.store.attempts(ctx, func(ctx context.Context) error {
		var answer server.JSApiStreamLeaderStepDownResponse
		if err := ask(ctx, c.store.conn, fmt.Sprintf(server.JSApiStreamLeaderStepDownT, stream), request, &answer); err != nil {
			return err
		}
		// An earlier attempt may have done it.
		if answer.Error != nil && !strings.Contains(answer.Error.Description, "is already leader") {
			return answer.Error
		}
		return nil
	})
}
