package engine

import (
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// costMemory is about how many attempts an average remembers.
	costMemory = 16
	// leastCost, in seconds, keeps attempts that take no time from being free.
	leastCost = 10e-6
	// longAttempt is the duration from which attempts are long: who waits for workers that
	// are held by shorter ones has one within a second.
	longAttempt = time.Second
	// overdue is from how many times the usual duration, and from which age, attempts that
	// run are taken to hang.
	overdue    = 4
	overdueAge = 100 * time.Millisecond
	// forgetCost is when the averages of tenants and targets that run nothing are dropped.
	forgetCost = 10 * time.Minute
)

// costs measures the worker time that attempts of one type take, by tenant and target. It is
// safe for concurrent use.
type costs struct {
	began time.Time

	mu      sync.Mutex
	of      map[bulk.Holder]*cost
	tenants map[string]*tenantCost
	short   time.Time // when a short attempt last ended
	// changed is what shorter returns next: at most the holders of one round of the fetcher.
	changed []bulk.Holder
	swept   time.Time
}

// cost is what attempts of one tenant against one target take.
type cost struct {
	of     bulk.Holder
	tenant *tenantCost
	// short reports whether its attempts were last known to be short.
	short bool
	// usual is how long attempts take, in seconds: a moving average; 0 if none has ended.
	usual   float64
	running int
	since   float64 // the sum of when they began, in seconds after costs.began
	used    time.Time
}

// tenantCost is what attempts of one tenant cost, against all targets.
type tenantCost struct {
	// charge is what the tenant is charged for an attempt, in seconds: a moving average that
	// begins at 0. The weights of one attempt in the averages that follow add up to 1, so that
	// the charges that follow add up to what it took: no attempt need be charged again when it
	// ends.
	charge  float64
	running int
}

func newCosts(now time.Time) *costs {
	return &costs{began: now, of: map[bulk.Holder]*cost{}, tenants: map[string]*tenantCost{}, swept: now}
}

// get returns the cost of a holder. c.mu must be held.
func (c *costs) get(of bulk.Holder) *cost {
	k := c.of[of]
	if k == nil {
		if c.tenants[of.Tenant] == nil {
			c.tenants[of.Tenant] = &tenantCost{}
		}
		k = &cost{of: of, tenant: c.tenants[of.Tenant]}
		c.of[of] = k
	}
	return k
}

// start records that an attempt begins, and returns what end takes.
func (c *costs) start(of bulk.Holder, now time.Time) *cost {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.get(of)
	k.running++
	k.tenant.running++
	k.since += now.Sub(c.began).Seconds()
	return k
}

// end records that an attempt that began at since has ended; if it counts, with its duration.
func (c *costs) end(k *cost, since, now time.Time, counts bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.running--; k.running == 0 {
		k.since = 0 // without the rounding
	} else {
		k.since -= since.Sub(c.began).Seconds()
	}
	k.tenant.running--
	k.used = now
	if !counts {
		return
	}
	took := max(now.Sub(since).Seconds(), leastCost)
	if took < longAttempt.Seconds() {
		c.short = now
	}
	k.tenant.charge += (took - k.tenant.charge) / costMemory
	if k.usual == 0 {
		k.usual = took
	}
	k.usual += (took - k.usual) / costMemory
	if _, long := c.outlook(k, now); !long && !k.short {
		k.short = true
		c.changed = append(c.changed, k.of)
	}
}

// shorter returns the holders whose attempts have turned out to be short since it was last called.
func (c *costs) shorter() (changed []bulk.Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, c.changed = c.changed, nil
	return changed
}

// outlook returns how old the attempts of a holder are that run, in seconds, on average, and whether
// the next may be long. c.mu must be held.
func (c *costs) outlook(k *cost, now time.Time) (age float64, long bool) {
	if k.running > 0 {
		age = now.Sub(c.began).Seconds() - k.since/float64(k.running)
	}
	return age, k.usual == 0 || max(k.usual, age) >= longAttempt.Seconds() || age >= max(overdue*k.usual, overdueAge.Seconds())
}

// estimate is what is known of an attempt before it starts.
type estimate struct {
	// cost is what its line is charged, in seconds.
	cost float64
	// long reports whether it may hold its worker for a second or more: none has ended yet,
	// they take so long, or those that run seem to hang.
	long bool
}

func (c *costs) estimate(of bulk.Holder, now time.Time) estimate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(now)
	e := estimate{leastCost, true}
	if t := c.tenants[of.Tenant]; t != nil {
		e.cost = max(e.cost, t.charge)
	}
	k := c.of[of]
	if k == nil {
		return e
	}
	age, long := c.outlook(k, now)
	e.cost, e.long, k.short = max(e.cost, age), long, k.short && !long
	return e
}

// sweep drops what was not used for a while. c.mu must be held.
func (c *costs) sweep(now time.Time) {
	if now.Sub(c.swept) < forgetCost {
		return
	}
	c.swept = now
	tenants := map[string]*tenantCost{}
	for of, k := range c.of {
		if k.running == 0 && now.Sub(k.used) > forgetCost {
			delete(c.of, of)
		} else {
			tenants[of.Tenant] = k.tenant
		}
	}
	c.tenants = tenants
}

// running returns how many attempts of a tenant run.
func (c *costs) running(tenant string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tenants[tenant]; t != nil {
		return t.running
	}
	return 0
}

// shortSince reports whether a short attempt has ended since then, or may have.
func (c *costs) shortSince(then time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.short.After(then) || c.began.After(then)
}
