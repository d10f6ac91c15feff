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
	"list-dead-letters": ReadBulk, "get-job": ReadBulk, "list-schedules": ReadBulk, "get-schedule": ReadBulk,
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

// requests has the right that each Kafka request needs for what it names, by its key. Topics, groups and transactional
// ids must be within the limits too. Lists leave out what is not.
var requests = map[int16]Right{
	0:  Produce,       // Produce
	1:  Consume,       // Fetch
	2:  ReadTopics,    // ListOffsets
	3:  ReadTopics,    // Metadata
	8:  Consume,       // OffsetCommit
	9:  ReadTopics,    // OffsetFetch
	10: Known,         // FindCoordinator
	11: Consume,       // JoinGroup
	12: Consume,       // Heartbeat
	13: Consume,       // LeaveGroup
	14: Consume,       // SyncGroup
	15: ReadTopics,    // DescribeGroups
	16: ReadTopics,    // ListGroups
	17: Open,          // SaslHandshake
	18: Open,          // ApiVersions
	19: ManageTopics,  // CreateTopics
	20: ManageTopics,  // DeleteTopics
	21: ManageTopics,  // DeleteRecords
	22: Produce,       // InitProducerId
	23: ReadTopics,    // OffsetForLeaderEpoch
	24: Produce,       // AddPartitionsToTxn
	25: Produce,       // AddOffsetsToTxn
	26: Produce,       // EndTxn
	28: Consume,       // TxnOffsetCommit
	32: ReadTopics,    // DescribeConfigs
	33: ManageTopics,  // AlterConfigs
	35: ReadTopics,    // DescribeLogDirs
	36: Open,          // SaslAuthenticate
	37: ManageTopics,  // CreatePartitions
	42: ManageTopics,  // DeleteGroups
	43: ManageCluster, // ElectLeaders
	44: ManageTopics,  // IncrementalAlterConfigs
	45: ManageCluster, // AlterPartitionReassignments
	46: ReadCluster,   // ListPartitionReassignments
	47: Consume,       // OffsetDelete
	60: Known,         // DescribeCluster
	61: ReadTopics,    // DescribeProducers
	65: ReadTopics,    // DescribeTransactions
	66: ReadTopics,    // ListTransactions
	68: Consume,       // ConsumerGroupHeartbeat
	69: ReadTopics,    // ConsumerGroupDescribe
	75: ReadTopics,    // DescribeTopicPartitions
	76: Consume,       // ShareGroupHeartbeat
	77: ReadTopics,    // ShareGroupDescribe
	78: Consume,       // ShareFetch
	79: Consume,       // ShareAcknowledge
	90: ReadTopics,    // DescribeShareGroupOffsets
	91: Consume,       // AlterShareGroupOffsets
}

// Operation returns the right that an operation of the HTTP API needs. It panics if the table has no row: nothing is
// served without a decision who may call it.
func Operation(id string) Right { return row(operations, id) }

// Path returns the right that a pattern of the operators' address needs, as http.ServeMux has it. Like Operation it
// panics.
func Path(pattern string) Right { return row(paths, pattern) }

// Request returns the right that a Kafka request needs, and reports whether the table has it.
func Request(key int16) (right Right, found bool) {
	right, found = requests[key]
	return right, found
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
