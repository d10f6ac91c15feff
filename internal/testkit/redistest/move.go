package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// migrateTimeout is how long the move of some keys may take, in ms.
const migrateTimeout = "60000"

// Move is a live move of one slot, key by key, as redis-cli --cluster reshard makes it. A move that
// is left half way is continued by another one of the same key to the same master.
type Move struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// BeginMove begins to move the slot of a key to another master.
func (c *Cluster) BeginMove(key string, to *Server) *Move {
	c.t.Helper()
	m := &Move{cluster: c, slot: c.slotOf(key), from: c.MasterOf(key), to: to}
	to.Cli("CLUSTER", "SETSLOT", strconv.Itoa(m.slot), "IMPORTING", m.from.id())
	m.from.Cli("CLUSTER", "SETSLOT", strconv.Itoa(m.slot), "MIGRATING", to.id())
	return m
}

// Step moves up to `most` keys, and reports whether there were any.
func (m *Move) Step(most int) bool {
	m.cluster.t.Helper()
	keys, err := m.from.call(until.Limit, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.slot), strconv.Itoa(most))
	if err != nil {
		m.cluster.t.Fatal(err)
	}
	if len(keys) == 0 {
		return false
	}
	m.from.Cli(append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", migrateTimeout, "KEYS"}, keys...)...)
	return true
}

// Abandon ends the move where it is: neither master knows of it any more.
func (m *Move) Abandon() {
	m.cluster.t.Helper()
	for _, server := range []*Server{m.to, m.from} {
		server.Cli("CLUSTER", "SETSLOT", strconv.Itoa(m.slot), "STABLE")
	}
}

// End moves the remaining keys, and makes the other master that of the slot.
func (m *Move) End() {
	m.cluster.t.Helper()
	for m.Step(100) {
	}
	for _, server := range []*Server{m.to, m.from} { // in this order, or nobody has the slot for a moment
		server.Cli("CLUSTER", "SETSLOT", strconv.Itoa(m.slot), "NODE", m.to.id())
	}
	m.cluster.moved[m.slot] = m.to
}

// TakeOver kills a master, and makes a replica of it the master of its slots at once. The killed
// server is no longer part of the cluster.
func (c *Cluster) TakeOver(master *Server) (promoted *Server) {
	c.t.Helper()
	if len(c.replicas[master]) == 0 {
		c.t.Fatal("the master has no replica: start the cluster with ClusterOptions.Replicas")
	}
	master.Kill()
	promoted = c.replicas[master][0]
	promoted.Cli("CLUSTER", "FAILOVER", "TAKEOVER")
	c.replicas[promoted] = c.replicas[master][1:]
	delete(c.replicas, master)
	c.masters[slices.Index(c.masters, master)] = promoted
	for slot, at := range c.moved {
		if at == master {
			c.moved[slot] = promoted
		}
	}
	for _, server := range c.masters {
		until.True(c.t, "the masters know of the new one", func() bool {
			for line := range strings.Lines(server.Cli("CLUSTER", "NODES")) {
				if strings.HasPrefix(line, promoted.id()) {
					return strings.Contains(line, "master")
				}
			}
			return false
		})
	}
	return promoted
}

// AwaitReplicas waits until all replicas have what their masters have.
func (c *Cluster) AwaitReplicas() {
	c.t.Helper()
	for master, replicas := range c.replicas {
		until.True(c.t, "the replicas are in step with their master", func() bool {
			info := master.Cli("INFO", "replication")
			end := field(info, "master_repl_offset")
			in := 0
			for line := range strings.Lines(info) {
				if strings.Contains(line, "state=online,offset="+end+",") {
					in++
				}
			}
			return in == len(replicas)
		})
	}
}

// replicate makes the replicas replicas, once they know their masters.
func (c *Cluster) replicate() {
	c.t.Helper()
	for master, replicas := range c.replicas {
		for n, replica := range replicas {
			until.Succeeds(c.t, fmt.Sprintf("replica %d knows its master", n), func() error {
				_, err := replica.Try("CLUSTER", "REPLICATE", master.id())
				return err
			})
		}
	}
	c.AwaitReplicas()
}

// id returns the name of a node of a cluster.
func (s *Server) id() string {
	s.t.Helper()
	if s.node == "" {
		s.node = s.Cli("CLUSTER", "MYID")
	}
	return s.node
}

// field returns a field of an answer of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return text
		}
	}
	return ""
}
