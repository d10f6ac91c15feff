package clients

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// adminSecret is the admin token of servers with accounts.
const adminSecret = "the-admin-token-of-the-clients"

// Clients authenticate with a token by each mechanism that they have, and learn that another is wrong.
func TestSASL(t *testing.T) {
	t.Setenv("SLUICE_ACCESS_ADMIN_TOKEN", adminSecret)
	await, _, addr := startNode(t)
	await()
	t.Run("sarama", func(t *testing.T) {
		for _, version := range []int16{sarama.SASLHandshakeV0, sarama.SASLHandshakeV1} {
			must(sarama.NewClient([]string{addr}, saramaPlain(adminSecret, version)))(t).Close()
			if _, err := sarama.NewClient([]string{addr}, saramaPlain("wrong", version)); err == nil {
				t.Errorf("handshake %d: a wrong secret is accepted", version)
			}
		}
		for _, secret := range []string{adminSecret, "wrong"} {
			config := saramaPlain(secret, sarama.SASLHandshakeV1)
			config.Net.SASL.Mechanism, config.Net.SASL.TokenProvider = sarama.SASLTypeOAuth, bearer(secret)
			client, err := sarama.NewClient([]string{addr}, config)
			if (err == nil) != (secret == adminSecret) {
				t.Errorf("OAUTHBEARER with %s: %v", secret, err)
			}
			if err == nil {
				client.Close()
			}
		}
	})
	t.Run("kafka-go", func(t *testing.T) {
		for _, secret := range []string{adminSecret, "wrong"} {
			for _, mechanism := range []sasl.Mechanism{
				plain.Mechanism{Username: "admin", Password: secret}, must(scram.Mechanism(scram.SHA256, "admin", secret))(t), must(scram.Mechanism(scram.SHA512, "admin", secret))(t),
			} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				conn, err := (&kafka.Dialer{SASLMechanism: mechanism}).DialContext(ctx, "tcp", addr)
				if err == nil {
					_, err = conn.ReadPartitions()
					conn.Close()
				}
				cancel()
				if secret == adminSecret && err != nil || secret != adminSecret && !errors.Is(err, kafka.SASLAuthenticationFailed) {
					t.Errorf("%s with %s: %v", mechanism.Name(), secret, err)
				}
			}
		}
	})
	const clerkPassword = "the password of the clerk"
	makeClerk(t, addr, clerkPassword)
	t.Setenv("BROKER", addr)
	t.Setenv("SECRET", adminSecret)
	t.Setenv("CLERK", clerkPassword)
	t.Run("python", func(t *testing.T) { run(t, "python", "/usr/bin/python3", "sasl.py") })
	t.Run("kafkajs", func(t *testing.T) { runKafkaJS(t, "sasl.test.js") })
	t.Run("librdkafka", func(t *testing.T) { run(t, "", compiled(t, "acls.c")) })
	t.Run("confluent-kafka-go", func(t *testing.T) {
		confluentAccessLists(t, addr, clerkPassword)
		confluentUsers(t, addr, clerkPassword) // the last with that password
	})
	t.Run("users of kafka-go", func(t *testing.T) { kafkagoUsers(t, addr) })
	t.Run("quotas of kafka-go", func(t *testing.T) { kafkagoQuotas(t, addr) })
	t.Run("users and access lists", func(t *testing.T) { usersAndAccessLists(t, addr) }) // the others expect no topics
	t.Run("quotas", func(t *testing.T) { quotas(t, addr) })
}

