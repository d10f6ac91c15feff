package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// counting is a way to count the visitors inside, on a Redis of its own. Visitors wait in a sorted
// set; times are absolute, by the server's clock.
type counting interface {
	// fill puts a number of visitors inside, the first ones until a time and the others for an
	// hour, and a number into the queue.
	fill(ctx context.Context, inside, soon int, until time.Time, waiting int) error
	// admit decides once, as one of several admitters: it fills the free slots.
	admit(ctx context.Context, capacity int) error
	// inside returns how many are really inside.
	inside(ctx context.Context) (int, error)
	// counted returns how many are inside by the way's own count.
	counted(ctx context.Context) (int, error)
	// expire ends the visits that are due, if the way does that itself; it is called repeatedly.
	expire(ctx context.Context) error
	close() error
}

// CountingWays are the ways of the seed, in its order, and the way of sluice.
var CountingWays = []string{
	"1 status in tokens, full scan", "2 set and hash, scheduled scans", "3 counter, keyspace notifications",
	"4 sorted set by end, bare", "4 sluice on Redis",
}

// openCounting starts a way.
func openCounting(ctx context.Context, way string, server *redisServer) (counting, error) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.socket, PoolSize: 2 * admitters})
	base := countingRedis{client: client}
	switch way {
	case CountingWays[0]:
		return &scanCounting{base}, nil
	case CountingWays[1]:
		return &setCounting{base}, nil
	case CountingWays[2]:
		return openNotified(ctx, base)
	case CountingWays[3]:
		return &endCounting{base}, nil
	default:
		return openRoomCounting(ctx, base, server)
	}
}

// countingRedis is the common part of all ways.
type countingRedis struct{ client *redis.Client }

func (c countingRedis) close() error { return c.client.Close() }

// The names of keys.
const (
	waitingKey = "waiting"
	activeKey  = "active"
	tokenKey   = "active-"
	counterKey = "inside"
)

