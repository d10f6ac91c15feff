package access

import "strings"

// Right is what an operation needs. Rights can be joined with |.
type Right uint32

// The rights.
const (
	// Known is the right of everybody who has a valid token.
	Known Right = 1 << iota
	// ReadBulk: see actions, their jobs, and the settings of tenants.
	ReadBulk
	// ReadLimits: see the limits of targets, of job types and of the service.
	ReadLimits
	// Submit: create actions, jobs and schedules, and change them.
	Submit
	// Work: lease jobs, and report how they ended.
	Work
	// ManageBulk: set the limits of tenants, targets, job types and the service.
	ManageBulk
	// ReadRooms: see rooms.
	ReadRooms
	// KeepRoom: report the health of a room's upstream, and revoke places.
	KeepRoom
	// ManageRooms: create, change, pause and remove rooms, and change the keys that sign passes.
	ManageRooms
	// ReadTopics: see topics, groups and transactions, without records.
	ReadTopics
	// Produce: write records, and cancel delayed ones.
	Produce
	// Consume: read records, and commit offsets of groups.
	Consume
	// ManageTopics: create, change and remove topics and groups.
	ManageTopics
	// ReadCluster: see the nodes of the cluster.
	ReadCluster
	// ManageCluster: move replicas and leaders between nodes.
	ManageCluster
	// ReadMetrics: read /metrics.
	ReadMetrics
	// Profile: read profiles of the process.
	Profile
	// Backup: read everything, with the keys that sign passes.
	Backup
	// ManageAccess: create, rotate and revoke tokens.
	ManageAccess

	none
	// Open needs nobody: the operation is for the public, or asks for a secret of its own.
	Open Right = 0
)

var rightNames = []string{
	"known", "read-bulk", "read-limits", "submit", "work", "manage-bulk", "read-rooms", "keep-room", "manage-rooms",
	"read-topics", "produce", "consume", "manage-topics", "read-cluster", "manage-cluster", "read-metrics", "profile",
	"backup", "manage-access",
}

func (r Right) String() string {
	var names []string
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Rights returns each right, in the order of their declaration.
func Rights() []Right {
	all := make([]Right, len(rightNames))
	for i := range all {
		all[i] = 1 << i
	}
	return all
}

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

const everything = none - 1

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
