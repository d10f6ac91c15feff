package natsstore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// TestElectionTimers fails when the engine's timers are not the ones that ours were chosen for.
func TestElectionTimers(t *testing.T) {
	if err := setElectionTimers(); err != nil {
		t.Fatal(err)
	}
}

// TestFollowersCampaign has the followers of a leader believe that it is lost: each of its groups
// gets one election, also that of the engine's metadata.
func TestFollowersCampaign(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, nil)
	ns.replicated(t)
	for i := range 4 {
		ns.log(1, fmt.Sprint("log", i), 1, 2, 3)
	}
	leader := ns.leader("log0")
	until.True(t, "each group of the leader gets one election", func() bool {
		var leads, begun []string
		for name, group := range ns.node(leader).engine.groups() {
			if group.State == server.Leader.String() {
				leads = append(leads, name)
			}
		}
		for _, node := range ns.running() {
			if node != leader {
				begun = append(begun, ns.node(node).engine.campaign(leader, []int32{6 - leader - node})...)
			}
		}
		slices.Sort(leads)
		slices.Sort(begun)
		return len(leads) > 0 && slices.Equal(begun, leads)
	})
}

// TestOneReplicaCampaigns checks that the reachable replicas of a group agree on the one that
// starts an election, and that groups differ in it.
func TestOneReplicaCampaigns(t *testing.T) {
	keeps := []int32{1, 2, 3, 4, 5} // 1 led and is lost, 2 cannot be reached, 6 has no replica
	counts := map[string]int{}
	for i := range 300 {
		name, firsts := fmt.Sprint("S-R5F-", i), map[string]bool{}
		for self, reachable := range map[int32][]int32{3: {4, 5, 6}, 4: {3, 5, 6}, 5: {6, 4, 3}} {
			group := server.RaftzGroup{ID: peerID(self), Peers: map[string]server.RaftzGroupPeer{}}
			for _, node := range keeps {
				if node != self {
					group.Peers[peerID(node)] = server.RaftzGroupPeer{}
				}
			}
			firsts[firstReplica(name, group, reachable)] = true
		}
		if len(firsts) != 1 {
			t.Fatalf("group %s: the replicas that come first are %v, want one", name, firsts)
		}
		for first := range firsts {
			counts[first]++
		}
	}
	for _, node := range []int32{3, 4, 5} {
		if counts[peerID(node)] < 60 {
			t.Errorf("node %d comes first in %d groups of 300, want about 100: %v", node, counts[peerID(node)], counts)
		}
	}
}
