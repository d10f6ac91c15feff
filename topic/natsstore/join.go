package natsstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

const (
	// A node that waits for others checks every joinPoll, and logs the missing ones every
	// joinLogEvery.
	joinPoll     = 100 * time.Millisecond
	joinLogEvery = 5 * time.Second
	dialFor      = time.Second
	// beginWithin is how long a cluster that starts for the first time waits for all nodes
	// that will keep the metadata.
	beginWithin = 10 * time.Second
)

// join waits until enough nodes are there for the engine to answer: a majority, or all that
// are named if the cluster starts for the first time.
func (c *cluster) join(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, c.options.JoinTimeout)
	defer cancel()
	logged := time.Now()
	for {
		attempt, cancel := context.WithTimeout(within, attemptMin)
		_, err := c.store.js.AccountInfo(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-within.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("join cluster %s: %w", c.options.Name, ctx.Err())
			}
			return fmt.Errorf("join cluster %s: too few of its nodes within %v, connected to %v: is the secret, and TLS, the same on all?",
				c.options.Name, c.options.JoinTimeout, c.store.engine.connected())
		case <-time.After(joinPoll):
		}
		if time.Since(logged) >= joinLogEvery {
			c.logMissing(within)
			logged = time.Now()
		}
	}
}

// logMissing logs which nodes are missing.
func (c *cluster) logMissing(ctx context.Context) {
	var unreachable []string
	dialer := net.Dialer{Timeout: dialFor}
	for _, peer := range c.options.Peers {
		conn, err := dialer.DialContext(ctx, "tcp", peer)
		if err != nil {
			unreachable = append(unreachable, peer)
			continue
		}
		_ = conn.Close()
	}
	_, expected := c.store.engine.members()
	connected := c.store.engine.connected()
	slices.Sort(connected)
	c.store.options.Logger.Warn("topic store: waiting for more of the cluster's nodes",
		"cluster", c.options.Name, "node", c.options.Node, "connected_to_nodes", connected, "nodes_expected", expected,
		"peers", c.options.Peers, "peers_not_reached", unreachable)
}

// awaitKeepers waits for the nodes that will keep the metadata, before it is made. Otherwise
// the first changes could be lost with a single node. If some nodes are missing for long,
// the metadata starts on fewer, and grow adds replicas later.
func (c *cluster) awaitKeepers(ctx context.Context) {
	wanted := metaReplicas(c.options.named())
	within, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	if c.poll(within, func() bool { return metaReplicas(len(c.peers.now())) >= wanted }) != nil {
		c.store.options.Logger.Warn("topic store: the metadata starts with fewer replicas than wanted, until other nodes join",
			"alive", c.peers.now(), "replicas_wanted", wanted)
	}
}
