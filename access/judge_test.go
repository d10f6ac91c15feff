package access_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

// acl returns an ACL of a text of its words, with the host * if it has none.
func acl(permission, principal, operation, resource, pattern, name string, host ...string) access.ACL {
	l := access.ACL{Permission: permission, Principal: access.UserPrefix + principal, Operation: operation, Resource: resource, Pattern: pattern, Name: name, Host: access.Every}
	if len(host) > 0 {
		l.Host = host[0]
	}
	return l
}

// The numbers of Kafka requests.
const (
	produce, fetch, metadata, findCoordinator, joinGroup, createTopics, deleteTopics = 0, 1, 3, 10, 11, 19, 20
	initProducer, addOffsets, txnCommit, describeACLs, createACLs, describeConfigs   = 22, 25, 28, 29, 30, 32
	alterConfigs, offsetDelete, describeUsers, groupHeartbeat                        = 33, 47, 50, 68
)

// question is what somebody wants to do, and whether they may.
type question struct {
	who  access.Principal
	acls []access.ACL
	key  int16
	of   access.Resource
	name string
	want bool
}

const (
	allow, deny, literal, prefixed     = access.Allow, access.Deny, access.Literal, access.Prefixed
	topic, group, transaction, cluster = "topic", "group", "transactional_id", "cluster"
	here                               = "10.0.0.1"
)

var (
	nobody   = access.Principal{Name: "till"}
	producer = access.Principal{Name: "till", Roles: []access.Role{access.Producer}, Topics: []string{"orders*"}}
	admin    = access.Principal{Name: "boss", Roles: []access.Role{access.Admin}}
	settings = access.Principal{Name: access.AdminName, Roles: []access.Role{access.Admin}}
)

// Roles and ACLs together: an ACL adds to roles, and a denial takes away from both.
func TestRolesAndACLsTogether(t *testing.T) {
	answers(t, []question{
		// Roles alone, and unknown requests.
		{producer, nil, produce, access.Topic, "orders", true},
		{producer, nil, produce, access.Topic, "paid", false},
		{nobody, nil, metadata, access.Topic, "orders", false},
		{settings, nil, 7, access.Cluster, "", false},
		// An ACL adds to roles and limits; who has it is not limited.
		{producer, []access.ACL{acl(allow, "till", "write", topic, literal, "paid")}, produce, access.Topic, "paid", true},
		{producer, []access.ACL{acl(allow, "till", "write", topic, literal, "paid")}, fetch, access.Topic, "orders", false},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "paid")}, produce, access.Topic, "paid-2", false},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, prefixed, "pa")}, produce, access.Topic, "paid-2", true},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "*")}, produce, access.Topic, "paid-2", true},
		{nobody, []access.ACL{acl(allow, "*", "write", topic, literal, "paid")}, produce, access.Topic, "paid", true},
		{nobody, []access.ACL{acl(allow, "other", "write", topic, literal, "paid")}, produce, access.Topic, "paid", false},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "paid", here)}, produce, access.Topic, "paid", true},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "paid", "10.0.0.2")}, produce, access.Topic, "paid", false},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "paid", "::ffff:10.0.0.1")}, produce, access.Topic, "paid", true},
		// A denial wins, over roles and over other ACLs; the admin token of the settings has none.
		{producer, []access.ACL{acl(deny, "till", "write", topic, literal, "orders")}, produce, access.Topic, "orders", false},
		{producer, []access.ACL{acl(deny, "till", "write", topic, literal, "orders")}, metadata, access.Topic, "orders", true},
		{producer, []access.ACL{acl(deny, "*", "all", topic, prefixed, "ord", here)}, produce, access.Topic, "orders", false},
		{producer, []access.ACL{acl(deny, "*", "all", topic, prefixed, "ord", "10.0.0.2")}, produce, access.Topic, "orders", true},
		{nobody, []access.ACL{acl(allow, "till", "all", topic, literal, "paid"), acl(deny, "*", "write", topic, literal, "*")}, produce, access.Topic, "paid", false},
		{admin, []access.ACL{acl(deny, "*", "all", cluster, literal, access.ClusterName)}, createACLs, access.Cluster, "", false},
		{settings, []access.ACL{acl(deny, "*", "all", cluster, literal, access.ClusterName)}, createACLs, access.Cluster, "", true},
	})
}

