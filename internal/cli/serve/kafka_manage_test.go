package serve

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/kafkatest"
)

// admin returns an admin client with the admin token.
func (s *kafkaServer) admin() *kadm.Client {
	return kadm.NewClient(s.client(plain.Auth{User: "any", Pass: adminOfTests}.AsMechanism()))
}

// user makes a SCRAM user and returns the way to authenticate as it.
func (s *kafkaServer) user(name string) sasl.Mechanism {
	s.t.Helper()
	altered, err := s.admin().AlterUserSCRAMs(s.t.Context(), nil, []kadm.UpsertSCRAM{{User: name, Mechanism: kadm.ScramSha512, Iterations: 8192, Password: "password of " + name}})
	if err := errors.Join(err, altered.Error()); err != nil {
		s.t.Fatal(err)
	}
	return scram.Auth{User: name, Pass: "password of " + name}.AsSha512Mechanism()
}

// writes returns the error of writing a record by a new connection.
func (s *kafkaServer) writes(as sasl.Mechanism, to string) error {
	s.t.Helper()
	return s.client(as, kgo.DefaultProduceTopic(to)).ProduceSync(s.t.Context(), kgo.StringRecord("a record")).FirstErr()
}

// A user that an admin client has made authenticates with the password, and has what the grants give to its name, until
// the admin client removes it.
func TestScramUsersByAdminCalls(t *testing.T) {
	s := serveKafka(t)
	s.create("orders")
	till := s.user("till")
	if err := s.writes(till, "orders"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without a grant: %v", err)
	}
	s.accounts.SetGrants([]access.Grant{{Name: "till", Principal: access.Principal{Roles: []access.Role{access.Producer}, Topics: []string{"orders"}}}})
	if err := s.writes(till, "orders"); err != nil {
		t.Errorf("with a grant: %v", err)
	}
	wrong := scram.Auth{User: "till", Pass: "password of another"}.AsSha512Mechanism()
	if err := s.client(wrong).Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a wrong password: %v", err)
	}
	open := s.client(till)
	if err := open.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	altered, err := s.admin().AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: "till", Mechanism: kadm.ScramSha512}}, nil)
	if err := errors.Join(err, altered.Error()); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the open connection ends", func() bool { return open.Ping(t.Context()) != nil })
	if err := s.client(till).Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a removed user: %v", err)
	}
	_, err = kadm.NewClient(s.client(s.token(access.Principal{Name: "operator", Roles: []access.Role{access.Operator}}))).DescribeUserSCRAMs(t.Context())
	if !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Errorf("an operator sees users: %v", err)
	}
}

// acls creates ACLs by an admin client.
func (s *kafkaServer) acls(b *kadm.ACLBuilder) {
	s.t.Helper()
	b.PrefixUserExcept()
	created, err := s.admin().CreateACLs(s.t.Context(), b)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, one := range created {
		if one.Err != nil {
			s.t.Fatalf("%+v: %v", one, one.ErrMessage)
		}
	}
}

