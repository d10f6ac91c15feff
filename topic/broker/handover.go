package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

const (
	// leaveWithin bounds Leave; leaveAtOnce bounds the partitions that are transferred
	// in parallel; storeWithin bounds the wait for writes that only help the next leader
	// start faster.
	leaveWithin = 10 * time.Second
	leaveAtOnce = 64
	storeWithin = 2 * time.Second
)

// Leave transfers the leadership of all partitions to other nodes before a planned
// stop, so that clients are interrupted only for a moment. For each partition it stores
// what the next leader has to read, refuses appends, waits for those in flight, and has
// another node elected. It gives up the consumer groups too. It takes at most 10 s, and
// returns what went wrong; in that case other nodes take over later, when they notice
// that this broker is gone. Afterwards this broker leads nothing. Leave does nothing
// when it is called again.
func (b *Broker) Leave(ctx context.Context) error {
	if b.leaving.Swap(true) {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	led := slices.DeleteFunc(b.partitions(), func(p *Partition) bool { return !p.led() })
	var leaving errgroup.Group
	leaving.SetLimit(leaveAtOnce)
	leaving.Go(func() error {
		if err := b.groups.Stop(ctx); err != nil {
			b.log.Warn("groups not handed over", "error", err)
		}
		return nil
	})
	for _, p := range led {
		leaving.Go(func() error {
			if err := p.leave(ctx, errLeaving); err != nil {
				b.log.Warn("partition not handed over", "partition", p.String(), "error", err)
			}
			return nil
		})
	}
	_ = leaving.Wait()
	err := b.cluster.Leave(ctx)
	if errors.Is(err, topic.ErrClosed) {
		err = nil // the store has left
	}
	b.log.Info("node has left", "node", b.Node(), "led", len(led), "took", time.Since(began), "error", err)
	return err
}

// led reports whether this broker leads the partition, or is about to.
func (p *Partition) led() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.leads()
}

// leave transfers the partition to another node; why is the error of appends that come
// too late.
func (p *Partition) leave(ctx context.Context, why error) error {
	p.mu.Lock()
	grown := p.snapshots.bytes > 0
	p.mu.Unlock()
	if grown {
		storing, cancel := context.WithTimeout(ctx, storeWithin)
		err := p.storeProducers(storing)
		cancel()
		if err != nil {
			p.broker.log.Debug("producers not stored", "partition", p.String(), "error", err)
		}
	}
	p.mu.Lock()
	if p.state != open {
		p.mu.Unlock()
		p.resign(why)
		return p.handOver(ctx)
	}
	p.state = resigning
	p.flush()
	p.madeRoom()
	last := p.appends.last()
	p.mu.Unlock()
	if last != nil {
		_, _, _ = last.Wait(ctx) // its waiters get the error
	}
	p.delays.finish(ctx)
	p.resign(why)
	return p.handOver(ctx)
}

// handOver has the engine elect the first other node that is alive and is to keep the
// partition.
func (p *Partition) handOver(ctx context.Context) error {
	b := p.broker
	if !b.cluster.Leads(p.logName()) {
		return nil
	}
	to, alive := int32(0), b.Alive()
	for _, node := range p.targets() {
		if node != b.Node() && slices.Contains(alive, node) {
			to = node
			break
		}
	}
	return b.cluster.Resign(ctx, p.logName(), to)
}

// The engine elects any node as the first leader of a new log. A node that was elected
// passes new partitions on to their preferred leaders before it claims them, so that
// these lead from the start and clients see no change.
const (
	// passWithin bounds how long that takes for all partitions of a topic; afterwards
	// the elected nodes lead the rest.
	passWithin = 3 * time.Second
	passAtOnce = 16
)

// passOn transfers new partitions, which have never been claimed, to their preferred
// leaders as soon as those have their logs. A node transfers each partition once, so
// that two nodes that disagree about which nodes are alive do not repeat it forever.
func (b *Broker) passOn(ctx context.Context, partitions []*Partition) {
	ctx, cancel := context.WithTimeout(ctx, passWithin)
	defer cancel()
	nodes := b.Nodes()
	var passing errgroup.Group
	passing.SetLimit(passAtOnce)
	for _, p := range partitions {
		to, pass := p.toPassOn()
		if !pass || !ready(nodes, to) {
			continue
		}
		passing.Go(func() error {
			err := b.passTo(ctx, p.logName(), to)
			if err != nil && ctx.Err() == nil && !errors.Is(err, topic.ErrNoLog) && !errors.Is(err, topic.ErrClosed) {
				b.log.Info("new partition is not led by its preferred leader", "partition", p.String(), "preferred", to, "error", err)
			}
			return nil
		})
	}
	_ = passing.Wait()
}

// passTo transfers a log to a node once that has all of it: before, another node might
// be elected. It does nothing if another node leads the log already.
func (b *Broker) passTo(ctx context.Context, log string, to int32) error {
	for {
		known, err := b.cluster.Replicas(ctx, log)
		switch {
		case err != nil:
			return err
		case known.Leader != b.Node():
			return nil
		case slices.Contains(known.Current, to):
			return b.cluster.Resign(ctx, log, to)
		}
		if !lifecycle.Sleep(ctx, nil, leadersLook) {
			return ctx.Err()
		}
	}
}

// toPassOn returns the preferred leader of a new partition if that is another node,
// once.
func (p *Partition) toPassOn() (to int32, pass bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passed || p.epoch > 0 || len(p.replicas) == 0 || p.replicas[0] == p.broker.Node() {
		return 0, false
	}
	p.passed = true
	return p.replicas[0], true
}
