package serve

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
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
