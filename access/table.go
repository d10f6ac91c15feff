package access

import (
	"maps"
	"slices"
)

// operations has the right that each operation of the HTTP API needs, by its id.
var operations = map[string]Right{
	"create-action": Submit, "upload-jobs": Submit, "seal-action": Submit, "enqueue-job": Submit,
	"pause-action": Submit, "resume-action": Submit, "cancel-action": Submit, "change-actions": Submit,
	"replay-dead-letters": Submit, "put-schedule": Submit, "remove-schedule": Submit,
	"pause-schedule": Submit, "resume-schedule": Submit, "run-schedule": Submit,
	"list-actions": ReadBulk, "get-action": ReadBulk, "watch-action": ReadBulk, "list-failures": ReadBulk,
	"list-dead-letters": ReadBulk, "list-streams": ReadBulk, "list-waits": ReadBulk, "list-workers": ReadLimits, "get-job": ReadBulk, "list-schedules": ReadBulk, "get-schedule": ReadBulk,
	"get-tenant": ReadBulk, "get-target": ReadLimits, "get-type": ReadLimits, "get-limits": ReadLimits,
	"set-tenant": ManageBulk, "set-target": ManageBulk, "set-type": ManageBulk, "set-limits": ManageBulk,
	"lease-jobs": Work, "acknowledge-leases": Work, "extend-leases": Work,

	"list-rooms": ReadRooms, "show-room": ReadRooms, "report-health": KeepRoom, "revoke": KeepRoom, "make-codes": KeepRoom, "revoke-codes": KeepRoom,
	"put-room": ManageRooms, "delete-room": ManageRooms, "pause-room": ManageRooms, "sold-out-room": ManageRooms, "resume-room": ManageRooms,
	"rotate-keys": ManageRooms, "revoke-keys": ManageRooms,
	// Visitors show the tickets that they were given; everybody may have the public keys.
	"enter": Open, "ask": Open, "leave": Open, "renew": Open, "watch": Open, "show-lottery": Open, "keys": Open,

	"list-delayed": ReadTopics, "show-group": ReadTopics, "cancel-delayed": Produce, "change-topic": ManageTopics,
	"show-cluster": ReadCluster, "list-reassignments": ReadCluster,
	"balance-cluster": ManageCluster, "prefer-leaders": ManageCluster, "drain-node": ManageCluster, "resume-node": ManageCluster, "remove-node": ManageCluster,

	"back-up": Backup, "debug-process": Profile,

	"create-token": ManageAccess, "list-tokens": ManageAccess, "rotate-token": ManageAccess, "revoke-token": ManageAccess,
	"list-quotas": ManageAccess, "set-quota": ManageAccess,
}

// paths has the right of each other pattern at the operators' address.
var paths = map[string]Right{
	"GET /healthz": Open, "GET /readyz": Open,
	"GET /metrics":             ReadMetrics,
	"GET /debug/pprof/":        Profile,
	"GET /debug/pprof/cmdline": Profile,
	"GET /debug/pprof/profile": Profile,
	"GET /debug/pprof/symbol":  Profile,
	"GET /debug/pprof/trace":   Profile,
	"/openapi.json":            Known, "/openapi-room.json": Known, "/openapi-topic.json": Known,
	"/v1/": Open, "/.well-known/": Open, // each operation below has a row of its own
	"/v1/move/": Open, // it asks for the secret of the cluster
	"/ui/":      Open, // it asks for a token itself, and keeps it in a cookie
	"GET /{$}":  Open, // it leads to /ui/
}

