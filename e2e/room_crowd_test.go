package e2e

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// crowdPlan describes the guests of a room.
type crowdPlan struct {
	room string
	// count is how many guests come in all, together how many are there at a time.
	count, together int
	// The room's settings; slides reports whether asking extends a pass.
	ttl, claim, abandon, grace time.Duration
	slides                     bool
	// near is the last position whose guests are told to ask within half the claim window.
	near int64
	// stay bounds how long a guest stays inside.
	stay time.Duration
}

// teller returns the settings of the plan's room, in mode teller.
func (p *crowdPlan) teller(capacity int64) string {
	return fmt.Sprintf(`{"mode":"teller","capacity":%d,"pass_ttl_ms":%d,"claim_window_ms":%d,"abandon_after_ms":%d,"grace_ms":%d}`,
		capacity, p.ttl.Milliseconds(), p.claim.Milliseconds(), p.abandon.Milliseconds(), p.grace.Milliseconds())
}

// awaitEmpty waits until all visitors are gone, including silent ones.
func awaitEmpty(t *testing.T, s *server, name string) {
	t.Helper()
	until.True(t, "the room is empty", func() bool {
		v := s.room(name)
		return v.Waiting == 0 && v.Inside == 0
	})
}

// crowd is a set of guests who come to a room of several servers, poll as they are told, stay,
// leave, vanish and return. Each request goes to a random server, as behind a load balancer; failed
// requests are repeated.
//
// Guests come as fast as they are served: a slow machine makes the crowd slower, not impatient.
type crowd struct {
	t       *testing.T
	plan    crowdPlan
	crowds  int // how many crowds have come
	servers []*server

	mu     sync.Mutex
	queue  guests
	all    []*guest
	there  int // guests who have not ended
	errors int
	// outages are the times when the service was away.
	outages []outage

	admitted, ended, broken, unavailable, unknown atomic.Int64
	// stall is how late this process itself ran.
	stall atomic.Int64

	wait sync.WaitGroup
	stop chan struct{}
}

// outage is a time during which the service was away. In a long one no guest's deadline runs; in a
// short one it may.
type outage struct {
	from, to time.Time
	long     bool
}

// crowdWorkers is how many requests are in flight at a time.
const crowdWorkers = 32

// newCrowd lets guests come until all have come, or the test ends.
func newCrowd(t *testing.T, plan crowdPlan, servers ...*server) *crowd {
	c := &crowd{t: t, plan: plan, crowds: 1, servers: servers, stop: make(chan struct{})}
	c.start()
	var watching sync.WaitGroup
	watching.Go(c.watchStalls)
	var once sync.Once
	end := func() {
		once.Do(func() { close(c.stop) })
		c.wait.Wait()
		watching.Wait()
	}
	t.Cleanup(end)
	return c
}

func (c *crowd) start() {
	for range crowdWorkers {
		c.wait.Go(c.work)
	}
}

// mostCrowds bounds the number of crowds that come until a test has seen enough.
const mostCrowds = 5

// another lets as many guests come again as the first crowd had. All earlier guests must have
// ended.
func (c *crowd) another() {
	c.wait.Wait()
	c.plan.count += c.plan.count / c.crowds
	c.crowds++
	c.start()
}

// guests are ordered by their due times.
type guests []*guest

func (q guests) Len() int           { return len(q) }
func (q guests) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q guests) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *guests) Push(x any)        { *q = append(*q, x.(*guest)) }
func (q *guests) Pop() any {
	last := len(*q) - 1
	g := (*q)[last]
	*q = (*q)[:last]
	return g
}

// work serves one guest after another.
func (c *crowd) work() {
	conns := make([]*keptConn, len(c.servers))
	for i, s := range c.servers {
		conns[i] = &keptConn{addr: s.addr}
		defer conns[i].close()
	}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		g, over := c.next()
		if over {
			return
		}
		if g == nil {
			select {
			case <-tick.C:
			case <-c.stop:
				return
			}
			continue
		}
		c.turn(g, conns[rand.N(len(conns))])
		c.back(g)
	}
}

// next returns a due guest, or a new one if none is due; over reports whether all guests have
// ended.
func (c *crowd) next() (g *guest, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.stop:
		return nil, true
	default:
	}
	switch {
	case len(c.queue) > 0 && !c.queue[0].due.After(time.Now()):
		return heap.Pop(&c.queue).(*guest), false
	case len(c.all) < c.plan.count && c.there < c.plan.together:
		g := c.comes(len(c.all))
		c.all = append(c.all, g)
		c.there++
		return g, false
	}
	return nil, c.there == 0 && len(c.all) == c.plan.count
}

// back puts a guest back after a request.
func (c *crowd) back(g *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.due.IsZero() {
		c.there--
		c.ended.Add(1)
		return
	}
	heap.Push(&c.queue, g)
}

// comes creates a guest. Of twelve guests nine keep asking, one vanishes while it waits, and two
// return, most of them before they lose their place.
func (c *crowd) comes(index int) *guest {
	g := &guest{stay: rand.N(c.plan.stay), leaves: rand.N(3) > 0, polls: 1 + rand.N(2)}
	switch rand.N(12) {
	case 0:
		g.habit = vanishing
	case 1, 2:
		g.habit = returning
		g.silent = c.plan.abandon/4 + rand.N(c.plan.abandon+c.plan.grace)
	}
	if rand.N(2) == 0 {
		g.key = fmt.Sprint("guest ", index)
	}
	return g
}

// goOn waits until more guests have ended, or all. It returns false when all have ended.
func (c *crowd) goOn(more int) bool {
	c.t.Helper()
	want := min(c.ended.Load()+int64(more), int64(c.plan.count))
	until.True(c.t, "visitors have had their visits", func() bool { return c.ended.Load() >= want || c.failing() })
	if c.failing() {
		c.t.FailNow()
	}
	return c.ended.Load() < int64(c.plan.count)
}

// outageOf calls f, which makes the service unavailable.
func (c *crowd) outageOf(f func(), long bool) {
	from := time.Now()
	c.mu.Lock()
	c.outages = append(c.outages, outage{from, from.Add(time.Hour), long})
	c.mu.Unlock()
	f()
	c.mu.Lock()
	c.outages[len(c.outages)-1].to = time.Now()
	c.mu.Unlock()
}

// away returns how long the service was away between two times.
func (c *crowd) away(from, to time.Time) time.Duration { return c.awayIf(from, to, false) }

// stopped returns for how long no guest's deadline ran between two times, at least.
func (c *crowd) stopped(from, to time.Time) time.Duration { return c.awayIf(from, to, true) }

func (c *crowd) awayIf(from, to time.Time, long bool) (sum time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.outages {
		begin, end := o.from, o.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if o.long || !long {
			sum += max(0, end.Sub(begin))
		}
	}
	return sum
}

// mostErrors bounds the errors that a crowd reports.
const mostErrors = 20

func (c *crowd) errorf(format string, args ...any) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors++; c.errors <= mostErrors {
		c.t.Errorf(format, args...)
	}
}

func (c *crowd) failing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors > mostErrors
}

// watchStalls records how late this process runs: the servers, on the same machine, run as late.
func (c *crowd) watchStalls() {
	const every = 20 * time.Millisecond
	last := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
			now := time.Now()
			c.stall.Store(max(c.stall.Load(), int64(now.Sub(last)-every)))
			last = now
		}
	}
}
