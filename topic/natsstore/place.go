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

// maxReplicas is the engine's maximum of replicas of a stream.
const maxReplicas = 5

// placeFor is the timeout of one step of placing.
const placeFor = 3 * time.Second

// replicasOf returns the replicas of a stream.
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
		// A node that will keep the stream may not have it yet. The engine does not list
		// these nodes, but current ones have it.
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

// moving reports whether the engine is changing the nodes that keep a stream.
func moving(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Desired != nil
}

// Replicas returns the replicas of a log, as its leader has them. Without a leader it waits
// for one, at most Options.Timeout.
func (c *cluster) Replicas(ctx context.Context, log string) (topic.Replicas, error) {
	ctx, cancel := c.store.bound(ctx)
	defer cancel()
	info, err := c.store.info(ctx, logStream+log)
	if err != nil {
		return topic.Replicas{}, c.store.failure(fmt.Errorf("replicas of log %s: %w", log, err))
	}
	return replicasOf(info), nil
}

// step is one step of placing a stream.
type step struct {
	kind stepKind
	// nodes are the nodes to keep the stream, or those of which one should lead it.
	nodes []int32
}

type stepKind int

const (
	stepNone   stepKind = iota // the stream is placed
	stepWait                   // a step is in progress, or replicas are missing
	stepGrow                   // more replicas, on nodes that the engine chooses
	stepShrink                 // fewer replicas: the engine keeps the leader
	stepMove                   // to exactly these nodes, as many as there are replicas
	stepResign                 // another node must lead it first
)

// nextStep returns the next step from the present replicas to the wanted nodes. The engine
// changes either the number of replicas or their nodes, and itself chooses the nodes that it
// adds and drops. So the number grows first, then the nodes change, and the number shrinks
// last, when the remaining nodes are current and one of them leads.
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

// fill returns as many nodes as there are replicas: all of want, then present nodes, the
// leader first, then current ones.
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

// Place takes one step towards keeping a log on exactly these nodes, 1 to 5 of them. A call
// takes at most some seconds. The step that it starts may copy the log; until that ends,
// the log is not placed.
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
		placement := c.placementOn(next.nodes)
		old := config.Placement
		if len(placement.Tags) == 0 || old != nil && slices.Equal(old.Tags, placement.Tags) {
			// The engine ignores an empty or unchanged placement. No node has number 0.
			placement.Tags = append(placement.Tags, "!"+nodeTag(0))
		}
		config.Placement = placement
	case stepResign:
		to := slices.IndexFunc(next.nodes, func(node int32) bool { return slices.Contains(r.Current, node) })
		return false, c.askToTransfer(ctx, logStream+log, next.nodes[to])
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

// placementOn returns the placement on the given nodes. It excludes all other known nodes,
// because a node must have all tags that are not exclusions.
func (c *cluster) placementOn(nodes []int32) *jetstream.Placement {
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
