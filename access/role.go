package access

import (
	"math/bits"
	"strings"
)

// Right is what an operation needs. Rights can be joined with |.
type Right uint32

// The rights. The table below says what each allows.
const (
	Known Right = 1 << iota
	ReadBulk
	ReadLimits
	Submit
	Work
	ManageBulk
	ReadRooms
	KeepRoom
	ManageRooms
	ReadTopics
	Produce
	Consume
	ManageTopics
	ReadCluster
	ManageCluster
	ReadMetrics
	Profile
	Backup
	ManageAccess

	everything = 1<<iota - 1
	// Open needs nobody: the operation is for the public, or asks for a secret of its own.
	Open Right = 0

	// changes are the rights whose use belongs in the trail of a server: they change something, or show all its secrets.
	// The traffic itself does not: records, leases and visitors.
	changes = Submit | ManageBulk | KeepRoom | ManageRooms | ManageTopics | ManageCluster | Backup | ManageAccess
)

// rights are all rights but Open, in the order of their declaration.
var rights = []struct{ name, allows string }{
	{"known", "read /openapi.json, and what Kafka clients ask first"},
	{"read-bulk", "see actions, jobs, schedules, and the settings of tenants"},
	{"read-limits", "see the limits of targets, of job types and of the service"},
	{"submit", "create actions, jobs and schedules, and change them"},
	{"work", "lease jobs, and report how they ended"},
	{"manage-bulk", "set the limits of tenants, targets, job types and the service"},
	{"read-rooms", "see rooms"},
	{"keep-room", "report the health of a room's upstream, revoke places, name visitors, and make codes"},
	{"manage-rooms", "create, change, pause and remove rooms; change the keys that sign passes"},
	{"read-topics", "see topics, groups and transactions, without records"},
	{"produce", "write records, and cancel delayed ones"},
	{"consume", "read records, and commit offsets of groups"},
	{"manage-topics", "create, change and remove topics and groups"},
	{"read-cluster", "see the nodes of the cluster, and where replicas are"},
	{"manage-cluster", "move replicas and leaders between nodes"},
	{"read-metrics", "read /metrics"},
	{"profile", "read profiles, settings and the log of the process"},
	{"backup", "read everything in a backup, with the keys that sign passes"},
	{"manage-access", "create, rotate and revoke tokens, SCRAM users, access lists and quotas"},
}

func (r Right) String() string {
	var names []string
	for i := range rights {
		if r&(1<<i) != 0 {
			names = append(names, rights[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// Rights returns each right, in the order of their declaration.
func Rights() []Right {
	all := make([]Right, len(rights))
	for i := range all {
		all[i] = 1 << i
	}
	return all
}

// Allows says what a single right allows.
func (r Right) Allows() string { return rights[bits.TrailingZeros32(uint32(r))].allows }

// Changes reports whether each use of the right belongs in the trail of a server.
func (r Right) Changes() bool { return r&changes != 0 }

// Role is a set of rights that a token can have.
type Role string

// The roles.
const (
	// Admin may do everything.
	Admin Role = "admin"
	// Operator may do everything but manage tokens and read backups.
	Operator Role = "operator"
	// Viewer sees everything but records, and changes nothing.
	Viewer Role = "viewer"
	// Submitter creates actions and jobs of tenants.
	Submitter Role = "submitter"
	// Worker runs jobs of some types.
	Worker Role = "worker"
	// Shop keeps rooms.
	Shop Role = "shop"
	// Producer writes to topics.
	Producer Role = "producer"
	// Consumer reads from topics, in groups.
	Consumer Role = "consumer"
)

// roles are all roles, in the order of their declaration.
var roles = []struct {
	Role
	rights Right
}{
	{Admin, everything},
	{Operator, everything &^ (ManageAccess | Backup)},
	{Viewer, Known | ReadBulk | ReadLimits | ReadRooms | ReadTopics | ReadCluster | ReadMetrics},
	{Submitter, Known | ReadBulk | Submit},
	{Worker, Known | Work},
	{Shop, Known | ReadRooms | KeepRoom},
	{Producer, Known | ReadTopics | Produce},
	{Consumer, Known | ReadTopics | Consume},
}

// Roles returns all roles, in the order of their declaration.
func Roles() []Role {
	all := make([]Role, len(roles))
	for i := range roles {
		all[i] = roles[i].Role
	}
	return all
}

// Rights returns the rights of a role; a role that does not exist has none.
func (r Role) Rights() Right {
	for i := range roles {
		if roles[i].Role == r {
			return roles[i].rights
		}
	}
	return 0
}

// RolesWith returns the roles that have a right.
func RolesWith(right Right) []Role {
	var with []Role
	for i := range roles {
		if roles[i].rights&right == right {
			with = append(with, roles[i].Role)
		}
	}
	return with
}
