package redistest

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// nodeTimeout is the time after which the others consider a silent master failed, much longer than a
// busy machine keeps it silent.
const nodeTimeout = 20 * time.Second

// slots is the number of hash slots of a Redis Cluster.
const slots = 16_384

// ClusterOptions configure StartCluster.
type ClusterOptions struct {
	// Masters is the number of masters, with equal shares of the slots. Default 3.
	Masters int
	// Replicas is the number of replicas of each master. Default 0.
	Replicas int
	// Persist is the data that survives the restart of a master. Default Nothing.
	Persist Persist
	// Args are further arguments of each server.
	Args []string
}

// Cluster is a Redis Cluster. While a master without replicas is down, the cluster is.
type Cluster struct {
	t        testing.TB
	options  ClusterOptions
	masters  []*Server
	replicas map[*Server][]*Server // by master
	moved    map[int]*Server       // slots that have moved, and where they are
	nodes    int
}

// StartCluster runs a cluster until the test ends, and returns when all its masters see it
// complete.
func StartCluster(t testing.TB, options ClusterOptions) *Cluster {
	t.Helper()
	if options.Masters == 0 {
		options.Masters = 3
	}
	c := &Cluster{t: t, options: options, replicas: map[*Server][]*Server{}, moved: map[int]*Server{}, nodes: options.Masters * (1 + options.Replicas)}
	for n := range options.Masters {
		master := Start(t, Options{Persist: options.Persist, Args: options.Args, cluster: true})
		// Different epochs at the start spare the masters an agreement.
		master.Cli("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(n+1))
		first, last := c.slotsOf(n, options.Masters)
		master.Cli("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		c.masters = append(c.masters, master)
	}
	for _, master := range c.masters[1:] {
		c.meet(master)
	}
	for _, master := range c.masters {
		for range options.Replicas {
			replica := Start(t, Options{Persist: options.Persist, Args: options.Args, cluster: true})
			c.meet(replica)
			c.replicas[master] = append(c.replicas[master], replica)
		}
	}
	c.replicate()
	c.AwaitOK()
	return c
}

// AddMaster adds a master without slots.
func (c *Cluster) AddMaster() *Server {
	c.t.Helper()
	master := Start(c.t, Options{Persist: c.options.Persist, Args: c.options.Args, cluster: true})
	c.nodes++
	c.meet(master)
	c.masters = append(c.masters, master)
	c.AwaitOK()
	return master
}

func (c *Cluster) meet(server *Server) {
	c.masters[0].Cli("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(server.port))
}

// slotsOf returns the slots of the n-th master.
func (c *Cluster) slotsOf(n, masters int) (first, last int) {
	return n * slots / masters, (n+1)*slots/masters - 1
}

// AwaitOK waits until all masters report that all slots are served; after a restart of a master
// this takes a few seconds.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	want := []string{
		"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(slots), "cluster_known_nodes:" + strconv.Itoa(c.nodes),
	}
	for n, master := range c.masters {
		until.True(c.t, fmt.Sprintf("master %d says that the cluster is whole", n), func() bool {
			info := master.Cli("CLUSTER", "INFO")
			for _, line := range want {
				if !strings.Contains(info, line) {
					return false
				}
			}
			return true
		})
	}
}

// Masters returns the masters, in the order of the slots that they had at first.
func (c *Cluster) Masters() []*Server { return c.masters }

// MasterOf returns the server that has a key.
func (c *Cluster) MasterOf(key string) *Server {
	c.t.Helper()
	slot := c.slotOf(key)
	if master := c.moved[slot]; master != nil {
		return master
	}
	for n, master := range c.masters[:c.options.Masters] {
		if _, last := c.slotsOf(n, c.options.Masters); slot <= last {
			return master
		}
	}
	c.t.Fatalf("slot %d of %q is none of %d", slot, key, slots)
	return nil
}

func (c *Cluster) slotOf(key string) int {
	c.t.Helper()
	slot, err := strconv.Atoi(c.masters[0].Cli("CLUSTER", "KEYSLOT", key))
	if err != nil {
		c.t.Fatal(err)
	}
	return slot
}

// URL returns the cluster's address: redis://host:port?addr=host:port&addr=….
func (c *Cluster) URL() string { return urlOf(c.masters, url.Values{}) }

// urlOf returns a URL with all servers and further parameters.
func urlOf(servers []*Server, parameters url.Values) string {
	for _, server := range servers[1:] {
		parameters.Add("addr", server.Addr())
	}
	if len(parameters) == 0 {
		return servers[0].URL()
	}
	return servers[0].URL() + "?" + parameters.Encode()
}