// usersAndAccessLists makes a user and gives it a right with the admin clients of sarama and kafka-go. The user then writes
// with kafka-go, until it is denied.
func usersAndAccessLists(t *testing.T, addr string) {
	admin := must(sarama.NewClusterAdmin([]string{addr}, saramaPlain(adminSecret, sarama.SASLHandshakeV1)))(t)
	defer admin.Close()
	if err := admin.CreateTopic("lists", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
	user := sarama.AlterUserScramCredentialsUpsert{Name: "till", Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 8192, Salt: []byte("salt of the till"), Password: []byte("secret")}
	for _, result := range must(admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{user}))(t) {
		equal(t, "a user that was made", result.ErrorCode, sarama.ErrNoError)
	}
	described := must(admin.DescribeUserScramCredentials([]string{"till"}))(t)
	equal(t, "the iterations of the user", described[0].CredentialInfos[0].Iterations, int32(8192))
	topicOf := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: "lists", ResourcePatternType: sarama.AclPatternLiteral}
	allowed := sarama.Acl{Principal: "User:till", Host: "*", Operation: sarama.AclOperationWrite, PermissionType: sarama.AclPermissionAllow}
	if err := admin.CreateACLs([]*sarama.ResourceAcls{{Resource: topicOf, Acls: []*sarama.Acl{&allowed}}}); err != nil {
		t.Fatal(err)
	}
	mechanism := must(scram.Mechanism(scram.SHA512, "till", "secret"))(t)
	transport := &kafka.Transport{SASL: mechanism}
	defer transport.CloseIdleConnections()
	write := func() error {
		w := &kafka.Writer{Addr: kafka.TCP(addr), Topic: "lists", Transport: transport, BatchSize: 1, MaxAttempts: 1, RequiredAcks: kafka.RequireAll}
		defer w.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := w.WriteMessages(ctx, kafka.Message{Value: []byte("a record")})
		if all := (kafka.WriteErrors{}); errors.As(err, &all) {
			return errors.Join(all...)
		}
		return err
	}
	if err := write(); err != nil {
		t.Errorf("with an access list: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	second := &kafka.Client{Addr: kafka.TCP(addr), Transport: &kafka.Transport{SASL: plain.Mechanism{Username: "admin", Password: adminSecret}}}
	created := must(second.CreateACLs(ctx, &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: "li", ResourcePatternType: kafka.PatternTypePrefixed,
		Principal: "User:*", Host: "127.0.0.1", Operation: kafka.ACLOperationTypeAll, PermissionType: kafka.ACLPermissionTypeDeny,
	}}}))(t)
	equal(t, "errors of a denial", created.Errors, []error{nil})
	if err := write(); !errors.Is(err, kafka.TopicAuthorizationFailed) {
		t.Errorf("denied: %v", err)
	}
	filter := sarama.AclFilter{ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny}
	equal(t, "resources with access lists", len(must(admin.ListAcls(filter))(t)), 2)
	equal(t, "access lists that were removed", len(must(admin.DeleteACL(filter, false))(t)), 2)
}

// quotas sets a quota of the admin token with sarama's admin client, and asks whether a producer is told to wait.
func quotas(t *testing.T, addr string) {
	admin := must(sarama.NewClusterAdmin([]string{addr}, saramaPlain(adminSecret, sarama.SASLHandshakeV1)))(t)
	defer admin.Close()
	of := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: "admin"}}
	rate := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1000}
	for _, validateOnly := range []bool{true, false} {
		if err := admin.AlterClientQuotas(of, rate, validateOnly); err != nil {
			t.Fatal(err)
		}
		all := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchAny}}
		equal(t, "there is no quota", len(must(admin.DescribeClientQuotas(all, true))(t)) == 0, validateOnly)
	}
	id := strings.Repeat("-", 500)
	request := &sarama.ProduceRequest{RequiredAcks: sarama.WaitForAll, Timeout: 1000, Version: 3, TransactionalID: &id}
	for _, limited := range []bool{true, false} {
		broker := sarama.NewBroker(addr)
		if err := broker.Open(saramaPlain(adminSecret, sarama.SASLHandshakeV1)); err != nil {
			t.Fatal(err)
		}
		equal(t, "the producer has to wait", must(broker.Produce(request))(t).ThrottleTime > 0, limited)
		broker.Close()
		rate.Remove = true
		if err := admin.AlterClientQuotas(of, rate, false); err != nil {
			t.Error(err)
		}
	}
}

// bearer provides a token.
type bearer string

// Token implements sarama.AccessTokenProvider.
func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(b)}, nil
}

// saramaPlain returns sarama's configuration for PLAIN.
func saramaPlain(secret string, handshake int16) *sarama.Config {
	config := saramaConfig(sarama.V3_0_0_0)
	config.Metadata.Retry.Max = 0
	config.ApiVersionsRequest = handshake == sarama.SASLHandshakeV1
	config.Net.SASL.Enable, config.Net.SASL.Version = true, handshake
	config.Net.SASL.User, config.Net.SASL.Password = "admin", secret
	return config
}
