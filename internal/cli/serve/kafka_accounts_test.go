package serve

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-project/sluice/access"
	accesstest "github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/kafka/kafkatest"
	"github.com/sluice-project/sluice/topic/storetest"
)

const (
	adminOfTests   = "the admin token of tests"
	clusterOfTests = "the cluster's secret of tests"
)

// kafkaServer is a server for Kafka clients with accounts.
type kafkaServer struct {
	t        *testing.T
	broker   *broker.Broker
	edge     *kafka.Server
	accounts *access.Accounts
}

func serveKafka(t *testing.T) *kafkaServer {
	t.Helper()
	return serveKafkaOn(t, storetest.NewMemory(), topic.Config{}, kafka.Options{Addr: "127.0.0.1:0"})
}

// serveKafkaOn serves the topics of a store.
func serveKafkaOn(t *testing.T, store topic.Store, config topic.Config, options kafka.Options, of ...access.Options) *kafkaServer {
	t.Helper()
	accounts, err := access.New(&accesstest.Memory{}, adminOfTests, append(of, access.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	if options.Accounts, err = newKafkaAccounts(accounts, clusterOfTests); err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(store, config, broker.WithQuotas(topicQuotas(accounts)))
	if err != nil {
		t.Fatal(err)
	}
	s := &kafkaServer{t, b, kafka.NewServer(b, options), accounts}
	for _, service := range []interface {
		Start(ctx context.Context) error
		Stop(ctx context.Context) error
	}{accounts, b, s.edge} {
		if err := service.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := service.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

// token makes a token and returns the way to authenticate with it.
func (s *kafkaServer) token(p access.Principal) sasl.Mechanism {
	s.t.Helper()
	_, secret, err := s.accounts.Create(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	return scram.Auth{User: p.Name, Pass: secret}.AsSha512Mechanism()
}

func (s *kafkaServer) client(mechanism sasl.Mechanism, options ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(s.edge.Addr()), kgo.SASL(mechanism), kgo.RequestRetries(0))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func (s *kafkaServer) create(name string) *broker.Topic {
	s.t.Helper()
	made, err := s.broker.Create(s.t.Context(), topic.Spec{Name: name, Partitions: 1}, false)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// codes returns the codes of missing rights in the answer to a request.
func (s *kafkaServer) codes(c *kgo.Client, r kmsg.Request) (refused []int16) {
	s.t.Helper()
	response, err := c.SeedBrokers()[0].Request(s.t.Context(), r)
	if err != nil {
		s.t.Fatalf("%s: %v", kmsg.NameForKey(r.Key()), err)
	}
	for _, of := range []*kerr.Error{
		kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	} {
		if kafkatest.Codes(response)[of.Code] {
			refused = append(refused, of.Code)
		}
	}
	return refused
}

// silent are the requests that refuse nothing: those before authentication, and lists, which leave out
// what may not be seen.
var silent = map[int16]bool{16: true, 17: true, 18: true, 36: true, 60: true, 66: true}

// Each request that the server announces, by a token of each role, is allowed or refused as the table
// says. A request without a row fails.
func TestEveryKafkaRequestByEveryRole(t *testing.T) {
	s := serveKafka(t)
	s.everyRequest(func(role access.Role) *kgo.Client {
		return s.client(s.token(access.Principal{Name: "of-" + string(role), Roles: []access.Role{role}}))
	})
}

// ownKey is the only key of an identity provider.
type ownKey struct{ public ed25519.PublicKey }

func (k ownKey) Find(_, _ string) any { return k.public }

func (ownKey) Follow(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// The same by the JWT of an identity provider that each role has a grant for, over OAUTHBEARER.
func TestEveryKafkaRequestByJWTs(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	provider := access.NewProvider(access.ProviderOptions{Issuer: "https://idp", Audience: "sluice", Keys: ownKey{public}, NameClaim: "sub", GrantClaim: "roles"})
	s := serveKafkaOn(t, storetest.NewMemory(), topic.Config{}, kafka.Options{Addr: "127.0.0.1:0"}, access.Options{Provider: provider})
	var grants []string
	for _, role := range access.Roles() {
		grants = append(grants, "claim:idp-"+string(role)+" "+string(role))
	}
	s.grant(grants...)
	s.everyRequest(func(role access.Role) *kgo.Client {
		claims := jwt.MapClaims{"iss": "https://idp", "aud": "sluice", "sub": "somebody", "roles": []string{"idp-" + string(role)}, "exp": time.Now().Add(time.Hour).Unix()}
		text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return s.client(oauth.Auth{Token: text}.AsMechanism())
	})
}

// everyRequest sends each request that the server announces by the client of each role.
func (s *kafkaServer) everyRequest(of func(access.Role) *kgo.Client) {
	s.t.Helper()
	clients := map[access.Role]*kgo.Client{}
	for _, role := range access.Roles() {
		clients[role] = of(role)
	}
	announced, err := kmsg.NewPtrApiVersionsRequest().RequestWith(s.t.Context(), clients[access.Admin])
	if err != nil {
		s.t.Fatal(err)
	}
	for role, c := range clients {
		for _, kind := range announced.ApiKeys {
			right, known := access.Request(kind.ApiKey)
			if !known {
				s.t.Errorf("access/table.go has no row for the Kafka request %s, %d", kmsg.NameForKey(kind.ApiKey), kind.ApiKey)
				continue
			}
			if kind.ApiKey == 17 || kind.ApiKey == 36 { // the client has authenticated
				continue
			}
			name := fmt.Sprintf("%s-%d", role, kind.ApiKey)
			names := kafkatest.Names{Topic: name, TopicID: s.create(name).ID(), Group: "workers", Transaction: "tx"}
			allowed := silent[kind.ApiKey] || role.Rights()&right == right
			if refused := s.codes(c, kafkatest.Request(kind.ApiKey, kind.MaxVersion, names)); len(refused) == 0 != allowed {
				s.t.Errorf("%s by %s: codes %v, want that it is allowed: %v", kmsg.NameForKey(kind.ApiKey), role, refused, allowed)
			}
		}
	}
}

// The limits of a token are those of its Kafka requests.
func TestLimitsOverKafka(t *testing.T) {
	s := serveKafka(t)
	clients := map[string]*kgo.Client{
		"admin":    s.client(plain.Auth{User: "any", Pass: adminOfTests}.AsMechanism()),
		"producer": s.client(s.token(access.Principal{Name: "shop", Roles: []access.Role{access.Producer}, Topics: []string{"orders*"}})),
		"consumer": s.client(s.token(access.Principal{Name: "mail", Roles: []access.Role{access.Consumer}, Topics: []string{"orders"}, Groups: []string{"mail-*"}})),
		"node":     s.client(nodeLogin(clusterOfTests)),
	}
	for _, name := range []string{"orders", "orders-2", "payments", "sluice.bulk.events"} {
		s.create(name)
	}
	const produce, fetch, initProducer, heartbeat, describeGroups = 0, 1, 22, 12, 15
	for _, test := range []struct {
		who         string
		key         int16
		names       kafkatest.Names
		wantRefused bool
	}{
		{"producer", produce, kafkatest.Names{Topic: "orders"}, false},
		{"producer", produce, kafkatest.Names{Topic: "orders-2"}, false},
		{"producer", produce, kafkatest.Names{Topic: "payments"}, true},
		{"producer", fetch, kafkatest.Names{Topic: "orders"}, true},
		{"producer", describeGroups, kafkatest.Names{Group: "mail-1"}, true},
		{"producer", initProducer, kafkatest.Names{}, false},
		{"producer", initProducer, kafkatest.Names{Transaction: "orders-tx"}, false},
		{"producer", initProducer, kafkatest.Names{Transaction: "shop-1"}, false},
		{"producer", initProducer, kafkatest.Names{Transaction: "shopping"}, true},
		{"consumer", fetch, kafkatest.Names{Topic: "orders"}, false},
		{"consumer", fetch, kafkatest.Names{Topic: "orders-2"}, true},
		{"consumer", produce, kafkatest.Names{Topic: "orders"}, true},
		{"consumer", heartbeat, kafkatest.Names{Group: "mail-1"}, false},
		{"consumer", heartbeat, kafkatest.Names{Group: "mail"}, true},
		{"admin", produce, kafkatest.Names{Topic: "payments"}, false},
		{"admin", fetch, kafkatest.Names{Topic: "sluice.bulk.events"}, false},
		{"admin", produce, kafkatest.Names{Topic: "sluice.bulk.events"}, true},
		{"node", produce, kafkatest.Names{Topic: "sluice.bulk.events"}, false},
		{"node", fetch, kafkatest.Names{Topic: "sluice.bulk.events"}, false},
	} {
		if test.names.Topic != "" {
			made, err := s.broker.Topic(test.names.Topic)
			if err != nil {
				t.Fatal(err)
			}
			test.names.TopicID = made.ID()
		}
		refused := s.codes(clients[test.who], kafkatest.Request(test.key, 0, test.names))
		if len(refused) > 0 != test.wantRefused {
			t.Errorf("%s by %s for %v: codes %v, want that it is refused: %v", kmsg.NameForKey(test.key), test.who, test.names, refused, test.wantRefused)
		}
	}
}

// A token that is revoked or expires loses its connections, and cannot authenticate again.
func TestTokensThatEndLoseTheirKafkaConnections(t *testing.T) {
	s := serveKafka(t)
	names := kafkatest.Names{Topic: "orders", TopicID: s.create("orders").ID()}
	revoked := s.token(access.Principal{Name: "revoked", Roles: []access.Role{access.Consumer}})
	clients := []*kgo.Client{s.client(revoked)}
	if err := clients[0].Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var expires sasl.Mechanism
	for life := 2 * time.Second; len(clients) < 2; life *= 2 { // a busy machine may need longer to authenticate
		end := time.Now().Add(life)
		expires = s.token(access.Principal{Name: "expires-" + life.String(), Roles: []access.Role{access.Consumer}, Expires: end})
		c := s.client(expires)
		switch err := c.Ping(t.Context()); {
		case err == nil:
			clients = append(clients, c)
		case time.Now().Before(end):
			t.Fatal(err)
		}
	}
	lost := make(chan error, 2)
	for _, c := range clients {
		waits := kafkatest.Request(1, 12, names).(*kmsg.FetchRequest)
		waits.MinBytes, waits.MaxWaitMillis, waits.SessionEpoch = 1, int32(until.Limit.Milliseconds()), -1
		waits.Topics[0].Partitions[0].CurrentLeaderEpoch = -1
		go func() {
			_, err := c.SeedBrokers()[0].Request(t.Context(), waits)
			lost <- err
		}()
	}
	if err := s.accounts.Revoke(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-lost; err == nil {
			t.Error("a fetch was answered, want a closed connection")
		}
	}
	for _, mechanism := range []sasl.Mechanism{revoked, expires} {
		if err := s.client(mechanism).Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%v, want %v", err, kerr.SaslAuthenticationFailed)
		}
	}
}

// Nodes of a cluster with accounts publish events to the topics that others lead.
func TestNodesPublishEventsWithAccounts(t *testing.T) {
	const nodes, count = 3, 30
	cluster := storetest.NewCluster(nodes)
	var first *kafkaServer
	var reached topic.Advertised
	for i := range nodes {
		port := ports.Take(t, 1)[0]
		at := topic.Advertised{Host: "127.0.0.1", Port: int32(port)}
		s := serveKafkaOn(t, cluster.Store(int32(i+1)), topic.Config{Partitions: nodes, Advertise: at},
			kafka.Options{Addr: ports.Addr(port), Advertise: ports.Addr(port)})
		if i == 0 {
			first, reached = s, at
		}
	}
	leaders, err := events.NewClusterLog(reached, nil, nodeLogin(clusterOfTests))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leaders.Close)
	happened := make([]bulk.Event, count)
	for i := range happened {
		action := fmt.Sprint("action-", i)
		happened[i] = bulk.Event{ID: fmt.Sprint("event-", i), Type: bulk.ActionPaused, Subject: action, Action: action, Time: time.Now(), Data: []byte("{}")}
	}
	publisher := events.ForBulk(first.broker, leaders, slog.New(slog.DiscardHandler))
	until.Succeeds(t, "the events are published", func() error { return publisher.Publish(t.Context(), happened) })
	offsets, err := kadm.NewClient(first.client(plain.Auth{User: "any", Pass: adminOfTests}.AsMechanism())).ListEndOffsets(t.Context(), events.BulkTopic)
	if err != nil {
		t.Fatal(err)
	}
	got, leading := int64(0), map[int32]bool{}
	offsets.Each(func(o kadm.ListedOffset) { got += o.Offset })
	to, err := first.broker.Topic(events.BulkTopic)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range to.Partitions() {
		leading[p.Leader()] = true
	}
	if got != count || len(leading) < 2 {
		t.Errorf("%d events on nodes %v, want %d on several", got, leading, count)
	}
}
