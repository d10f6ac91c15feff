package clients

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// adminSecret is the admin token of servers with accounts.
const adminSecret = "the-admin-token-of-the-clients"

// login is an account of the tests, and how it is refused to create or delete topics.
type login struct {
	name, secret string
	refused      error // as kafka-go has it
}

// logins makes the tokens viewer, which has no right to create a topic, and late, which has expired.
func (s secured) logins(t *testing.T) []login {
	t.Helper()
	secrets, end := map[string]string{}, time.Time{}
	for _, name := range []string{"viewer", "late"} {
		eventually(t, "the token "+name+" is made", func() bool { // on a busy machine its time may be over before the server reads of it
			body := `{"name":"viewer","roles":["viewer"]}`
			if name == "late" {
				end = time.Now().Add(2 * time.Second)
				body = `{"name":"late","roles":["admin"],"expires":"` + end.UTC().Format(time.RFC3339Nano) + `"}`
			}
			status, answer := s.do(t, http.MethodPost, "/v1/tokens", body)
			var made struct{ Secret string }
			if status != http.StatusCreated || json.Unmarshal(answer, &made) != nil {
				return false
			}
			secrets[name] = made.Secret
			return true
		})
	}
	eventually(t, "the token has expired", func() bool { return time.Now().After(end) })
	return []login{
		{"admin", adminSecret, nil},
		{"viewer", secrets["viewer"], kafka.TopicAuthorizationFailed},
		{"admin", "wrong", kafka.SASLAuthenticationFailed},
		{"late", secrets["late"], kafka.SASLAuthenticationFailed},
	}
}

// Clients authenticate over TLS by each mechanism that they have, and report Kafka's codes: of a wrong secret, of a token that has expired, and of a
// right that an account lacks.
func TestSASL(t *testing.T) {
	a := &authority{folder: t.TempDir()}
	a.issue(t, "ca")
	s := a.serve(t, nil)
	const clerkPassword = "the password of the clerk"
	makeClerk(t, s, clerkPassword)
	logins := s.logins(t)
	t.Run("sarama", func(t *testing.T) { saramaLogins(t, s, logins) })
	t.Run("kafka-go", func(t *testing.T) { kafkagoLogins(t, s, logins) })
	t.Setenv("BROKER", s.addr)
	t.Setenv("CERTIFICATES", a.folder)
	t.Setenv("SECRET", adminSecret)
	t.Setenv("VIEWER", logins[1].secret)
	t.Setenv("EXPIRED", logins[3].secret)
	t.Setenv("CLERK", clerkPassword)
	t.Run("python", func(t *testing.T) { run(t, "python", "/usr/bin/python3", "sasl.py") })
	t.Run("kafkajs", func(t *testing.T) { runKafkaJS(t, "sasl.test.js") })
	t.Run("librdkafka", func(t *testing.T) { run(t, "", compiled(t, "acls.c")) })
	t.Run("confluent-kafka-go", func(t *testing.T) {
		confluentAccessLists(t, s, clerkPassword)
		confluentUsers(t, s, clerkPassword) // the last with that password
	})
	t.Run("users of kafka-go", func(t *testing.T) { kafkagoUsers(t, s) })
	t.Run("quotas of kafka-go", func(t *testing.T) { kafkagoQuotas(t, s) })
	t.Run("users and access lists", func(t *testing.T) { usersAndAccessLists(t, s) }) // the others expect no topics
	t.Run("quotas", func(t *testing.T) { quotas(t, s) })
}

// saramaLogins asks whether a topic could be created, with each login: by PLAIN, as old and new clients send it, and by OAUTHBEARER.
func saramaLogins(t *testing.T, s secured, logins []login) {
	codes := map[error]error{kafka.TopicAuthorizationFailed: sarama.ErrTopicAuthorizationFailed, kafka.SASLAuthenticationFailed: sarama.ErrSASLAuthenticationFailed}
	for _, as := range logins {
		old, plain, oauth := saramaPlain(s, as.secret, sarama.SASLHandshakeV0), saramaPlain(s, as.secret, sarama.SASLHandshakeV1), saramaPlain(s, as.secret, sarama.SASLHandshakeV1)
		oauth.Net.SASL.Mechanism, oauth.Net.SASL.TokenProvider = sarama.SASLTypeOAuth, bearer(as.secret)
		for i, config := range []*sarama.Config{old, plain, oauth} {
			err := saramaCreates(s, config)
			if i == 0 && errors.Is(as.refused, kafka.SASLAuthenticationFailed) { // this version of PLAIN has no codes: the connection ends
				if err == nil {
					t.Errorf("the first version of PLAIN, %s with %s: accepted", as.name, as.secret)
				}
			} else if !errors.Is(err, codes[as.refused]) {
				t.Errorf("%s of version %d, %s with %s: %v, want %v", config.Net.SASL.Mechanism, config.Net.SASL.Version, as.name, as.secret, err, codes[as.refused])
			}
		}
	}
}

