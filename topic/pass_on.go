package topic

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
)

// The engine elects anybody as the first leader of a new log. So that new
// partitions are led by their preferred leaders from the start, and clients see no
// change, a node that was elected hands them on before it claims them.
const (
	// passWithin bounds how long that takes, for the partitions of a topic together;
	// then they are led by whom the engine has elected.
	passWithin = 3 * time.Second
	passAtOnce = 16
)

// passOn hands new partitions, which nobody has claimed so far, to their preferred
// leaders, as soon as those have them. Each is handed on once by a node, so that two
// that do not agree whether the preferred one is alive do not do it for ever.
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
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoLog) && !errors.Is(err, ErrClosed) {
				b.log.Info("new partition is not led by its preferred leader", "partition", p.String(), "preferred", to, "error", err)
			}
			return nil
		})
	}
	_ = passing.Wait()
}

// passTo lets a node lead a log when it has all of it: before, another might be
// elected. It does nothing if somebody else leads it already.
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
