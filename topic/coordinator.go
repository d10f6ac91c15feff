package topic

import (
	"sync"
	"time"
)

// coordinator runs one group: it has the group's lock, its timer and its
// offsets. Writes are in group_write.go.
//
// Locks are taken in this order: that of a coordinator, then that of Groups.
type coordinator struct {
	groups *Groups
	lease  *lease
	name   string

	mu    sync.Mutex
	group *group
	// offsets are those that are durable. Only write changes them, and the maps
	// in them never change.
	offsets  map[string]topicOffsets
	revision uint64 // of the stored group; 0 if it never was
	// unsure: the last write of the group failed, and may be there all the same.
	unsure bool

	timer *time.Timer
	armed time.Time // when the timer fires; zero if it does not

	waiting  *groupWrite // what the next write takes; nil if nothing
	underway *groupWrite // what is being written
	writing  bool
	quiet    chan struct{} // closed when writing has ended; made by who waits for it

	gone   bool // was removed, or is another broker's: look for it anew
	closed bool // the broker stops
}

func newCoordinator(groups *Groups, l *lease, name string) *coordinator {
	c := &coordinator{groups: groups, lease: l, name: name, offsets: map[string]topicOffsets{}}
	c.group = newGroup(name, groups.config, c.save)
	c.group.epoch = l.epoch
	if l.guard != nil {
		c.group.spent = func() { groups.renew(l) }
	}
	return c
}

// arm sets the timer, if it is not set to fire early enough. What a member does
// within its session only moves the session's end, so that needs none.
func (c *coordinator) arm(now time.Time) {
	next := c.group.next()
	if c.closed || c.gone || next.IsZero() || !c.armed.IsZero() && !next.Before(c.armed) {
		return
	}
	c.armed = next
	if c.timer == nil {
		c.timer = time.AfterFunc(next.Sub(now), c.tick)
		return
	}
	c.timer.Reset(next.Sub(now))
}

func (c *coordinator) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.gone {
		return
	}
	now := time.Now()
	c.armed = time.Time{}
	c.group.tick(now)
	c.arm(now)
	c.flush()
	c.dropIfUnused()
}

// dropIfUnused forgets a group of which nothing is stored or on its way. One of
// which that is not known stays: the next of its name would begin at generation 1,
// below what may be stored.
func (c *coordinator) dropIfUnused() {
	if c.group.state != GroupEmpty || len(c.group.pending) > 0 || len(c.offsets) > 0 ||
		c.revision != 0 || c.unsure || c.waiting != nil || c.writing || c.closed {
		return
	}
	c.drop()
}

func (c *coordinator) drop() {
	c.gone = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.groups.forget(c)
}

// close answers what waits for other members with an error; writes go on.
func (c *coordinator) close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.group.end(err)
}

// settled returns a channel that is closed when nothing of a closed coordinator is
// being written.
func (c *coordinator) settled() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet == nil {
		c.quiet = make(chan struct{})
		if !c.writing {
			close(c.quiet)
		}
	}
	return c.quiet
}

// depose ends the coordinator of a group that another broker coordinates now. What
// is being written is answered when the store has answered; all else at once.
func (c *coordinator) depose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.group.end(ErrNotCoordinator)
	c.failWaiting()
}

// expire forgets offsets whose time is up, and a group without members and
// offsets.
func (c *coordinator) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.closed || c.group.state == GroupDead {
		return
	}
	for topic, changes := range c.group.expired(now, c.offsets) {
		c.change(topic, changes)
	}
	if c.group.state == GroupEmpty && len(c.group.pending) == 0 && len(c.offsets) == 0 && c.waiting == nil && !c.writing {
		c.remove()
	}
	c.flush()
}
