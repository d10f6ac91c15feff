package e2e

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// oneCluster is held by the test that has a cluster: three processes fill a small
// machine.
var oneCluster sync.Mutex

// onNodes runs a test of a Kafka client on one node, and on a cluster of three
// that keep three replicas of all: in longer runs, and where SLUICE_NODES says so,
// as "3" or "1,3".
func onNodes(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	forms := "1"
	if long() {
		forms = "1,3"
	}
	if named := os.Getenv("SLUICE_NODES"); named != "" {
		forms = named
	}
	for form := range strings.SplitSeq(forms, ",") {
		switch form {
		case "1":
			t.Run("1 node", func(t *testing.T) { test(t, startServer(t)) })
		case "3":
			t.Run("3 nodes", func(t *testing.T) {
				oneCluster.Lock()
				defer oneCluster.Unlock()
				cluster := startNodes(t, 3)
				for _, node := range cluster.all {
					cluster.settle(node, 3) // before, a client may be told of fewer
				}
				test(t, cluster.all[0])
			})
		default:
			t.Fatalf("SLUICE_NODES: %q: want 1, 3 or 1,3", forms)
		}
	}
}

// replicas is how many nodes keep each partition.
func (s *server) replicas() int16 {
	if s.nodes == nil {
		return 1
	}
	return 3
}

// seeds are where Kafka clients begin: without nodes that were killed, as kcat ends
// where the first does not answer before it has heard of the others.
func (s *server) seeds() (seeds []string) {
	if s.nodes == nil {
		return []string{s.kafka}
	}
	for _, node := range s.nodes.all {
		if node.cmd == nil || node.cmd.ProcessState == nil {
			seeds = append(seeds, node.kafka)
		}
	}
	return seeds
}

// crash kills the server and starts it again. Of several nodes it kills the one that
// coordinates a group, if one is named, or else leads the topic's first partition,
// and the others go on without it.
func (s *server) crash(t *testing.T, topic, group string) {
	t.Helper()
	if s.nodes == nil {
		s.kill()
		s.start()
		return
	}
	admin := kadm.NewClient(s.connect())
	var id int32
	if group != "" {
		found := admin.FindGroupCoordinators(t.Context(), group)
		if err := found.Error(); err != nil {
			t.Fatal(err)
		}
		id = found[group].NodeID
	} else {
		listed, err := admin.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		id = listed[topic].Partitions[0].Leader
	}
	if !slices.Contains([]int32{1, 2, 3}, id) {
		t.Fatalf("node %d is to be killed", id)
	}
	s.nodes.all[id-1].kill()
}
