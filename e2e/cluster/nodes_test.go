//go:build cluster

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/e2e/cluster/netlab"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Ports of each node.
const (
	kafkaPort = 9092
	httpPort  = 8080
	routePort = 6222
)

// cluster is a set of sluice nodes on a network of their own.
type cluster struct {
	t       *testing.T
	net     *netlab.Net
	nodes   []*node // node 1 is first
	proxies []*netlab.Proxy
	http    *http.Client
}

// layout describes a cluster.
type layout struct {
	// nodes is the most nodes, begin how many are started at first; 0: all.
	nodes, begin int
	// alone means one node without a cluster.
	alone bool
	// proxied means that nodes reach each other's routes through proxies, which can delay.
	proxied bool
	// binary is what the nodes run; default: this version.
	binary string
	// disk is the size of the last node's data directory; 0: no bound.
	disk int64
	args []string
}

// node is one `sluice serve`.
type node struct {
	cluster *cluster
	id      int
	data    string
	binary  string
	args    []string
	env     []string
	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd has exited; its error is exit
	exit    error
	logPath string
}

// newCluster creates nodes and starts those that begin.
func newCluster(t *testing.T, l layout) *cluster {
	t.Helper()
	dir := t.TempDir() // removed after c.close: cleanups run in reverse order
	lab, err := netlab.New(l.nodes)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, net: lab, http: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(c.close)
	for id := 1; id <= l.nodes; id++ {
		n := &node{cluster: c, id: id, data: filepath.Join(dir, fmt.Sprintf("data%d", id)), binary: cmp.Or(l.binary, binary), args: l.args}
		if l.disk > 0 && id == l.nodes {
			if n.data, err = lab.Disk(l.disk); err != nil {
				t.Fatal(err)
			}
		}
		n.logPath = filepath.Join(dir, fmt.Sprintf("log%d", id))
		if *logsTo != "" {
			n.logPath = filepath.Join(*logsTo, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(t.Name(), "/", "-"), id))
		}
		c.nodes = append(c.nodes, n)
	}
	if !l.alone {
		c.join(l)
	}
	begin := c.nodes
	if l.begin > 0 {
		begin = c.nodes[:l.begin]
	}
	for _, n := range begin {
		n.launch()
	}
	for _, n := range begin {
		n.awaitReady()
	}
	return c
}

// join configures the nodes as one cluster.
func (c *cluster) join(l layout) {
	routes := make([]string, l.nodes)
	for i := range routes {
		routes[i] = fmt.Sprintf("%s:%d", c.net.Addr(i+1), routePort)
		if l.proxied {
			proxy, err := c.net.Proxy(i+1, routePort)
			if err != nil {
				c.t.Fatal(err)
			}
			c.proxies = append(c.proxies, proxy)
			routes[i] = proxy.Addr()
		}
	}
	peers := routes // those of a new cluster; later nodes join it
	if l.begin > 0 {
		peers = routes[:l.begin]
	}
	for i, n := range c.nodes {
		n.env = append(n.env,
			"SLUICE_CLUSTER_NAME=chaos", "SLUICE_CLUSTER_NODE="+strconv.Itoa(n.id), "SLUICE_CLUSTER_RACK=rack"+strconv.Itoa(n.id),
			fmt.Sprintf("SLUICE_CLUSTER_LISTEN=%s:%d", c.net.Addr(n.id), routePort), "SLUICE_CLUSTER_ADVERTISE="+routes[i],
			"SLUICE_CLUSTER_PEERS="+strings.Join(peers, ","), "SLUICE_CLUSTER_SECRET=a secret of this test", "SLUICE_CLUSTER_INSECURE=true", "SLUICE_STATE=off")
	}
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.kill()
		log, err := os.ReadFile(n.logPath)
		if err != nil {
			continue // never started
		}
		if at := bytes.Index(log, []byte("WARNING: DATA RACE")); at >= 0 {
			c.t.Errorf("node %d has a data race:\n%.4000s", n.id, log[at:])
		}
		if c.t.Failed() {
			c.t.Logf("the log of node %d ends:\n%s", n.id, log[max(0, len(log)-4000):])
		}
	}
	if err := c.net.Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) node(id int) *node { return c.nodes[id-1] }

