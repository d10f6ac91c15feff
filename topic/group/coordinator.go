package group

import (
	"sync"
	"time"
)

// coordinator runs one group: it has the group's lock, its timer and its offsets.
// Writes are in write.go.
//
// Locks are taken in this order: that of a coordinator, then that of Groups.
type coordinator struct {
	groups *Groups
	owner  *Ownership
	name   string

	mu    sync.Mutex
	group *group
	// offsets holds the durable offsets. Only write changes it, and the maps in it
	// never change.
	offsets  map[string]topicOffsets
	counted  int64  // bytes of the members, as Groups has counted them
	revision uint64 // of the stored group; 0 before the first write
	// unsure: the last write of the group failed, and may be stored nevertheless.
	unsure bool

	timer *time.Timer
	armed time.Time // when the timer fires; zero if it is not set

	waiting  *groupWrite // contents of the next write; nil if none
	underway *groupWrite // the present write
	writing  bool
	quiet    chan struct{} // closed when writing has ended; made by the waiter

	gone   bool // removed, or another broker's: look up the group again
	closed bool // the broker is stopping
}

func newCoordinator(groups *Groups, l *Ownership, name string) *coordinator {
	c := &coordinator{groups: groups, owner: l, name: name, offsets: map[string]topicOffsets{}}
	c.group = newGroup(name, groups.config, c.save)
	c.group.epoch = l.epoch
	c.group.reserve = c.reserve
	c.group.topics = groups.topics
	c.group.spent = func() { groups.renew(l) }
	return c
}

// changed counts the bytes of a group whose members may have changed, and sets its timer.
func (c *coordinator) changed(now time.Time) {
	c.count()
	c.arm(now)
}

// arm sets the timer, unless it is set to fire early enough. A request within a session
// only moves the session's end to a later time and needs no new timer.
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
	c.changed(now)
	c.flush()
	c.dropIfUnused()
}

// unused reports whether nothing of a group is stored or being written. If that is
// uncertain it is used: its successor would begin at generation 1, below the
// generation that may be stored.
func (c *coordinator) unused() bool {
	return c.group.state == Empty && len(c.group.pending) == 0 && len(c.offsets) == 0 &&
		c.revision == 0 && !c.unsure && c.waiting == nil && !c.writing
}

func (c *coordinator) dropIfUnused() {
	if c.unused() && !c.closed {
		c.drop()
	}
}

func (c *coordinator) drop() {
	c.gone = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.groups.forget(c)
}

// close answers requests that wait for other members with an error; writes continue.
func (c *coordinator) close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.group.end(err)
}

// settled returns a channel that is closed when a closed coordinator has no write in
// progress.
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

// depose ends the coordinator of a group that another broker coordinates now. Requests
// whose write is in progress are answered after the store; all others at once.
func (c *coordinator) depose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	c.count()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.group.end(ErrNotCoordinator)
	c.failWaiting()
}

// expire removes expired offsets, and a group without members and offsets.
func (c *coordinator) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.closed || c.group.state == Dead {
		return
	}
	for topic, changes := range c.group.expired(now, c.offsets) {
		c.change(topic, changes)
	}
	if c.group.state == Empty && len(c.group.pending) == 0 && len(c.offsets) == 0 && c.waiting == nil && !c.writing && !c.group.keepsWindows(now) {
		c.remove()
	}
	c.flush()
}
