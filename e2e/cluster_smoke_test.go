package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// nodes are the processes of a cluster.
type nodes struct {
	t     *testing.T
	all   []*server
	peers []string
}

// startNodes starts a cluster on this machine.
func startNodes(t *testing.T, count int) *nodes {
	t.Helper()
	c := &nodes{t: t, peers: freeAddrs(t, count)}
	for range count {
		c.add()
	}
	for _, node := range c.all {
		node.launch()
	}
	for _, node := range c.all {
		node.awaitReady()
	}
	return c
}

// add makes another node, which is not started.
func (c *nodes) add() *server {
	number := len(c.all) + 1
	for len(c.peers) < number {
		c.peers = append(c.peers, freeAddrs(c.t, 1)...)
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

// sluice runs a command line on the cluster, by a node's HTTP.
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

// shownNode is a node as GET /v1/cluster has it, as far as tests need it.
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

// settle waits until so many nodes are alive, have all of their replicas, and
// nothing moves.
func (c *nodes) settle(by *server, alive int) {
	c.t.Helper()
	var last shownNodes
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the nodes at last: %+v", last)
		}
	}()
	eventually(c.t, 60*time.Second, "all nodes are alive and have their replicas", func() bool {
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
	topics, err := admin.ListTopics(c.t.Context(), smokeTopic)
	if err != nil {
		c.t.Fatal(err)
	}
	leader := topics[smokeTopic].Partitions[partition].Leader
	if leader < 1 || int(leader) > len(c.all) {
		c.t.Fatalf("partition %d is led by %d", partition, leader)
	}
	return c.all[leader-1]
}

// A cluster of three processes goes on while one after another is stopped and
// started again, one is killed, and a fourth takes the place of the first: nothing
// that was acknowledged is lost, doubled or out of order, and the group has
// processed everything.
func TestCluster(t *testing.T) {
	c := startNodes(t, 3)
	if shown := c.show(c.all[1]); len(shown.Nodes) != 3 || shown.Nodes[2].Rack != "rack3" {
		t.Fatalf("the nodes are %+v", shown.Nodes)
	}
	admin := kadm.NewClient(c.all[0].connect())
	if _, err := admin.CreateTopic(t.Context(), smokePartitions, 3, nil, smokeTopic); err != nil {
		t.Fatal(err)
	}
	load := startSmokeLoad(t, c)
	load.during("nothing happens", func() { <-time.After(2 * time.Second) })

	for i, node := range c.all {
		c.settle(node, 3)
		load.during(fmt.Sprintf("node %d is stopped", i+1), func() {
			began := time.Now()
			node.signal(syscall.SIGTERM)
			if err := node.cmd.Wait(); err != nil {
				t.Errorf("node %d ended with %v", i+1, err)
			}
			t.Logf("node %d took %v to stop", i+1, time.Since(began).Round(time.Millisecond))
			<-time.After(time.Second)
		})
		load.during(fmt.Sprintf("node %d starts", i+1), node.start)
	}

	c.settle(c.all[0], 3)
	leader := c.leaderOf(admin, 0)
	load.during("the leader of a partition is killed", func() {
		leader.kill()
		load.awaitAll(30 * time.Second)
	})
	load.during("it starts again", leader.start)

	fourth := c.add()
	fourth.launch()
	fourth.awaitReady()
	c.settle(fourth, 4)
	load.during("node 1 is drained", func() { c.sluice(fourth, "cluster", "drain", "1", "--timeout", "2m") })
	for _, node := range c.show(fourth).Nodes {
		if node.ID == 1 && (node.Replicas != 0 || node.Leads != 0) || node.ID == 4 && node.Replicas == 0 {
			t.Errorf("after the drain: %+v", node)
		}
	}
	load.during("node 1 is stopped and removed", func() {
		c.all[0].signal(syscall.SIGTERM)
		_ = c.all[0].cmd.Wait()
		eventually(t, 20*time.Second, "node 1 is known to be gone", func() bool { return !c.show(fourth).Nodes[0].Alive })
		c.sluice(fourth, "cluster", "remove", "1")
	})
	if shown := c.show(c.all[1]); slices.ContainsFunc(shown.Nodes, func(n shownNode) bool { return n.ID == 1 }) {
		t.Errorf("node 1 was removed: %+v", shown)
	}
	load.finish(fourth)
}
