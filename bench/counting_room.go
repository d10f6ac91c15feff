package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
)

// roomCounting is sluice's store on Redis. Ten stores are ten instances.
type roomCounting struct {
	countingRedis
	stores []*redisstore.Store
	terms  room.Terms
	// ahead is by how much the clock was moved.
	ahead atomic.Int64
	turn  atomic.Int64
}

const (
	// roomSoon and roomLong are the lengths of visits.
	roomSoon, roomLong = 20 * time.Minute, time.Hour
	// roomFillers is how many visitors are let in concurrently.
	roomFillers = 64
)

func openRoomCounting(ctx context.Context, base countingRedis, server *redisServer) (_ *roomCounting, err error) {
	c := &roomCounting{countingRedis: base}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for range admitters {
		store, err := redisstore.Open(ctx, redisstore.Options{
			URL: "unix://" + server.socket, ClockOffset: func() time.Duration { return time.Duration(c.ahead.Load()) },
		})
		if err != nil {
			return nil, err
		}
		c.stores = append(c.stores, store)
	}
	c.terms = room.Terms{
		Room: roomName, MaxWaiting: 10_000_000, TTL: roomLong, Claim: roomLong, Abandon: 24 * time.Hour, Grace: time.Hour, Away: 24 * time.Hour,
	}
	c.terms.Revision, err = c.stores[0].PutRoom(ctx, roomName, []byte("{}"), 0)
	return c, err
}

func (c *roomCounting) close() error {
	var err error
	for _, store := range c.stores {
		err = errors.Join(err, store.Close())
	}
	return errors.Join(err, c.countingRedis.close())
}

func (c *roomCounting) fill(ctx context.Context, inside, soon int, _ time.Time, waiting int) error {
	terms := c.terms
	terms.Capacity, terms.TTL = int64(inside), roomSoon
	if err := c.enter(ctx, terms, soon); err != nil {
		return err
	}
	terms.TTL = roomLong
	return c.enter(ctx, terms, inside-soon+waiting)
}

// enter lets visitors enter; they are inside as far as the capacity allows.
func (c *roomCounting) enter(ctx context.Context, terms room.Terms, count int) error {
	var wait sync.WaitGroup
	errs := make([]error, roomFillers)
	for i := range roomFillers {
		wait.Go(func() {
			for n := i; n < count && errs[i] == nil; n += roomFillers {
				_, errs[i] = c.stores[i%len(c.stores)].Enter(ctx, terms, room.Arrival{})
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// admit runs the operation that ends due visits and calls the next visitors. Concurrent admitters
// use different instances.
func (c *roomCounting) admit(ctx context.Context, capacity int) error {
	terms := c.terms
	terms.Capacity = int64(capacity)
	_, err := c.stores[c.turn.Add(1)%admitters].Expire(ctx, terms)
	return err
}

func (c *roomCounting) expire(ctx context.Context) error { return c.admit(ctx, 0) }

func (c *roomCounting) inside(ctx context.Context) (int, error) {
	status, err := c.stores[0].Status(ctx, roomName)
	return int(status.Inside), err
}

func (c *roomCounting) counted(ctx context.Context) (int, error) { return c.inside(ctx) }