func saramaCreates(s secured, config *sarama.Config) error {
	admin, err := sarama.NewClusterAdmin([]string{s.addr}, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic("could-be", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, true)
}

// kafkagoLogins deletes a topic that does not exist, with each login and by each mechanism. This client waits for topics that it has created, also if they
// were only validated.
func kafkagoLogins(t *testing.T, s secured, logins []login) {
	for _, as := range logins {
		for _, mechanism := range []sasl.Mechanism{
			plain.Mechanism{Username: as.name, Password: as.secret}, must(scram.Mechanism(scram.SHA256, as.name, as.secret))(t), must(scram.Mechanism(scram.SHA512, as.name, as.secret))(t),
			bearer(as.secret),
		} {
			err := kafkagoDeletes(t, s, mechanism)
			if !errors.Is(err, as.refused) {
				t.Errorf("%s, %s with %s: %v, want %v", mechanism.Name(), as.name, as.secret, err, as.refused)
			}
		}
	}
}

func kafkagoDeletes(t *testing.T, s secured, mechanism sasl.Mechanism) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := (&kafka.Dialer{TLS: s.tls, SASLMechanism: mechanism}).DialContext(ctx, "tcp", s.addr) // a Client repeats a refused login until its time is over
	if err != nil {
		return err
	}
	conn.Close()
	answer := must(kafkagoAs(t, s, mechanism).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{"none"}}))(t)
	if err = answer.Errors["none"]; errors.Is(err, kafka.UnknownTopicOrPartition) {
		return nil // the right is there
	}
	return err
}

// usersAndAccessLists makes a user and gives it a right with the admin clients of sarama and kafka-go. The user then writes
// with kafka-go, until it is denied.
func usersAndAccessLists(t *testing.T, s secured) {
	admin := must(sarama.NewClusterAdmin([]string{s.addr}, saramaPlain(s, adminSecret, sarama.SASLHandshakeV1)))(t)
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
	transport := &kafka.Transport{TLS: s.tls, SASL: mechanism}
	defer transport.CloseIdleConnections()
	write := func() error {
		w := &kafka.Writer{Addr: kafka.TCP(s.addr), Topic: "lists", Transport: transport, BatchSize: 1, MaxAttempts: 1, RequiredAcks: kafka.RequireAll}
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
	second := &kafka.Client{Addr: kafka.TCP(s.addr), Transport: &kafka.Transport{TLS: s.tls, SASL: plain.Mechanism{Username: "admin", Password: adminSecret}}}
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
func quotas(t *testing.T, s secured) {
	admin := must(sarama.NewClusterAdmin([]string{s.addr}, saramaPlain(s, adminSecret, sarama.SASLHandshakeV1)))(t)
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
		broker := sarama.NewBroker(s.addr)
		if err := broker.Open(saramaPlain(s, adminSecret, sarama.SASLHandshakeV1)); err != nil {
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

// bearer is a token of OAUTHBEARER.
type bearer string

// Token implements sarama.AccessTokenProvider.
func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(b)}, nil
}

// Name implements sasl.Mechanism of kafka-go, which has no OAUTHBEARER itself.
func (b bearer) Name() string { return "OAUTHBEARER" }

// Start implements sasl.Mechanism.
func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return b, []byte("n,,\x01auth=Bearer " + string(b) + "\x01\x01"), nil
}

// Next implements sasl.StateMachine: a challenge has the reason of a refusal, and a client answers it by 0x01 to be told the code.
func (b bearer) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	return len(challenge) == 0, []byte{1}, nil
}

// saramaPlain returns sarama's configuration for PLAIN.
func saramaPlain(s secured, secret string, handshake int16) *sarama.Config {
	config := saramaConfig(sarama.V3_0_0_0)
	config.Metadata.Retry.Max = 0
	config.ApiVersionsRequest = handshake == sarama.SASLHandshakeV1
	config.Net.TLS.Enable, config.Net.TLS.Config = true, s.tls
	config.Net.SASL.Enable, config.Net.SASL.Version = true, handshake
	config.Net.SASL.User, config.Net.SASL.Password = "admin", secret
	return config
}
