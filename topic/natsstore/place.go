package natsstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/topic"
)

// maxReplicas is on how many nodes the engine keeps a stream at most.
const maxReplicas = 5

// placeFor bounds one step of placing.
const placeFor = 3 * time.Second

// replicasOf says who keeps a stream.
func replicasOf(info *jetstream.StreamInfo) topic.Replicas {
	var r topic.Replicas
	cluster := info.Cluster
	if cluster == nil {
		return r
	}
	r.Moving = moving(info)
	if r.Leader = nodeOf(cluster.Leader); r.Leader != 0 {
		r.Nodes, r.Current = []int32{r.Leader}, []int32{r.Leader}
	}
	coming := map[string]bool{}
	if cluster.Desired != nil {
		for _, peer := range cluster.Desired.Replicas {
			coming[peer.Name] = true
		}
	}
	for _, peer := range cluster.Replicas {
		node, current := nodeOf(peer.Name), peer.Current && !peer.Offline
		if node == 0 || node == r.Leader {
			continue
		}
		// Of those that will keep it, some may not have it yet: the engine does not
		// say which, but those that have all do.
		if !r.Moving || current || !coming[peer.Name] {
			r.Nodes = append(r.Nodes, node)
		}
		if current {
			r.Current = append(r.Current, node)
		}
	}
	slices.Sort(r.Nodes)
	slices.Sort(r.Current)
	return r
}

// moving tells whether the engine is changing who keeps a stream.
func moving(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Desired != nil
}

// Replicas returns who keeps a log, as its leader says. While it has none, that
// is waited for, at most Options.Timeout.
func (c *cluster) Replicas(ctx context.Context, log string) (topic.Replicas, error) {
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	info, err := c.store.info(ctx, logStream+log)
	if err != nil {
		return topic.Replicas{}, c.store.failure(fmt.Errorf("replicas of log %s: %w", log, err))
	}
	return replicasOf(info), nil
}

// step is what brings a stream nearer to the nodes that should keep it.
type step struct {
	kind stepKind
	// nodes are those that it is moved to, or that one of which should lead it.
	nodes []int32
}

type stepKind int

const (
	stepNone   stepKind = iota // it is there
	stepWait                   // a step is under way, or replicas are missing
	stepGrow                   // more replicas, wherever the engine likes
	stepShrink                 // fewer replicas: the engine keeps the leader
	stepMove                   // to exactly these nodes, as many as there are replicas
	stepResign                 // another node must lead it first
)

// nextStep says how to get from what there is, with that many replicas, to those
// nodes. The engine changes the number of replicas or their places, not both, and
// chooses itself whom it adds and drops: so more come first, then they move, and
// fewer come last, when those that stay have it and one of them leads it.
func nextStep(r topic.Replicas, replicas int, want []int32) step {
	missing := slices.DeleteFunc(slices.Clone(want), func(node int32) bool { return slices.Contains(r.Nodes, node) })
	has := func(node int32) bool { return slices.Contains(r.Current, node) }
	switch {
	case !r.Moving && replicas == len(want) && len(missing) == 0 && len(r.Nodes) == len(want):
		return step{kind: stepNone}
	case r.Moving || r.Leader == 0 || 2*len(r.Current) <= replicas:
		return step{kind: stepWait}
	case replicas < len(want):
		return step{kind: stepGrow}
	case replicas == len(want):
		return step{kind: stepMove, nodes: want}
	case len(missing) > 0:
		return step{kind: stepMove, nodes: fill(r, replicas, want)}
	case slices.ContainsFunc(want, func(node int32) bool { return !has(node) }):
		return step{kind: stepWait}
	case !slices.Contains(want, r.Leader):
		return step{kind: stepResign, nodes: want}
	}
	return step{kind: stepShrink}
}

// fill returns so many nodes: all of want, and of those that keep it now, first
// the leader, then those that are current.
func fill(r topic.Replicas, replicas int, want []int32) []int32 {
	nodes := slices.Clone(want)
	for _, some := range [][]int32{{r.Leader}, r.Current, r.Nodes} {
		for _, node := range some {
			if len(nodes) < replicas && !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Place brings a log one step towards being kept by exactly these nodes, 1 to 5 of
// them. A step takes at most some seconds, and begins what may take as long as copying
// the log: until that ends, it is not placed.
func (c *cluster) Place(ctx context.Context, log string, nodes []int32) (placed bool, err error) {
	if err := checkNodes(nodes); err != nil {
		return false, fmt.Errorf("place log %s: %w", log, err)
	}
	ctx, cancel := context.WithTimeout(ctx, placeFor)
	defer cancel()
	info, err := c.store.info(ctx, logStream+log)
	if err == nil {
		placed, err = c.place(ctx, log, info, nodes)
	}
	if err != nil {
		return false, c.store.failure(fmt.Errorf("place log %s: %w", log, err))
	}
	return placed, nil
}

func (c *cluster) place(ctx context.Context, log string, info *jetstream.StreamInfo, nodes []int32) (placed bool, err error) {
	r, config := replicasOf(info), info.Config
	next := nextStep(r, config.Replicas, nodes)
	switch next.kind {
	case stepNone:
		return true, nil
	case stepWait:
		return false, nil
	case stepGrow, stepShrink:
		config.Replicas, config.Placement = len(nodes), nil
	case stepMove:
		placement := c.only(next.nodes)
		old := config.Placement
		if len(placement.Tags) == 0 || old != nil && slices.Equal(old.Tags, placement.Tags) {
			// Only a placement that says something, and something else than before,
			// moves it. No node has this number.
			placement.Tags = append(placement.Tags, "!"+nodeTag(0))
		}
		config.Placement = placement
	case stepResign:
		to := slices.IndexFunc(next.nodes, func(node int32) bool { return slices.Contains(r.Current, node) })
		return false, c.stepDown(ctx, logStream+log, next.nodes[to])
	}
	_, err = c.store.js.UpdateStream(ctx, config)
	switch server.ErrorIdentifier(codeOf(err)) {
	case server.JSStreamMoveInProgressErr, server.JSStreamReconfigureInProgressErr:
		return false, nil
	}
	return false, err
}

func checkNodes(nodes []int32) error {
	if len(nodes) == 0 || len(nodes) > maxReplicas {
		return fmt.Errorf("%d nodes: want 1 to %d", len(nodes), maxReplicas)
	}
	for i, node := range nodes {
		if node < 1 || slices.Contains(nodes[:i], node) {
			return fmt.Errorf("nodes %v: want different ones, from 1 on", nodes)
		}
	}
	return nil
}

// only returns the placement that leaves only those nodes: it excludes all others
// that are known. Tags that are not excluded would all have to be there.
func (c *cluster) only(nodes []int32) *jetstream.Placement {
	known, _ := c.store.engine.members()
	known = append(known, c.Alive()...)
	slices.Sort(known)
	placement := &jetstream.Placement{Tags: []string{}}
	for _, node := range slices.Compact(known) {
		if !slices.Contains(nodes, node) {
			placement.Tags = append(placement.Tags, "!"+nodeTag(node))
		}
	}
	return placement
}