// ACLs that an admin client creates count for the next request of a connection that is open, for groups, transactions and
// views too; those that deny win, and those that are removed count no more.
func TestACLsByAdminCalls(t *testing.T) {
	s := serveKafka(t)
	s.create("orders")
	if _, err := s.broker.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{
		topic.SettingViewOf: "orders", topic.SettingViewWhere: `headers.tag == "paid"`,
	}}, false); err != nil {
		t.Fatal(err)
	}
	till := s.user("till")
	open := s.client(till, kgo.DefaultProduceTopic("orders"))
	write := func() error { return open.ProduceSync(t.Context(), kgo.StringRecord("a record")).FirstErr() }
	if err := write(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without ACLs: %v", err)
	}
	s.acls(kadm.NewACLs().Allow("till").AllowHosts("127.0.0.1").Topics("ord").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpWrite))
	if err := write(); err != nil {
		t.Errorf("with an ACL: %v", err)
	}
	s.acls(kadm.NewACLs().Allow("till").AllowHosts().Topics("paid").Groups("till").TransactionalIDs("tx").Operations(kadm.OpAll))
	asks := func(key int16, name string) []int16 {
		of, err := s.broker.Topic("paid")
		if err != nil {
			t.Fatal(err)
		}
		return s.codes(open, kafkatest.Request(key, 4, kafkatest.Names{Topic: "paid", TopicID: of.ID(), Group: name, Transaction: name}))
	}
	const fetch, heartbeat, initProducer = 1, 12, 22
	if refused := append(asks(heartbeat, "till"), asks(initProducer, "tx")...); len(refused) > 0 {
		t.Errorf("a group and a transaction: %v", refused)
	}
	if refused := asks(fetch, ""); len(refused) != 1 {
		t.Errorf("a view without a right to read its source: %v", refused)
	}
	s.acls(kadm.NewACLs().Allow("*").AllowHosts().Topics("orders").Operations(kadm.OpRead))
	if refused := asks(fetch, ""); len(refused) > 0 {
		t.Errorf("a view with a right to read its source: %v", refused)
	}
	denies := kadm.NewACLs().Deny("*").DenyHosts().Topics("orders").Operations(kadm.OpWrite)
	s.acls(denies)
	if err := write(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("denied: %v", err)
	}
	producer := s.token(access.Principal{Name: "producer", Roles: []access.Role{access.Producer}})
	if err := s.writes(producer, "orders"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("a token with a role, denied: %v", err)
	}
	deleted, err := s.admin().DeleteACLs(t.Context(), denies)
	if err != nil || len(deleted) != 1 || len(deleted[0].Deleted) != 1 {
		t.Fatalf("%+v, %v", deleted, err)
	}
	if err := errors.Join(write(), s.writes(producer, "orders")); err != nil {
		t.Errorf("allowed again: %v", err)
	}
	described, err := kadm.NewClient(open).DescribeACLs(t.Context(), denies)
	if err != nil || !errors.Is(described[0].Err, kerr.ClusterAuthorizationFailed) {
		t.Errorf("somebody without a right to the cluster sees ACLs: %+v, %v", described, err)
	}
}

// A quota that an admin client sets makes the user that it names wait, at its next request, until it is removed; an operator
// neither sees nor sets quotas.
func TestQuotasByAdminCalls(t *testing.T) {
	s := serveKafka(t)
	s.create("orders")
	till, desk := s.client(s.user("till")), s.client(s.user("desk"))
	s.acls(kadm.NewACLs().Allow("*").AllowHosts().Topics("orders").Operations(kadm.OpWrite))
	told := func(c *kgo.Client) int32 {
		t.Helper()
		r := kmsg.NewPtrProduceRequest()
		r.Acks, r.TransactionID = 1, kmsg.StringPtr(strings.Repeat("-", 300)) // it is refused, and costs its bytes all the same
		r.Topics = []kmsg.ProduceRequestTopic{{Topic: "orders"}}
		response, err := c.SeedBrokers()[0].Request(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return response.(*kmsg.ProduceResponse).ThrottleMillis
	}
	name := "till"
	entry := kadm.AlterClientQuotaEntry{
		Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{{Key: access.ProducerRate, Value: 1e6}},
	}
	alter := func(by *kadm.Client) error {
		altered, err := by.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{entry})
		if err != nil {
			return err
		}
		return altered[0].Err
	}
	if err := alter(s.admin()); err != nil || told(till) != 0 {
		t.Errorf("within a tenth of a second of the quota the client has to wait: %v", err)
	}
	if entry.Ops[0].Value = 1000; alter(s.admin()) != nil || told(till) == 0 || told(desk) != 0 {
		t.Error("beyond the quota the client of till has not to wait, or that of desk has")
	}
	found, err := s.admin().DescribeClientQuotas(t.Context(), true, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &name}})
	if err != nil || len(found) != 1 || len(found[0].Values) != 1 || found[0].Values[0] != (kadm.ClientQuotaValue{Key: access.ProducerRate, Value: 1000}) {
		t.Errorf("the quota is described as %+v, %v", found, err)
	}
	entry.Ops[0].Key = "request_percentage"
	if err := alter(s.admin()); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("a share of the threads of Kafka's broker: %v", err)
	}
	entry.Ops[0] = kadm.AlterClientQuotaOp{Key: access.ProducerRate, Remove: true}
	if err := alter(s.admin()); err != nil || told(till) != 0 {
		t.Errorf("without its quota the client has to wait: %v", err)
	}
	operator := kadm.NewClient(s.client(s.token(access.Principal{Name: "operator", Roles: []access.Role{access.Operator}})))
	_, err = operator.DescribeClientQuotas(t.Context(), false, nil)
	if failed := alter(operator); !errors.Is(err, kerr.ClusterAuthorizationFailed) || !errors.Is(failed, kerr.ClusterAuthorizationFailed) {
		t.Errorf("an operator sees and sets quotas: %v, %v", err, failed)
	}
}