// requests has what each Kafka request needs for what it names, by its key: a right, with topics, groups and transactional
// ids within the limits, or an ACL for the operation. Lists leave out what is neither.
var requests = map[int16]request{
	0:  {Produce, opWrite, nil},                            // Produce
	1:  {Consume, opRead, nil},                             // Fetch
	2:  {ReadTopics, opDescribe, nil},                      // ListOffsets
	3:  {ReadTopics, opDescribe, nil},                      // Metadata
	8:  {Consume, opRead, nil},                             // OffsetCommit
	9:  {ReadTopics, opDescribe, nil},                      // OffsetFetch
	10: {Known, opDescribe, nil},                           // FindCoordinator
	11: {Consume, opRead, nil},                             // JoinGroup
	12: {Consume, opRead, nil},                             // Heartbeat
	13: {Consume, opRead, nil},                             // LeaveGroup
	14: {Consume, opRead, nil},                             // SyncGroup
	15: {ReadTopics, opDescribe, nil},                      // DescribeGroups
	16: {ReadTopics, opDescribe, nil},                      // ListGroups
	17: {Open, "", nil},                                    // SaslHandshake
	18: {Open, "", nil},                                    // ApiVersions
	19: {ManageTopics, opCreate, nil},                      // CreateTopics
	20: {ManageTopics, opDelete, nil},                      // DeleteTopics
	21: {ManageTopics, opDelete, nil},                      // DeleteRecords
	22: {Produce, opWrite, on{Cluster: opIdempotentWrite}}, // InitProducerId
	23: {ReadTopics, opDescribe, nil},                      // OffsetForLeaderEpoch
	24: {Produce, opWrite, nil},                            // AddPartitionsToTxn
	25: {Produce, opWrite, on{Group: opRead}},              // AddOffsetsToTxn
	26: {Produce, opWrite, nil},                            // EndTxn
	28: {Consume, opRead, on{Transaction: opWrite}},        // TxnOffsetCommit
	29: {ManageAccess, opDescribe, nil},                    // DescribeAcls
	30: {ManageAccess, opAlter, nil},                       // CreateAcls
	31: {ManageAccess, opAlter, nil},                       // DeleteAcls
	32: {ReadTopics, opDescribeConfigs, nil},               // DescribeConfigs
	33: {ManageTopics, opAlterConfigs, nil},                // AlterConfigs
	35: {ReadTopics, opDescribe, nil},                      // DescribeLogDirs
	36: {Open, "", nil},                                    // SaslAuthenticate
	37: {ManageTopics, opAlter, nil},                       // CreatePartitions
	42: {ManageTopics, opDelete, nil},                      // DeleteGroups
	43: {ManageCluster, opAlter, nil},                      // ElectLeaders
	44: {ManageTopics, opAlterConfigs, nil},                // IncrementalAlterConfigs
	45: {ManageCluster, opAlter, nil},                      // AlterPartitionReassignments
	46: {ReadCluster, opDescribe, nil},                     // ListPartitionReassignments
	47: {Consume, opRead, on{Group: opDelete}},             // OffsetDelete
	48: {ManageAccess, opDescribeConfigs, nil},             // DescribeClientQuotas
	49: {ManageAccess, opAlterConfigs, nil},                // AlterClientQuotas
	50: {ManageAccess, opDescribe, nil},                    // DescribeUserScramCredentials
	51: {ManageAccess, opAlter, nil},                       // AlterUserScramCredentials
	60: {Known, opDescribe, nil},                           // DescribeCluster
	61: {ReadTopics, opRead, nil},                          // DescribeProducers
	65: {ReadTopics, opDescribe, nil},                      // DescribeTransactions
	66: {ReadTopics, opDescribe, nil},                      // ListTransactions
	68: {Consume, opRead, on{Topic: opDescribe}},           // ConsumerGroupHeartbeat
	69: {ReadTopics, opDescribe, nil},                      // ConsumerGroupDescribe
	75: {ReadTopics, opDescribe, nil},                      // DescribeTopicPartitions
	76: {Consume, opRead, on{Topic: opDescribe}},           // ShareGroupHeartbeat
	77: {ReadTopics, opDescribe, nil},                      // ShareGroupDescribe
	78: {Consume, opRead, nil},                             // ShareFetch
	79: {Consume, opRead, nil},                             // ShareAcknowledge
	90: {ReadTopics, opDescribe, nil},                      // DescribeShareGroupOffsets
	91: {Consume, opRead, nil},                             // AlterShareGroupOffsets
	92: {Consume, opRead, on{Group: opDelete}},             // DeleteShareGroupOffsets
}

// request is what a Kafka request needs.
type request struct {
	right     Right
	operation string // of ACLs
	except    on     // other operations on some resources
}

type on map[Resource]string

// on returns the operation that the request is on a kind of resource.
func (r *request) on(of Resource) string {
	if operation, other := r.except[of]; other {
		return operation
	}
	return r.operation
}

// Operation returns the right that an operation of the HTTP API needs. It panics if the table has no row: nothing is
// served without a decision who may call it.
func Operation(id string) Right { return row(operations, id) }

// Path returns the right that a pattern of the operators' address needs, as http.ServeMux has it. Like Operation it
// panics.
func Path(pattern string) Right { return row(paths, pattern) }

// Request returns the right that a Kafka request needs, and reports whether the table has it.
func Request(key int16) (right Right, found bool) {
	row, found := requests[key]
	return row.right, found
}

func row(table map[string]Right, key string) Right {
	right, found := table[key]
	if !found {
		panic("access: the table has no row for " + key + ": say in access/table.go who may call it")
	}
	return right
}

// Operations returns the ids of all operations that the table has, in order.
func Operations() []string { return slices.Sorted(maps.Keys(operations)) }

// Paths returns all patterns that the table has, in order.
func Paths() []string { return slices.Sorted(maps.Keys(paths)) }