func TestOperationsOfACLs(t *testing.T) {
	answers(t, []question{
		// Operations: of requests, of parts of requests, and those that others imply.
		{nobody, []access.ACL{acl(allow, "till", "read", topic, literal, "paid")}, metadata, access.Topic, "paid", true},
		{nobody, []access.ACL{acl(allow, "till", "describe", topic, literal, "paid")}, fetch, access.Topic, "paid", false},
		{producer, []access.ACL{acl(deny, "till", "describe", topic, literal, "orders")}, produce, access.Topic, "orders", true},
		{nobody, []access.ACL{acl(allow, "till", "alter_configs", topic, literal, "paid")}, describeConfigs, access.Topic, "paid", true},
		{nobody, []access.ACL{acl(allow, "till", "describe_configs", topic, literal, "paid")}, alterConfigs, access.Topic, "paid", false},
		{nobody, []access.ACL{acl(allow, "till", "read", group, prefixed, "till-")}, joinGroup, access.Group, "till-1", true},
		{nobody, []access.ACL{acl(allow, "till", "read", group, literal, "g")}, findCoordinator, access.Group, "g", true},
		{nobody, []access.ACL{acl(allow, "till", "read", group, literal, "g")}, offsetDelete, access.Group, "g", false},
		{nobody, []access.ACL{acl(allow, "till", "read", group, literal, "g")}, addOffsets, access.Group, "g", true},
		{nobody, []access.ACL{acl(allow, "till", "write", transaction, literal, "tx")}, txnCommit, access.Transaction, "tx", true},
		{nobody, []access.ACL{acl(allow, "till", "describe", topic, literal, "paid")}, groupHeartbeat, access.Topic, "paid", true},
		{nobody, []access.ACL{acl(allow, "till", "create", cluster, literal, access.ClusterName)}, createTopics, access.Topic, "paid", true},
		{nobody, []access.ACL{acl(allow, "till", "create", topic, prefixed, "pa")}, createTopics, access.Topic, "paid", true},
		{admin, []access.ACL{acl(deny, "boss", "create", cluster, literal, access.ClusterName)}, createTopics, access.Topic, "paid", false},
		{nobody, []access.ACL{acl(allow, "till", "describe", cluster, literal, access.ClusterName)}, describeACLs, access.Cluster, "", true},
		{nobody, []access.ACL{acl(allow, "till", "describe", cluster, literal, access.ClusterName)}, describeUsers, access.Cluster, "", true},
		{nobody, []access.ACL{acl(allow, "till", "describe", cluster, literal, access.ClusterName)}, createACLs, access.Cluster, "", false},
		// An idempotent producer needs no more than a topic that it may write to.
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "paid")}, initProducer, access.Cluster, "", true},
		{nobody, []access.ACL{acl(allow, "*", "all", topic, prefixed, "pa", here)}, initProducer, access.Cluster, "", true},
		{nobody, []access.ACL{acl(allow, "till", "write", topic, literal, "paid", "10.0.0.2")}, initProducer, access.Cluster, "", false},
		{nobody, []access.ACL{acl(allow, "till", "idempotent_write", cluster, literal, access.ClusterName)}, initProducer, access.Cluster, "", true},
		{producer, []access.ACL{acl(deny, "till", "idempotent_write", cluster, literal, access.ClusterName)}, initProducer, access.Cluster, "", false},
		// The topics of servers: read by an ACL that names them, the trail by none, written by servers only.
		{nobody, []access.ACL{acl(allow, "till", "all", topic, literal, "*")}, fetch, access.Topic, "sluice.bulk.events", false},
		{nobody, []access.ACL{acl(allow, "till", "all", topic, prefixed, "sluice.")}, fetch, access.Topic, "sluice.bulk.events", true},
		{nobody, []access.ACL{acl(allow, "till", "all", topic, prefixed, "sluice.")}, produce, access.Topic, "sluice.bulk.events", false},
		{nobody, []access.ACL{acl(allow, "till", "all", topic, prefixed, "sluice.")}, deleteTopics, access.Topic, "sluice.bulk.events", false},
		{nobody, []access.ACL{acl(allow, "till", "all", cluster, literal, access.ClusterName)}, createTopics, access.Topic, "sluice.bulk.events", false},
		{nobody, []access.ACL{acl(allow, "till", "all", topic, literal, access.AuditTopic)}, fetch, access.Topic, access.AuditTopic, false},
		{admin, []access.ACL{acl(allow, "till", "all", topic, literal, "paid")}, fetch, access.Topic, access.AuditTopic, true},
		{admin, []access.ACL{acl(deny, "boss", "all", topic, literal, "*")}, fetch, access.Topic, access.AuditTopic, false},
	})
}

