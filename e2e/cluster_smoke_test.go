package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// nodes are the processes of a cluster.
type nodes struct {
	t     *testing.T
	all   []*server
	peers []string
}

// startNodes starts a cluster on this machine, and waits until each node knows all: a node that is
// ready may not be known to the others yet.
func startNodes(t *testing.T, count int) *nodes {
	t.Helper()
	c := &nodes{t: t, peers: ports.Addrs(t, count)}
	for range count {
		c.add()
	}
	c.launch()
	for _, node := range c.all {
		c.settle(node, count)
	}
	return c
}

// nodesWithAccounts starts nodes whose admin token is adminToken.
func nodesWithAccounts(t *testing.T, count int) *nodes {
	t.Helper()
	c := &nodes{t: t, peers: ports.Addrs(t, count)}
	for range count {
		node := c.add()
		node.env = append(node.env, "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
	}
	c.launch()
	return c
}

// launch starts all nodes, and waits until they are ready: none is without the others.
func (c *nodes) launch() {
	c.t.Helper()
	for _, node := range c.all {
		node.launch()
	}
	for _, node := range c.all {
		node.awaitReady()
	}
}

// add adds another node, which is not started.
func (c *nodes) add() *server {
	number := len(c.all) + 1
	for len(c.peers) < number {
		c.peers = append(c.peers, ports.Addrs(c.t, 1)...)
	}
	node := newServer(c.t, "--cluster", "smoke", "--node", fmt.Sprint(number), "--rack", fmt.Sprint("rack", number),
		"--cluster-listen", c.peers[number-1], "--peers", strings.Join(c.peers, ","), "--state", "off")
	node.nodes = c
	node.env = []string{"SLUICE_CLUSTER_SECRET=a secret of the smoke test"}
	c.all = append(c.all, node)
	return node
}

func (c *nodes) brokers() []string {
	var addresses []string
	for _, node := range c.all {
		addresses = append(addresses, node.kafka)
	}
	return addresses
}

// sluice runs a command line on the cluster, over a node's HTTP API.
func (c *nodes) sluice(node *server, args ...string) string {
	c.t.Helper()
	command := exec.Command(binary, args...)
	command.Env = append(command.Environ(), "SLUICE_SERVER="+node.url(""), "SLUICE_BROKERS="+strings.Join(c.brokers(), ","))
	out, err := command.CombinedOutput()
	if err != nil {
		c.t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// shownNode is the part of a node in GET /v1/cluster that tests need.
type shownNode struct {
	ID                      int
	Rack                    string
	Alive, Draining         bool
	Leads, Replicas, Behind int
}

type shownNodes struct {
	Nodes                          []shownNode
	Partitions, Leaderless, Moving int
}

func (c *nodes) show(by *server) (shown shownNodes) {
	c.t.Helper()
	by.call("GET", "/v1/cluster", "", http.StatusOK, &shown)
	return shown
}

// settle waits until the given number of nodes are alive and have all of their replicas, and no
// partition is being reassigned.
func (c *nodes) settle(by *server, alive int) {
	c.t.Helper()
	var last shownNodes
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the nodes at last: %+v", last)
		}
	}()
	until.True(c.t, "all nodes are alive and have their replicas", func() bool {
		a, err := by.do("GET", "/v1/cluster", "", nil)
		last = shownNodes{}
		if err != nil || a.status != http.StatusOK || a.json(&last) != nil {
			return false
		}
		behind := 0
		for _, node := range last.Nodes {
			behind += node.Behind
		}
		living := slices.DeleteFunc(slices.Clone(last.Nodes), func(n shownNode) bool { return !n.Alive })
		return len(living) == alive && behind == 0 && last.Leaderless == 0 && last.Moving == 0
	})
}

// leaderOf returns the process that leads a partition.
func (c *nodes) leaderOf(admin *kadm.Client, partition int32) *server {
	c.t.Helper()
	var leader int32
	until.Succeeds(c.t, "a node leads the partition", func() error {
		topics, err := admin.ListTopics(c.t.Context(), smokeTopic)
		if err != nil {
			return err
		}
		if leader = topics[smokeTopic].Partitions[partition].Leader; leader < 1 || int(leader) > len(c.all) {
			return fmt.Errorf("partition %d is led by %d", partition, leader)
		}
		return nil
	})
	return c.all[leader-1]
}

// A cluster of three processes keeps working while one of them is restarted, one is killed, and a
// fourth replaces the first: no acknowledged record is lost, doubled or out of order, and the group
// has processed everything. e2e/cluster has more faults, and needs root.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 3)
	if shown := c.show(c.all[1]); len(shown.Nodes) != 3 || shown.Nodes[2].Rack != "rack3" {
		t.Fatalf("the nodes are %+v", shown.Nodes)
	}
	for _, node := range c.all {
		until.True(t, "each node measures fsyncs of its disk", func() bool {
			fsyncs, err := node.metric(`disk_fsync_duration_ms_count{store="topic"}`)
			return err == nil && fsyncs >= 2
		})
	}
	admin := kadm.NewClient(c.all[0].connect())
	if _, err := admin.CreateTopic(t.Context(), smokePartitions, 3, nil, smokeTopic); err != nil {
		t.Fatal(err)
	}
	load := startSmokeLoad(t, c)
	stopped := c.all[1]
	c.settle(stopped, 3)
	load.during("node 2 is stopped", func() {
		stopped.terminate()
		load.awaitAll()
	})
	load.during("node 2 starts", stopped.start)

	c.settle(c.all[0], 3)
	leader := c.leaderOf(admin, 0)
	load.during("the leader of a partition is killed", func() {
		leader.kill()
		load.awaitAll()
	})
	load.during("it starts again", leader.start)

	fourth := c.add()
	fourth.launch()
	fourth.awaitReady()
	c.settle(fourth, 4)
	load.during("node 1 is drained", func() { c.sluice(fourth, "cluster", "drain", "1", "--timeout", until.Limit.String()) })
	for _, node := range c.show(fourth).Nodes {
		if node.ID == 1 && (node.Replicas != 0 || node.Leads != 0) || node.ID == 4 && node.Replicas == 0 {
			t.Errorf("after the drain: %+v", node)
		}
	}
	load.during("node 1 is stopped and removed", func() {
		c.all[0].signal(syscall.SIGTERM)
		_ = c.all[0].cmd.Wait()
		until.True(t, "node 1 is known to be gone", func() bool { return !c.show(fourth).Nodes[0].Alive })
		c.sluice(fourth, "cluster", "remove", "1")
	})
	until.True(t, "node 2 knows that node 1 was removed", func() bool {
		return !slices.ContainsFunc(c.show(c.all[1]).Nodes, func(n shownNode) bool { return n.ID == 1 })
	})
	load.finish(fourth)
}
