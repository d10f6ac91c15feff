package natsstore

import (
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
)

// The engine's timers of elections are variables without an option. Those below are the same
// variables: they are set before the first engine of a cluster starts.
// docs/decisions/0071-elections-within-seconds.md

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
var hbInterval time.Duration

//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
var lostQuorumInterval time.Duration

//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
var lostQuorumCheck time.Duration

// electionTimers are the variables, the values that the engine must have given them, and ours.
// A follower that hears nothing from a leader for a time between the first two starts an
// election; a leader that hears nothing from a majority for lostQuorumInterval steps down.
var electionTimers = []struct {
	name        string
	timer       *time.Duration
	theirs, our time.Duration
}{
	{"minElectionTimeout", &minElectionTimeout, 4 * time.Second, 1500 * time.Millisecond},
	{"maxElectionTimeout", &maxElectionTimeout, 9 * time.Second, 3500 * time.Millisecond},
	{"hbInterval", &hbInterval, time.Second, 250 * time.Millisecond},
	{"lostQuorumInterval", &lostQuorumInterval, 10 * time.Second, 3 * time.Second},
	{"lostQuorumCheck", &lostQuorumCheck, 10 * time.Second, 500 * time.Millisecond},
}

// setElectionTimers sets the engine's timers, once for all engines of the process. The linker
// makes a variable of our own, with the value 0, from a name that the engine does not have: so
// the values are checked first, and none is set if one differs.
var setElectionTimers = sync.OnceValue(func() error {
	for _, t := range electionTimers {
		if *t.timer != t.theirs {
			return fmt.Errorf("the engine's %s is %v, not %v: build with the version of github.com/nats-io/nats-server/v2 that Sluice's go.mod names", t.name, *t.timer, t.theirs)
		}
	}
	for _, t := range electionTimers {
		*t.timer = t.our
	}
	return nil
})

// lookupRaftNode returns this server's part of a Raft group, nil if it has none. The engine
// exports the type and has no exported way to one.
//
//go:linkname lookupRaftNode github.com/nats-io/nats-server/v2/server.(*Server).lookupRaftNode
func lookupRaftNode(s *server.Server, group string) server.RaftNode

// campaign starts an election within 800 ms in each group that a lost node led and whose first
// reachable replica this node is, and returns these groups. The others wait for their timers, so
// votes are not split. A leader that is heard of again in the meantime stays.
func (e *engine) campaign(lost int32, reachable []int32) (groups []string) {
	for name, group := range e.groups() {
		if group.Leader != peerID(lost) || group.State != server.Follower.String() || firstReplica(name, group, reachable) != group.ID {
			continue
		}
		// Not immediately: that counts the votes of replicas that have lost their entries.
		if node := lookupRaftNode(e.Server, name); node != nil && node.Campaign() == nil {
			groups = append(groups, name)
		}
	}
	return groups
}

// groups returns the Raft groups of this server: of its streams and of the engine's metadata.
func (e *engine) groups() map[string]server.RaftzGroup {
	all := map[string]server.RaftzGroup{}
	for _, of := range []string{account, server.DEFAULT_SYSTEM_ACCOUNT} {
		if found := e.Raftz(&server.RaftzOptions{AccountFilter: of}); found != nil {
			maps.Copy(all, (*found)[of])
		}
	}
	return all
}

// firstReplica returns the replica of a group that comes first for it: this server, or one on
// a reachable node. The order differs between groups, so that their leaders are spread.
func firstReplica(name string, group server.RaftzGroup, reachable []int32) string {
	weight := func(id string) uint64 {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(name + "/" + id)) // does not fail
		return hash.Sum64()
	}
	first := group.ID
	for _, node := range reachable {
		id := peerID(node)
		if _, keeps := group.Peers[id]; keeps && weight(id) > weight(first) {
			first = id
		}
	}
	return first
}