// pipelined sends a command for each number from first on, a thousand at a time.
func (c countingRedis) pipelined(ctx context.Context, first, count int, add func(p redis.Pipeliner, n int)) error {
	for n := first; n < first+count; n += 1000 {
		pipeline := c.client.Pipeline()
		for i := n; i < min(n+1000, first+count); i++ {
			add(pipeline, i)
		}
		if _, err := pipeline.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// line adds visitors to the queue.
func (c countingRedis) line(ctx context.Context, first, count int) error {
	return c.pipelined(ctx, first, count, func(p redis.Pipeliner, n int) {
		p.ZAdd(ctx, waitingKey, redis.Z{Score: float64(n), Member: strconv.Itoa(n)})
	})
}

// next returns the first visitors of the queue.
func (c countingRedis) next(ctx context.Context, count int) ([]string, error) {
	if count <= 0 {
		return nil, nil
	}
	first, err := c.client.ZPopMin(ctx, waitingKey, int64(count)).Result()
	names := make([]string, len(first))
	for i, entry := range first {
		names[i] = fmt.Sprint(entry.Member)
	}
	return names, err
}

// endOf returns when the visit of visitor n ends.
func endOf(n, soon int, until time.Time) time.Time {
	if n < soon {
		return until
	}
	return time.Now().Add(time.Hour)
}

// busy returns the processor time that the server has used.
func (r *redisServer) busy(ctx context.Context) (time.Duration, error) {
	info, err := r.info(ctx)
	return time.Duration((info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]) * float64(time.Second)), err
}

// Counted is the measurement of a way.
type Counted struct {
	// Admit is the median time of one decision that lets one visitor in; AdmitServer is its
	// processor time at the server.
	Admit, AdmitServer time.Duration
	// Expire is the time from when ExpiredAtOnce visits are due until the way no longer counts
	// them; ExpireServer is its processor time at the server. Late are the visitors that are still
	// counted after GoneWithin.
	Expire, ExpireServer time.Duration
	Late                 int
	// Over is how many are inside above the capacity after ten concurrent admitters.
	Over int
}

const (
	// admitters is how many decide concurrently.
	admitters = 10
	// ExpiredAtOnce is how many visits end at one time.
	ExpiredAtOnce = 1000
	// freeSlots is the number of free slots when the admitters begin; racers is how many visitors
	// wait.
	freeSlots, racers = 100, 2000
	// decisions is how many decisions are measured, or as many as fit in decideFor.
	decisions = 200
	decideFor = 3 * time.Second
	// soonAfter is when the first visits are due after all are inside, which takes up to fillTime
	// for each.
	soonAfter = 2 * time.Second
	fillTime  = 50 * time.Microsecond
	// GoneWithin bounds the wait for expired visits.
	GoneWithin = 10 * time.Second
)

// Counting measures a way with the given number inside.
func (e *Environment) Counting(ctx context.Context, way string, inside int) (counted Counted, err error) {
	measures := []func(context.Context, counting, *redisServer, int) error{
		counted.decide,
		func(ctx context.Context, c counting, _ *redisServer, inside int) error {
			return counted.race(ctx, c, inside)
		},
		counted.end,
	}
	for _, measure := range measures {
		if err := e.count(ctx, way, func(ctx context.Context, c counting, server *redisServer) error {
			return measure(ctx, c, server, inside)
		}); err != nil {
			return counted, fmt.Errorf("%s: %w", way, err)
		}
	}
	return counted, nil
}

// count starts a way on an empty Redis, and calls f.
func (e *Environment) count(ctx context.Context, way string, f func(context.Context, counting, *redisServer) error) error {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	server, err := startRedis(ctx, e.folder, "everysec")
	if err != nil {
		return err
	}
	c, err := openCounting(ctx, way, server)
	if err != nil {
		return errors.Join(err, server.stop())
	}
	return errors.Join(f(ctx, c, server), c.close(), server.stop())
}

// decide measures decisions that each let one visitor in.
func (m *Counted) decide(ctx context.Context, c counting, server *redisServer, inside int) error {
	if err := c.fill(ctx, inside, 0, time.Time{}, decisions); err != nil {
		return err
	}
	before, err := server.busy(ctx)
	if err != nil {
		return err
	}
	var times []time.Duration
	began := time.Now()
	for n := 1; n <= decisions && time.Since(began) < decideFor; n++ {
		sent := time.Now()
		if err := c.admit(ctx, inside+n); err != nil {
			return err
		}
		times = append(times, time.Since(sent))
	}
	after, err := server.busy(ctx)
	if err != nil {
		return err
	}
	m.AdmitServer = (after - before) / time.Duration(len(times))
	latency, err := latencyOf(times, time.Since(began))
	m.Admit = latency.Median
	if err != nil {
		return err
	}
	now, err := c.inside(ctx)
	if want := inside + len(times); err == nil && now != want {
		err = fmt.Errorf("%d are inside after %d decisions: want %d", now, len(times), want)
	}
	return err
}

// race lets admitters decide concurrently, a few times each.
func (m *Counted) race(ctx context.Context, c counting, inside int) error {
	if err := c.fill(ctx, inside, 0, time.Time{}, racers); err != nil {
		return err
	}
	var wait sync.WaitGroup
	errs := make([]error, admitters)
	for i := range admitters {
		wait.Go(func() {
			for n := 0; n < 3 && errs[i] == nil; n++ {
				errs[i] = c.admit(ctx, inside+freeSlots)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	now, err := c.inside(ctx)
	m.Over = now - inside - freeSlots
	if err == nil && m.Over < 0 {
		err = fmt.Errorf("%d of %d slots stay free", -m.Over, freeSlots)
	}
	return err
}

// end measures visits that end at one time.
func (m *Counted) end(ctx context.Context, c counting, server *redisServer, inside int) error {
	until := time.Now().Add(soonAfter + time.Duration(inside)*fillTime)
	if err := c.fill(ctx, inside, ExpiredAtOnce, until, 0); err != nil {
		return err
	}
	if err := awaitDue(ctx, c, until); err != nil {
		return err
	}
	before, err := server.busy(ctx)
	if err != nil {
		return err
	}
	began, pause := time.Now(), pollLeast
	for {
		if err := c.expire(ctx); err != nil {
			return err
		}
		now, err := c.counted(ctx)
		if err != nil {
			return err
		}
		if m.Late = now - (inside - ExpiredAtOnce); m.Late == 0 || time.Since(began) > GoneWithin {
			break
		}
		if err := rest(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, pollMost)
	}
	m.Expire = time.Since(began)
	after, err := server.busy(ctx)
	m.ExpireServer = after - before
	return err
}

// The check whether all due visits have ended is repeated after a pause that doubles each time:
// checking costs the server time too.
const (
	pollLeast = 5 * time.Millisecond
	pollMost  = 320 * time.Millisecond
)

// awaitDue waits until the visits are due. For sluice the clock is moved instead: its visitors are
// let in one by one, which takes longer.
func awaitDue(ctx context.Context, c counting, until time.Time) error {
	if moved, ok := c.(*roomCounting); ok {
		moved.ahead.Store(int64(roomSoon))
		return nil
	}
	if late := time.Since(until); late > 0 {
		return fmt.Errorf("filling took %s too long", late)
	}
	return rest(ctx, time.Until(until))
}
