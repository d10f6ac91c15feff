package kafka

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The numbers of the kinds that code names.
const (
	keyProduce          = 0
	keyFetch            = 1
	keyMetadata         = 3
	keyOffsetCommit     = 8
	keyJoinGroup        = 11
	keySyncGroup        = 14
	keyDescribeGroups   = 15
	keySASLHandshake    = 17
	keyAPIVersions      = 18
	keyCreateTopics     = 19
	keyDeleteTopics     = 20
	keyInitProducerID   = 22
	keyDescribeConfigs  = 32
	keyAlterConfigs     = 33
	keySASLAuthenticate = 36
	keyCreatePartitions = 37
	keyDeleteGroups     = 42
	keyElectLeaders     = 43
	keyDescribeCluster  = 60
	keyShareFetch       = 78
)

// requests are the supported kinds, in the order of their numbers. ApiVersions announces
// them.
var requests = []request{
	on(0, 13, (*Server).produce),
	on(4, 17, (*Server).fetch),
	on(1, 8, (*Server).listOffsets),
	on(0, 12, (*Server).metadata),
	on(0, 9, (*Server).offsetCommit),
	on(0, 9, (*Server).offsetFetch),
	on(0, 4, (*Server).findCoordinator),
	on(0, 9, (*Server).joinGroup),
	on(0, 4, (*Server).heartbeat),
	on(0, 5, (*Server).leaveGroup),
	on(0, 5, (*Server).syncGroup),
	on(0, 6, (*Server).describeGroups),
	on(0, 5, (*Server).listGroups),
	on(0, 1, (*Server).saslHandshake),
	on(0, 4, (*Server).apiVersions),
	on(0, 7, (*Server).createTopics),
	on(0, 6, (*Server).deleteTopics),
	on(0, 2, (*Server).deleteRecords),
	on(0, 4, (*Server).initProducerID),
	on(2, 4, (*Server).offsetForLeaderEpoch),
	on(0, 3, (*Server).addPartitionsToTxn),
	on(0, 3, (*Server).addOffsetsToTxn),
	on(0, 5, (*Server).endTxn),
	on(0, 5, (*Server).txnOffsetCommit),
	on(1, 3, (*Server).describeACLs),
	on(1, 3, (*Server).createACLs),
	on(1, 3, (*Server).deleteACLs),
	on(0, 4, (*Server).describeConfigs),
	on(0, 2, (*Server).alterConfigs),
	on(0, 4, (*Server).describeLogDirs),
	on(0, 2, (*Server).saslAuthenticate),
	on(0, 3, (*Server).createPartitions),
	on(0, 2, (*Server).deleteGroups),
	on(0, 2, (*Server).electLeaders),
	on(0, 1, (*Server).incrementalAlterConfigs),
	on(0, 1, (*Server).alterPartitionAssignments),
	on(0, 0, (*Server).listPartitionReassignments),
	on(0, 0, (*Server).offsetDelete),
	on(0, 1, (*Server).describeClientQuotas),
	on(0, 1, (*Server).alterClientQuotas),
	on(0, 0, (*Server).describeUserSCRAMCredentials),
	on(0, 0, (*Server).alterUserSCRAMCredentials),
	on(0, 2, (*Server).describeCluster),
	on(0, 0, (*Server).describeProducers),
	on(0, 0, (*Server).describeTransactions),
	on(0, 1, (*Server).listTransactions),
	on(0, 1, (*Server).consumerGroupHeartbeat),
	on(0, 1, (*Server).consumerGroupDescribe),
	on(0, 0, (*Server).describeTopicPartitions),
	on(1, 1, (*Server).shareGroupHeartbeat),
	on(1, 1, (*Server).shareGroupDescribe),
	on(1, 2, (*Server).shareFetch),
	on(1, 2, (*Server).shareAcknowledge),
	on(0, 1, (*Server).describeShareGroupOffsets),
	on(0, 0, (*Server).alterShareGroupOffsets),
	on(0, 0, (*Server).deleteShareGroupOffsets),
}

// waitsForOthers reports whether a kind of request may wait long for records or for other members.
// It then must not hold memory for its answer.
func waitsForOthers(key int16) bool {
	return key == keyFetch || key == keyShareFetch || key == keyJoinGroup || key == keySyncGroup
}

// kinds returns the requests, by their numbers.
func kinds() map[int16]*request {
	byKey := make(map[int16]*request, len(requests))
	for i := range requests {
		byKey[requests[i].key] = &requests[i]
	}
	return byKey
}

// requestName returns the name of a kind of request, known or not.
func requestName(key int16) string {
	if name := kmsg.NameForKey(key); name != "Unknown" {
		return name
	}
	return fmt.Sprintf("unknown-%d", key)
}

// warnEvery is how often the log warns of unsupported requests of one kind, or of failed
// authentications. A client that sends them comes back again and again.
const warnEvery = time.Minute

// warnings remembers when the log has warned of unsupported requests, by their kinds; kinds that the
// protocol does not have count as one.
type warnings struct {
	mu     sync.Mutex
	byKind map[int16]*warning
}

type warning struct {
	last   time.Time
	missed int
}

// due reports whether to warn of a request, and how many there were since the last warning.
func (w *warnings) due(key int16) (missed int, due bool) {
	if kmsg.RequestForKey(key) == nil {
		key = -1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKind == nil {
		w.byKind = map[int16]*warning{}
	}
	of, now := w.byKind[key], time.Now()
	if of == nil {
		of = &warning{}
		w.byKind[key] = of
	}
	if !of.last.IsZero() && now.Sub(of.last) < warnEvery {
		of.missed++
		return 0, false
	}
	missed, of.missed, of.last = of.missed, 0, now
	return missed, true
}
