package serve

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/kafka/kafkatest"
	"github.com/sluice-project/sluice/topic/storetest"
)

// certified is a server for Kafka clients with accounts, whose clients may show certificates.
type certified struct {
	*kafkaServer
	authority   *certtest.Authority
	revocations string
}

func serveCertified(t *testing.T, grants ...string) *certified {
	t.Helper()
	c := &certified{authority: certtest.New(t), revocations: filepath.Join(t.TempDir(), "crl.pem")}
	c.authority.Revoke(c.revocations)
	clients, err := renew.LoadClients(renew.ClientOptions{CAFile: c.authority.File, CRLFile: c.revocations, Optional: true})
	if err != nil {
		t.Fatal(err)
	}
	own := c.authority.Issue("server")
	config, err := renew.ServerTLS(own.Cert, own.Key, clients, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.kafkaServer = serveKafkaOn(t, storetest.NewMemory(), topic.Config{}, kafka.Options{Addr: "127.0.0.1:0", TLS: config, CheckCertificate: clients.Check})
	c.grant(grants...)
	return c
}

// grant replaces the grants.
func (s *kafkaServer) grant(texts ...string) {
	s.t.Helper()
	grants := make([]access.Grant, len(texts))
	for i, text := range texts {
		var err error
		if grants[i], err = access.ParseGrant(text); err != nil {
			s.t.Fatal(err)
		}
	}
	s.accounts.SetGrants(grants)
}

// with returns a client that shows certificates.
func (c *certified) with(options []kgo.Opt, shows ...certtest.Files) *kgo.Client {
	c.t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(c.edge.Addr()), kgo.DialTLSConfig(c.authority.Client(shows...)), kgo.RequestRetries(0))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

// Each request that the server announces, by a certificate of each role, is allowed or refused as the table says.
func TestEveryKafkaRequestByCertificates(t *testing.T) {
	var grants []string
	for _, role := range access.Roles() {
		grants = append(grants, "name:cert:"+string(role)+" "+string(role))
	}
	s := serveCertified(t, grants...)
	s.everyRequest(func(role access.Role) *kgo.Client { return s.with(nil, s.authority.Issue(string(role))) })
}

// A certificate is an account: with the limits of its grant, and without a grant it may do nothing. A token beside it
// wins, also one that is wrong; and without either a client gets nothing.
func TestCertificatesOverKafka(t *testing.T) {
	s := serveCertified(t, "name:cert:till producer topic=orders*")
	ids := map[string]topic.ID{"orders": s.create("orders").ID(), "payments": s.create("payments").ID()}
	till := s.authority.Issue("till")
	admin := kgo.SASL(plain.Auth{User: "any", Pass: adminOfTests}.AsMechanism())
	for _, test := range []struct {
		name    string
		client  *kgo.Client
		to      string
		refused bool
	}{
		{"the till", s.with(nil, till), "orders", false},
		{"the till, beyond its limits", s.with(nil, till), "payments", true},
		{"a stranger", s.with(nil, s.authority.Issue("stranger")), "orders", true},
		{"the till with the admin token", s.with([]kgo.Opt{admin}, till), "payments", false},
		{"no certificate, and the admin token", s.with([]kgo.Opt{admin}), "payments", false},
	} {
		refused := s.codes(test.client, kafkatest.Request(0, 0, kafkatest.Names{Topic: test.to, TopicID: ids[test.to]}))
		if len(refused) > 0 != test.refused || test.refused && refused[0] != kerr.TopicAuthorizationFailed.Code {
			t.Errorf("%s: codes %v, want that it is refused: %v", test.name, refused, test.refused)
		}
	}
	wrong := kgo.SASL(plain.Auth{User: "any", Pass: "sluice_wrong"}.AsMechanism())
	if err := s.with([]kgo.Opt{wrong}, till).Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("the till with a wrong token: %v, want %v", err, kerr.SaslAuthenticationFailed)
	}
	if err := s.with(nil).Ping(t.Context()); err == nil {
		t.Error("without a certificate and a token: a ping is answered")
	}
}

// A certificate that is revoked, or whose grant is taken away, loses its open connections; a revoked one also with a
// token.
func TestCertificatesThatEndLoseTheirKafkaConnections(t *testing.T) {
	s := serveCertified(t, "name:cert:revoked consumer", "name:cert:degraded consumer")
	names := kafkatest.Names{Topic: "orders", TopicID: s.create("orders").ID()}
	admin := kgo.SASL(plain.Auth{User: "any", Pass: adminOfTests}.AsMechanism())
	revoked, degraded, both := s.authority.Issue("revoked"), s.authority.Issue("degraded"), s.authority.Issue("both")
	clients := []*kgo.Client{s.with(nil, revoked), s.with(nil, degraded), s.with([]kgo.Opt{admin}, both)}
	lost := make(chan error, len(clients))
	for _, c := range clients {
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		waits := kafkatest.Request(1, 12, names).(*kmsg.FetchRequest)
		waits.MinBytes, waits.MaxWaitMillis, waits.SessionEpoch = 1, int32(until.Limit.Milliseconds()), -1
		waits.Topics[0].Partitions[0].CurrentLeaderEpoch = -1
		go func() {
			response, err := c.SeedBrokers()[0].Request(t.Context(), waits)
			if err == nil && kafkatest.Codes(response)[kerr.TopicAuthorizationFailed.Code] {
				err = kerr.TopicAuthorizationFailed // it came after the grant was taken away, on a new connection
			}
			lost <- err
		}()
	}
	s.authority.Revoke(s.revocations, revoked, both)
	s.grant("name:cert:revoked consumer", "name:cert:degraded viewer")
	for range clients {
		if err := <-lost; err == nil {
			t.Error("a fetch was answered, want a closed connection")
		}
	}
	for _, c := range []*kgo.Client{s.with(nil, revoked), s.with([]kgo.Opt{admin}, both)} {
		if err := c.Ping(t.Context()); err == nil {
			t.Error("a revoked certificate is accepted again")
		}
	}
	if _, err := kadm.NewClient(s.with(nil, degraded)).ListTopics(t.Context()); err != nil {
		t.Errorf("the other right of the certificate: %v", err)
	}
}