// addr returns the address for Kafka clients.
func (n *node) addr() string { return fmt.Sprintf("%s:%d", n.cluster.net.Addr(n.id), kafkaPort) }

func (n *node) url(path string) string {
	return fmt.Sprintf("http://%s:%d%s", n.cluster.net.Addr(n.id), httpPort, path)
}

// launch starts the node and does not wait.
func (n *node) launch() {
	n.cluster.t.Helper()
	log, err := os.OpenFile(n.logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	defer log.Close() // the process has its own descriptor
	host := n.cluster.net.Addr(n.id).String()
	args := append([]string{
		"serve", "--insecure-listen", "--data", n.data, "--kafka", n.addr(), "--http", fmt.Sprintf("%s:%d", host, httpPort),
		"--disk-reserve", "1MiB", "--log-level", "debug", "--topic-group-session-min", "2s",
	}, n.args...)
	n.cmd = n.cluster.net.Command(n.id, n.binary, args...)
	n.cmd.Env = append(os.Environ(), n.env...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		n.cluster.t.Fatal(err)
	}
	cmd, exited := n.cmd, make(chan struct{})
	n.exited = exited
	go func() {
		n.exit = cmd.Wait()
		close(exited)
	}()
}

// readyTime bounds how long a node takes to be ready.
const readyTime = until.Limit

func (n *node) awaitReady() {
	n.cluster.t.Helper()
	eventually(n.cluster.t, readyTime, fmt.Sprintf("node %d is ready", n.id), func() bool {
		if !n.running() {
			n.cluster.t.Fatalf("node %d has ended: %v", n.id, n.exit)
		}
		return n.ready()
	})
}

func (n *node) ready() bool {
	status, _ := n.request(http.MethodGet, "/readyz")
	return status == http.StatusOK
}

// request makes an HTTP request to the node; status 0 means that no answer arrived.
func (n *node) request(method, path string) (status int, body string) {
	request, err := http.NewRequestWithContext(context.Background(), method, n.url(path), http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	response, err := n.cluster.http.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// running reports whether the process runs.
func (n *node) running() bool {
	if n.exited == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// ends reports whether the process ends by itself within the given time.
func (n *node) ends(within time.Duration) bool {
	select {
	case <-n.exited:
		return true
	case <-time.After(within):
		return false
	}
}

func (n *node) signal(signal syscall.Signal) {
	n.cluster.t.Helper()
	if err := n.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.cluster.t.Fatal(err)
	}
}

// kill ends the node with SIGKILL.
func (n *node) kill() {
	if n.running() {
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
}

// stopTime bounds a planned stop.
const stopTime = until.Limit

// stop ends the node with SIGTERM, which must succeed.
func (n *node) stop() {
	n.cluster.t.Helper()
	began := time.Now()
	n.signal(syscall.SIGTERM)
	select {
	case <-n.exited:
	case <-time.After(stopTime):
		n.cluster.t.Errorf("node %d has not ended %v after SIGTERM", n.id, stopTime)
		n.kill()
		return
	}
	if n.exit != nil {
		n.cluster.t.Errorf("node %d after SIGTERM: %v, want code 0", n.id, n.exit)
	}
	n.cluster.t.Logf("node %d ended %v after SIGTERM", n.id, time.Since(began).Round(time.Millisecond))
}

// others returns the running nodes except one.
func (c *cluster) others(id int) (ids []int) {
	for _, n := range c.nodes {
		if n.id != id && n.running() {
			ids = append(ids, n.id)
		}
	}
	return ids
}
