package natsstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

// Of opening.
const (
	// joinLook is how often a node that waits for others looks again, joinSay how
	// often it says for whom it waits.
	joinLook = 100 * time.Millisecond
	joinSay  = 5 * time.Second
	dialFor  = time.Second
	// beginWithin is how long a cluster that starts for the first time waits for all
	// nodes that are to keep the metadata.
	beginWithin = 10 * time.Second
)

// join waits until so many of the nodes are there that the engine answers: a
// majority, or as many as are named if the cluster starts for the first time.
func (c *cluster) join(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, c.options.JoinTimeout)
	defer cancel()
	said := time.Now()
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
		case <-time.After(joinLook):
		}
		if time.Since(said) >= joinSay {
			c.sayMissing(within)
			said = time.Now()
		}
	}
}

// sayMissing logs for whom the node waits.
func (c *cluster) sayMissing(ctx context.Context) {
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

// awaitKeepers waits, before the metadata is made, for the nodes that are to keep it,
// so that it is not on one alone at first, and lost with that. Some may be missing for
// long: then it begins on fewer, and grow gives it more when they come.
func (c *cluster) awaitKeepers(ctx context.Context) {
	wanted := c.metaReplicas(c.options.named())
	within, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	if c.until(within, func() bool { return c.metaReplicas(len(c.peers.now())) >= wanted }) != nil {
		c.store.options.Logger.Warn("topic store: the metadata begins on fewer nodes than are to keep it, until others come",
			"alive", c.peers.now(), "replicas_wanted", wanted)
	}
}
