//go:build cluster

package cluster

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/sluice-project/sluice/e2e/cluster/netlab"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// fault is a fault of a node that can be healed.
type fault struct {
	kind string
	// hold is how long the fault lasts.
	hold  time.Duration
	begin func(*node) error
	end   func(*node) error
}

var (
	kill = fault{"kill", 5 * time.Second,
		func(n *node) error { n.kill(); return nil },
		func(n *node) error { n.launch(); return nil }}
	stop = fault{"stop", 2 * time.Second,
		func(n *node) error { n.stop(); return nil },
		func(n *node) error { n.launch(); return nil }}
	hang = fault{"hang", 12 * time.Second,
		func(n *node) error { n.signal(syscall.SIGSTOP); return nil },
		func(n *node) error { n.signal(syscall.SIGCONT); return nil }}
	// cut cuts the node off from other nodes and from clients.
	cut = fault{"cut off", 15 * time.Second,
		func(n *node) error { return n.cluster.net.Cut(n.id, append(n.cluster.others(n.id), 0)...) },
		(*node).heal}
	// mute drops the node's packets to other nodes, but not to clients.
	mute = fault{"not heard", 10 * time.Second,
		func(n *node) error {
			return n.block(func(other int) netlab.Way { return netlab.Way{From: n.id, To: other} })
		},
		(*node).heal}
	// deafen drops the other nodes' packets to the node.
	deafen = fault{"hears nobody", 10 * time.Second,
		func(n *node) error {
			return n.block(func(other int) netlab.Way { return netlab.Way{From: other, To: n.id} })
		},
		(*node).heal}
	// silence is mute above TCP: data is acknowledged by the other machine's kernel and does not
	// reach its process.
	silence = fault{"delayed", 10 * time.Second,
		func(n *node) error { n.silence(true); return nil },
		func(n *node) error { n.silence(false); return nil }}
	slow = fault{"delayed", 10 * time.Second,
		func(n *node) error { n.delay(100*time.Millisecond + rand.N(200*time.Millisecond)); return nil },
		func(n *node) error { n.delay(0); return nil }}
)

// faults are all faults.
var faults = []fault{kill, hang, cut, stop, mute, slow, deafen, silence}

func (n *node) heal() error { return n.cluster.net.Heal() }

// block blocks one direction between a node and each other node.
func (n *node) block(way func(other int) netlab.Way) error {
	var problems []error
	for _, other := range n.cluster.others(n.id) {
		problems = append(problems, n.cluster.net.Block(way(other), true))
	}
	return errors.Join(problems...)
}

func (n *node) silence(on bool) {
	for _, other := range n.cluster.nodes {
		for _, proxy := range n.cluster.proxies {
			proxy.Hold(netlab.Way{From: n.id, To: other.id}, on)
		}
	}
}

// delay delays traffic between the node and the others, both ways.
func (n *node) delay(by time.Duration) {
	for _, other := range n.cluster.nodes {
		for _, proxy := range n.cluster.proxies {
			proxy.Delay(netlab.Way{From: n.id, To: other.id}, by)
			proxy.Delay(netlab.Way{From: other.id, To: n.id}, by)
		}
	}
}

// wholeTime bounds how long a cluster takes to be whole again after the last fault is healed.
const wholeTime = until.Limit

// suffer applies a fault to a node, heals it, and waits until the cluster is whole.
func (l *load) suffer(f fault, id int) {
	l.t.Helper()
	n := l.cluster.node(id)
	healed, recovered := l.recorder.Began(f.kind, id)
	if err := f.begin(n); err != nil {
		l.t.Fatal(err)
	}
	<-time.After(f.hold)
	if err := f.end(n); err != nil {
		l.t.Fatal(err)
	}
	healed()
	l.becomeWhole(len(l.cluster.others(0)))
	recovered()
}

// becomeWhole waits until all running nodes are ready, and all partitions have the given number of
// in-sync replicas.
func (l *load) becomeWhole(replicas int) {
	l.t.Helper()
	is := func() bool {
		for _, id := range l.cluster.others(0) {
			if !l.cluster.node(id).ready() {
				return false
			}
		}
		return whole(l.t, l.admin, replicas)
	}
	if !within(wholeTime, is) {
		for _, n := range l.cluster.nodes {
			l.t.Logf("node %d runs: %t, is ready: %t", n.id, n.running(), n.running() && n.ready())
		}
		l.t.Fatalf("not within %v: the cluster is whole; partitions are %+v", wholeTime, partitionsOf(l.t, l.admin, topicName))
	}
}
