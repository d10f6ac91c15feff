package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// oneCluster is held by the test that runs a cluster: a small machine has room for one cluster of
// three processes.
var oneCluster sync.Mutex

// onNodes runs a test of a Kafka client on one node and, in longer runs, on a cluster of three
// nodes with three replicas. SLUICE_NODES sets the sizes, as "3" or "1,3".
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
				test(t, startNodes(t, 3).all[0])
			})
		default:
			t.Fatalf("SLUICE_NODES: %q: want 1, 3 or 1,3", forms)
		}
	}
}

// replicas returns the number of replicas of each partition.
func (s *server) replicas() int16 {
	if s.nodes == nil {
		return 1
	}
	return 3
}

// brokers returns the addresses of all brokers.
func (s *server) brokers() []string {
	if s.nodes == nil {
		return []string{s.kafka}
	}
	return s.nodes.brokers()
}

// seeds returns the bootstrap addresses of Kafka clients, without killed nodes: kcat ends if the
// first one does not answer.
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

// crash kills the server and starts it again. In a cluster it kills the coordinator of the group,
// if one is named, or else the leader of the topic's first partition, and the others keep working.
func (s *server) crash(t *testing.T, topic, group string) {
	t.Helper()
	if s.nodes == nil {
		s.kill()
		s.start()
		return
	}
	admin := kadm.NewClient(s.connect())
	var id int32
	until.Succeeds(t, "the cluster names the node to kill", func() error {
		if group != "" {
			found := admin.FindGroupCoordinators(t.Context(), group)
			if err := found.Error(); err != nil {
				return err
			}
			id = found[group].NodeID
		} else {
			listed, err := admin.ListTopics(t.Context(), topic)
			if err != nil {
				return err
			}
			id = listed[topic].Partitions[0].Leader
		}
		if !slices.Contains([]int32{1, 2, 3}, id) {
			return fmt.Errorf("it names node %d", id)
		}
		return nil
	})
	s.nodes.all[id-1].kill()
}