func answers(t *testing.T, questions []question) {
	t.Helper()
	accounts := open(t, &storetest.Memory{}, nil)
	for _, test := range questions {
		replace(t, accounts, test.acls...)
		if got := accounts.MayRequest(&test.who, here, test.key, test.of, test.name); got != test.want {
			t.Errorf("%s with roles %v and %v: request %d of %s %q is %v, want %v", test.who.Name, test.who.Roles, test.acls, test.key, test.of, test.name, got, test.want)
		}
	}
}

func create(t testing.TB, accounts *access.Accounts, all ...access.ACL) {
	t.Helper()
	refused, err := accounts.CreateACLs(t.Context(), all)
	for i := range refused {
		if err == nil && refused[i] != nil {
			err = fmt.Errorf("%+v: %w", all[i], refused[i])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replace removes all ACLs, and creates others.
func replace(t testing.TB, accounts *access.Accounts, all ...access.ACL) {
	t.Helper()
	if _, err := accounts.DeleteACLs(t.Context(), []access.ACLFilter{{}}); err != nil {
		t.Fatal(err)
	}
	create(t, accounts, all...)
}

var drawACL = rapid.Custom(func(t *rapid.T) access.ACL {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	return acl(pick("permission", access.Allow, access.Deny), pick("principal", "till", "*", "other"), pick("operation", "all", "read", "write", "describe"),
		"topic", pick("pattern", access.Literal, access.Prefixed), pick("name", "a", "ab", "sluice.a"), pick("host", "*", "10.0.0.1", "10.0.0.2"))
})

// Of any ACLs, one more that allows takes nothing away, one more that denies gives nothing, and their order does not matter.
func TestACLsOnlyAddOrTakeAway(t *testing.T) {
	defer rapidtest.Checks(50, 500)()
	who := &access.Principal{Name: "till", Roles: []access.Role{access.Producer}, Topics: []string{"a"}}
	accounts := open(t, &storetest.Memory{}, nil)
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOfN(drawACL, 1, 6).Draw(rt, "ACLs")
		may := func(all []access.ACL) (answers [9]bool) {
			replace(t, accounts, all...)
			for i := range answers {
				answers[i] = accounts.MayRequest(who, "10.0.0.1", []int16{produce, fetch, metadata}[i%3], access.Topic, []string{"a", "ab", "sluice.a"}[i/3])
			}
			return answers
		}
		with, without := may(all), may(all[1:])
		for i := range with {
			if with[i] != without[i] && with[i] != (all[0].Permission == access.Allow) {
				rt.Errorf("with %v question %d is %v", all[0], i, with[i])
			}
		}
		if turned := may(append(all[1:len(all):len(all)], all[0])); turned != with {
			rt.Errorf("in another order %v, want %v", turned, with)
		}
	})
}

// BenchmarkMayRequest is what a right costs for each topic of a request, without ACLs and with as many as there may be.
func BenchmarkMayRequest(b *testing.B) {
	who := &access.Principal{Name: "till", Roles: []access.Role{access.Consumer, access.Producer}, Topics: []string{"a", "b*", "c", "d*", "e", "f", "g", "orders*"}}
	for _, count := range []int{0, access.MaxACLs} {
		b.Run(fmt.Sprint("acls=", count), func(b *testing.B) {
			accounts := open(b, &storetest.Memory{}, nil)
			var all []access.ACL
			for i := range count {
				all = append(all, acl(access.Allow, fmt.Sprint("user-", i%100), "read", "topic", []string{access.Literal, access.Prefixed}[i%2], fmt.Sprint("topic-", i)))
			}
			create(b, accounts, all...)
			b.ReportAllocs()
			for b.Loop() {
				if !accounts.MayRequest(who, "10.0.0.1", produce, access.Topic, "orders-of-today") {
					b.Fatal("it may not")
				}
			}
		})
	}
}
