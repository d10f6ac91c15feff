package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
)

// delaying keeps a partition's delayed records open, from the first time that its
// topic may have any.
type delaying struct {
	opening sync.Mutex
	now     *delay.Queue  // holds the delayed records; nil while their log is being read
	opened  chan struct{} // closed when now or refused is set; made by the waiter
	refused error         // why they are not held here, temporarily or permanently

	mu     sync.Mutex
	wanted bool      // the topic may have delayed records
	run    *delayRun // the last run; nil before the first
	paused bool      // another broker leads the partition, or the store is fenced
	ended  bool      // permanently
}

// delayRun is the time during which a broker leads a partition.
type delayRun struct {
	group *lifecycle.Group
	// deposed reports that another broker may lead by now: nothing more is written.
	deposed atomic.Bool
}

const (
	delaysWaitMin = 50 * time.Millisecond
	delaysWaitMax = 5 * time.Second
	delaysClose   = 5 * time.Second
	// delayAddMax bounds how long an append waits for its delayed records to be durable.
	delayAddMax = 10 * time.Second
)

// delay starts holding and releasing delayed records, unless this has begun or
// ended permanently.
func (p *Partition) delay() {
	d := &p.delays
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted && (p.Ready() != nil || p.broker.moving.serves() != nil) {
		d.paused = true
	}
	d.wanted = true
	if d.run == nil {
		d.begin(p)
	}
}

// begin begins a run when the one before has ended. mu is held.
func (d *delaying) begin(p *Partition) {
	if d.paused || d.ended {
		return
	}
	before, run := d.run, &delayRun{group: lifecycle.NewGroup(context.Background())}
	d.run = run
	run.group.Go("delays of "+p.String(), func(ctx context.Context) error {
		if before != nil {
			_ = before.group.Stop(ctx)
		}
		p.keepDelays(ctx, run)
		return nil
	})
}

// resume starts holding and releasing delayed records again, when this broker begins
// to lead the partition.
func (d *delaying) resume(p *Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	d.refuse(nil)
	if d.wanted {
		d.begin(p)
	}
}

// suspend ends the run without further writes, since another broker may lead the
// partition. It does not wait.
func (d *delaying) suspend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = true
	d.refuse(topic.ErrNotLeader)
	if d.run != nil {
		d.run.deposed.Store(true)
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.run.group.Stop(now)
	}
}

// finish ends the run after everything known was written.
func (d *delaying) finish(ctx context.Context) {
	d.mu.Lock()
	run := d.run
	d.paused = true
	d.mu.Unlock()
	if run != nil {
		_ = run.group.Stop(ctx)
	}
}

// refuse makes await return why; nil: waiters wait until the records are open.
func (d *delaying) refuse(why error) {
	d.opening.Lock()
	defer d.opening.Unlock()
	d.refused = why
	if why != nil {
		d.wake()
	}
}

// endDelays ends the delayed records permanently.
func (p *Partition) endDelays(ctx context.Context) error {
	d := &p.delays
	d.mu.Lock()
	d.ended = true
	run := d.run
	d.mu.Unlock()
	var err error
	if run != nil {
		err = run.group.Stop(ctx)
	}
	d.refuse(fmt.Errorf("%w: it takes no more delayed records", topic.ErrRetry))
	return err
}

// keepDelays opens the delayed records, and reopens them after failures, until ctx
// ends.
func (p *Partition) keepDelays(ctx context.Context, run *delayRun) {
	for wait := delaysWaitMin; ctx.Err() == nil; wait = min(2*wait, delaysWaitMax) {
		delays, err := p.openDelays(ctx)
		if err == nil {
			wait = delaysWaitMin
			p.delays.set(delays)
			select {
			case <-delays.Failed():
			case <-ctx.Done():
			}
			p.delays.set(nil)
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), delaysClose)
			if run.deposed.Load() {
				delays.Abandon(closing)
			}
			err = errors.Join(delays.Err(), delays.Close(closing))
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, topic.ErrNoLog) && wait >= missingWait { // before, the topic may be being deleted
			p.refuseDelays(err)
			return
		}
		p.broker.log.Error("delayed records cannot be read or written", "partition", p.String(), "error", err, "again_in", wait)
		lifecycle.Sleep(ctx, nil, wait)
	}
}

// refuseDelays refuses appends until another claim: the log of delayed records was lost, and its
// records must not be forgotten in silence.
func (p *Partition) refuseDelays(lost error) {
	name := p.names().Delays
	p.broker.log.Error("delayed records were lost: restore the data directory from a backup, or delete the topic", "partition", p.String(), "log", name, "error", lost)
	p.delays.refuse(fmt.Errorf("%w: %s: the log of its delayed records, %s, was lost", topic.ErrRetry, p, name))
}

func (p *Partition) openDelays(ctx context.Context) (*delay.Queue, error) {
	log, err := p.openDelayLog(ctx)
	if err != nil {
		return nil, err
	}
	return delay.Open(ctx, log, delayTarget{p}, p.broker.config.Delays)
}

// openDelayLog opens the log of delayed records. It makes the log if it is not known to exist.
func (p *Partition) openDelayLog(ctx context.Context) (topic.Log, error) {
	var nodes []int32
	if !p.hasDelayLog() {
		nodes = p.broker.there(p.targets())
	}
	log, err := p.broker.store.OpenLog(ctx, p.names().Delays, nodes)
	if err == nil {
		p.mu.Lock()
		p.delayLog = true
		p.mu.Unlock()
	}
	return log, err
}

// makeDelayLogs makes the logs of delayed records that the topic does not have, before it may have
// delayed records.
func (t *Topic) makeDelayLogs(ctx context.Context) error {
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(partitionsAtOnce)
	for _, p := range t.all() {
		if p.hasDelayLog() {
			continue
		}
		making.Go(func() error {
			_, err := p.openDelayLog(ctx)
			return err
		})
	}
	return making.Wait()
}

// hasDelayLog reports whether the log of delayed records is known to exist.
func (p *Partition) hasDelayLog() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delayLog
}

// mayHave reports whether the topic may have delayed records.
func (d *delaying) mayHave() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wanted
}

func (d *delaying) set(now *delay.Queue) {
	d.opening.Lock()
	defer d.opening.Unlock()
	d.now = now
	if now != nil {
		d.wake()
	}
}

// wake wakes the waiters in await. opening is held.
func (d *delaying) wake() {
	if d.opened != nil {
		close(d.opened)
		d.opened = nil
	}
}

// get returns the queue of delayed records, or nil while their log is being read.
func (d *delaying) get() *delay.Queue {
	d.opening.Lock()
	defer d.opening.Unlock()
	return d.now
}

// await returns the queue of delayed records, once their log was read.
func (d *delaying) await(ctx context.Context) (*delay.Queue, error) {
	for {
		d.opening.Lock()
		now, refused := d.now, d.refused
		if now == nil && d.opened == nil {
			d.opened = make(chan struct{})
		}
		opened := d.opened
		d.opening.Unlock()
		switch {
		case refused != nil:
			return nil, refused
		case now != nil:
			return now, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
