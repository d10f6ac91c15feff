package redistest

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The name of the watched servers, the number of sentinels, the quorum that must agree that the
// master is down, and the silence after which a sentinel considers it down.
const (
	masterSet      = "sluice"
	sentinels      = 3
	sentinelQuorum = 2
	downAfter      = 5 * time.Second
)

// SentinelOptions configure StartSentinel.
type SentinelOptions struct {
	// Replicas is the number of replicas. Default 1.
	Replicas int
	// Persist is the data that survives the restart of the master or a replica. Default Nothing.
	Persist Persist
	// Args are further arguments of the master and of each replica.
	Args []string
}

// Sentinel is a master with its replicas, and three sentinels that promote a replica when the
// master is down for five seconds: a busy machine keeps a healthy one silent for one.
type Sentinel struct {
	t         testing.TB
	servers   []*Server
	sentinels []*Server
}

// StartSentinel runs all servers until the test ends, and returns when the replicas are in sync and
// the sentinels know them and each other.
func StartSentinel(t testing.TB, options SentinelOptions) *Sentinel {
	t.Helper()
	if options.Replicas == 0 {
		options.Replicas = 1
	}
	s := &Sentinel{t: t}
	// The sentinels rewrite the servers' configuration files, so that a restarted server
	// keeps its role.
	base := Options{Persist: options.Persist, Args: options.Args}
	base.Config = "repl-diskless-sync-delay 0\n"
	master := Start(t, base)
	_, port := master.HostPort()
	base.Config += "replicaof 127.0.0.1 " + port + "\n"
	s.servers = append(s.servers, master)
	for range options.Replicas {
		s.servers = append(s.servers, Start(t, base))
	}
	s.AwaitReplicas()
	watch := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d\nsentinel down-after-milliseconds %[1]s %[4]d\nsentinel failover-timeout %[1]s 10000\n",
		masterSet, port, sentinelQuorum, downAfter.Milliseconds())
	for range sentinels {
		s.sentinels = append(s.sentinels, Start(t, Options{Config: watch, Args: []string{"--sentinel"}}))
	}
	for n, sentinel := range s.sentinels {
		until.True(t, fmt.Sprintf("sentinel %d knows the others and the replicas", n), func() bool {
			state := fields(sentinel.Cli("SENTINEL", "MASTER", masterSet))
			return state["flags"] == "master" && state["num-other-sentinels"] == strconv.Itoa(sentinels-1) &&
				state["num-slaves"] == strconv.Itoa(options.Replicas)
		})
	}
	return s
}

// AwaitReplicas waits until all servers but the master are connected to it as replicas.
func (s *Sentinel) AwaitReplicas() {
	s.t.Helper()
	until.True(s.t, "the replicas are in step with the master", func() bool {
		return strings.Count(s.Master().Cli("INFO", "replication"), "state=online") == len(s.servers)-1
	})
}

// Master returns the present master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	if len(s.sentinels) == 0 {
		return s.servers[0]
	}
	named := s.named(s.sentinels[0])
	if named == nil {
		s.t.Fatal("the sentinel names a master that is none of the servers")
	}
	return named
}

// named returns the master that a sentinel names.
func (s *Sentinel) named(sentinel *Server) *Server {
	s.t.Helper()
	host, port, _ := strings.Cut(sentinel.Cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet), "\n")
	for _, server := range s.servers {
		if server.Addr() == net.JoinHostPort(host, port) {
			return server
		}
	}
	return nil
}

// Servers returns the first master and its replicas, in any present roles.
func (s *Sentinel) Servers() []*Server { return s.servers }

// Sentinels returns the sentinels.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Failover kills the master, and returns when all sentinels name another, which is writable. It
// returns the killed server, which becomes a replica when it is restarted.
func (s *Sentinel) Failover() (killed *Server) {
	s.t.Helper()
	killed = s.Master()
	killed.Kill()
	for n, sentinel := range s.sentinels {
		until.True(s.t, fmt.Sprintf("sentinel %d names another master", n), func() bool {
			now := s.named(sentinel)
			return now != nil && now != killed && strings.HasPrefix(now.Cli("ROLE"), "master")
		})
	}
	return killed
}

// URL returns the master's address: the addresses of the sentinels, and its name.
func (s *Sentinel) URL() string { return urlOf(s.sentinels, url.Values{"master_set": {masterSet}}) }

// fields parses an answer of alternating names and values.
func fields(text string) map[string]string {
	all := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		all[lines[i]] = lines[i+1]
	}
	return all
}
