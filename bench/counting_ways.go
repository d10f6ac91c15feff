package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// scanPage is how many keys or fields one step of a scan reads.
const scanPage = 1000

// scanCounting has a key for each active token, which Redis expires. A decision scans all of them.
type scanCounting struct{ countingRedis }

func (c *scanCounting) fill(ctx context.Context, inside, soon int, until time.Time, waiting int) error {
	err := c.pipelined(ctx, 0, inside, func(p redis.Pipeliner, n int) {
		p.Do(ctx, "SET", tokenKey+strconv.Itoa(n), "1", "PXAT", endOf(n, soon, until).UnixMilli())
	})
	if err != nil {
		return err
	}
	return c.line(ctx, inside, waiting)
}

func (c *scanCounting) inside(ctx context.Context) (int, error) {
	count, cursor := 0, uint64(0)
	for {
		keys, next, err := c.client.Scan(ctx, cursor, tokenKey+"*", scanPage).Result()
		if err != nil {
			return 0, err
		}
		if count, cursor = count+len(keys), next; cursor == 0 {
			return count, nil
		}
	}
}

func (c *scanCounting) admit(ctx context.Context, capacity int) error {
	active, err := c.inside(ctx)
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
		return nil
	})
	return err
}

func (c *scanCounting) counted(ctx context.Context) (int, error) { return c.inside(ctx) }

func (c *scanCounting) expire(context.Context) error { return nil }

// setCounting has a set of the active tokens, whose size is their number, and a hash with the end
// of each. A schedule scans the hash.
type setCounting struct{ countingRedis }

const endsKey = "ends"

func (c *setCounting) fill(ctx context.Context, inside, soon int, until time.Time, waiting int) error {
	err := c.pipelined(ctx, 0, inside, func(p redis.Pipeliner, n int) {
		p.SAdd(ctx, activeKey, n)
		p.HSet(ctx, endsKey, n, endOf(n, soon, until).UnixMilli())
	})
	if err != nil {
		return err
	}
	return c.line(ctx, inside, waiting)
}

func (c *setCounting) inside(ctx context.Context) (int, error) {
	size, err := c.client.SCard(ctx, activeKey).Result()
	return int(size), err
}

func (c *setCounting) counted(ctx context.Context) (int, error) { return c.inside(ctx) }

func (c *setCounting) admit(ctx context.Context, capacity int) error {
	active, err := c.inside(ctx)
	if err != nil {
		return err
	}
	names, err := c.next(ctx, capacity-active)
	if err != nil || len(names) == 0 {
		return err
	}
	_, err = c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.SAdd(ctx, activeKey, name)
			p.HSet(ctx, endsKey, name, time.Now().Add(time.Hour).UnixMilli())
		}
		return nil
	})
	return err
}

func (c *setCounting) expire(ctx context.Context) error {
	now, cursor := time.Now().UnixMilli(), uint64(0)
	for {
		page, next, err := c.client.HScan(ctx, endsKey, cursor, "", scanPage).Result()
		if err != nil {
			return err
		}
		var over []string
		for i := 0; i+1 < len(page); i += 2 {
			if ends, err := strconv.ParseInt(page[i+1], 10, 64); err != nil {
				return err
			} else if ends <= now {
				over = append(over, page[i])
			}
		}
		if len(over) > 0 {
			_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.HDel(ctx, endsKey, over...)
				p.SRem(ctx, activeKey, over)
				return nil
			})
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// endCounting has a sorted set of the active tokens by their end. One script counts it and lets
// visitors in.
type endCounting struct{ countingRedis }

// admitByEnd removes expired tokens, and fills the free slots. KEYS: the active tokens and the
// queue; ARGV: the capacity.
var admitByEnd = redis.NewScript(strings.TrimSpace(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local free = ARGV[1] - redis.call('ZCARD', KEYS[1])
if free <= 0 then return 0 end
local first = redis.call('ZPOPMIN', KEYS[2], free)
for i = 1, #first, 2 do redis.call('ZADD', KEYS[1], now + 3600000, first[i]) end
return #first / 2
`))

func (c *endCounting) fill(ctx context.Context, inside, soon int, until time.Time, waiting int) error {
	err := c.pipelined(ctx, 0, inside, func(p redis.Pipeliner, n int) {
		p.ZAdd(ctx, activeKey, redis.Z{Score: float64(endOf(n, soon, until).UnixMilli()), Member: strconv.Itoa(n)})
	})
	if err != nil {
		return err
	}
	return c.line(ctx, inside, waiting)
}

func (c *endCounting) inside(ctx context.Context) (int, error) {
	size, err := c.client.ZCard(ctx, activeKey).Result()
	return int(size), err
}

func (c *endCounting) counted(ctx context.Context) (int, error) { return c.inside(ctx) }

func (c *endCounting) admit(ctx context.Context, capacity int) error {
	return admitByEnd.Run(ctx, c.client, []string{activeKey, waitingKey}, capacity).Err()
}

// expire removes expired tokens and lets nobody in.
func (c *endCounting) expire(ctx context.Context) error { return c.admit(ctx, 0) }
