package bench

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notifiedCounting has a key for each active token, and a counter. Redis expires the keys and
// notifies subscribers, which decrement the counter.
type notifiedCounting struct {
	countingRedis
	subscribers []*subscriber
}

func openNotified(ctx context.Context, base countingRedis) (*notifiedCounting, error) {
	if err := base.client.ConfigSet(ctx, "notify-keyspace-events", "Ex").Err(); err != nil {
		return nil, err
	}
	c := &notifiedCounting{countingRedis: base}
	return c, c.subscribe(ctx)
}

// subscribe adds a subscriber.
func (c *notifiedCounting) subscribe(ctx context.Context) error {
	s := &subscriber{client: c.client, notices: c.client.PSubscribe(ctx, "__keyevent@*__:expired")}
	if _, err := s.notices.Receive(ctx); err != nil {
		return err
	}
	s.done.Go(s.listen)
	c.subscribers = append(c.subscribers, s)
	return nil
}

// unsubscribe ends the last subscriber.
func (c *notifiedCounting) unsubscribe() error {
	last := len(c.subscribers) - 1
	s := c.subscribers[last]
	c.subscribers = c.subscribers[:last]
	err := s.notices.Close()
	s.done.Wait()
	return err
}

func (c *notifiedCounting) close() error {
	for len(c.subscribers) > 0 {
		if err := c.unsubscribe(); err != nil {
			return err
		}
	}
	return c.countingRedis.close()
}

// subscriber decrements the counter for each token of which it is notified.
type subscriber struct {
	client  *redis.Client
	notices *redis.PubSub
	done    sync.WaitGroup
}

func (s *subscriber) listen() {
	for notice := range s.notices.Channel(redis.WithChannelSize(10_000)) {
		if strings.HasPrefix(notice.Payload, tokenKey) {
			// A failed decrement is lost, as a notification is.
			_ = s.client.Decr(context.Background(), counterKey).Err()
		}
	}
}

func (c *notifiedCounting) fill(ctx context.Context, inside, soon int, until time.Time, waiting int) error {
	err := c.pipelined(ctx, 0, inside, func(p redis.Pipeliner, n int) {
		p.Do(ctx, "SET", tokenKey+strconv.Itoa(n), "1", "PXAT", endOf(n, soon, until).UnixMilli())
	})
	if err != nil {
		return err
	}
	if err := c.client.Set(ctx, counterKey, inside, 0).Err(); err != nil {
		return err
	}
	return c.line(ctx, inside, waiting)
}

func (c *notifiedCounting) inside(ctx context.Context) (int, error) {
	return (&scanCounting{c.countingRedis}).inside(ctx)
}

func (c *notifiedCounting) counted(ctx context.Context) (int, error) {
	return c.client.Get(ctx, counterKey).Int()
}

func (c *notifiedCounting) admit(ctx context.Context, capacity int) error {
	active, err := c.counted(ctx)
	if err != nil {
		return err
	}
	names, err := c.next(ctx, capacity-active)
	if err != nil || len(names) == 0 {
		return err
	}
	_, err = c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.Set(ctx, tokenKey+name, "1", time.Hour)
		}
		p.IncrBy(ctx, counterKey, int64(len(names)))
		return nil
	})
	return err
}

func (c *notifiedCounting) expire(context.Context) error { return nil }
