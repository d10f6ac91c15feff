package topic

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// leaveWithin bounds how long a broker takes to leave, and leaveAtOnce how many
	// partitions it hands over side by side; storeWithin how long it waits for what
	// only makes the next leader faster.
	leaveWithin = 10 * time.Second
	leaveAtOnce = 64
	storeWithin = 2 * time.Second
)

// Leave hands the lead of all partitions to other nodes before a planned stop, so
// that clients miss it only for a moment: for each, what its leader has to read is
// stored, appends are refused, those that are under way land, and another node is
// elected. The consumer groups are given up too. It takes at most 10 s, and returns what went wrong; then others lead
// later, when they notice that this broker is gone. After it this broker leads
// nothing. Without a cluster, and when it is called again, it does nothing.
func (b *Broker) Leave(ctx context.Context) error {
	if b.cluster == nil || b.leaving.Swap(true) {
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
	if errors.Is(err, ErrClosed) {
		err = nil // the store has left
	}
	b.log.Info("left the cluster", "node", b.Node(), "led", len(led), "took", time.Since(began), "error", err)
	return err
}

// led tells whether this broker leads the partition, or is about to.
func (p *Partition) led() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.leads()
}

// leave lets another node lead the partition; why is what those are told whose
// appends come too late.
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
		_, _, _ = last.Wait(ctx) // whoever appended is told
	}
	p.delays.finish(ctx)
	p.resign(why)
	return p.handOver(ctx)
}

// handOver has the first of the other nodes that are to keep the partition, and
// are alive, elected.
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
