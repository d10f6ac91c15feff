package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// confluent-kafka-go brings a librdkafka that is newer than Debian's: with users of SCRAM, and with the consumer protocol.

// confluentUser returns an admin client that authenticates as a user.
func confluentUser(t *testing.T, s secured, mechanism, user, secret string) *kafka.AdminClient {
	t.Helper()
	admin := must(kafka.NewAdminClient(&kafka.ConfigMap{
		"bootstrap.servers": s.addr, "security.protocol": "SASL_SSL", "ssl.ca.location": s.ca, "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": secret,
	}))(t)
	t.Cleanup(admin.Close)
	return admin
}

// wantConfluent checks the code of an error.
func wantConfluent(t *testing.T, what string, got error, want kafka.ErrorCode) {
	t.Helper()
	failed := kafka.Error{}
	if errors.As(got, &failed); failed.Code() != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// scramUser is what makes a user, or changes its password.
func scramUser(name string, mechanism kafka.ScramMechanism, iterations int, password string) kafka.UserScramCredentialUpsertion {
	return kafka.UserScramCredentialUpsertion{User: name, Password: []byte(password), ScramCredentialInfo: kafka.ScramCredentialInfo{Mechanism: mechanism, Iterations: iterations}}
}

// makeClerk makes the user clerk, who has no right.
func makeClerk(t *testing.T, s secured, password string) {
	t.Helper()
	admin := confluentUser(t, s, "PLAIN", "admin", adminSecret)
	made := must(admin.AlterUserScramCredentials(t.Context(), []kafka.UserScramCredentialUpsertion{
		scramUser("clerk", kafka.ScramMechanismSHA256, 4096, password), scramUser("clerk", kafka.ScramMechanismSHA512, 8192, password),
	}, nil))(t)
	wantConfluent(t, "make a user", made.Errors["clerk"], kafka.ErrNoError)
}

// confluentUsers describes and changes users of SCRAM, as the admin token and as a user without rights.
func confluentUsers(t *testing.T, s secured, password string) {
	admin, clerk := confluentUser(t, s, "PLAIN", "admin", adminSecret), confluentUser(t, s, "SCRAM-SHA-512", "clerk", password)
	described := func() []kafka.ScramCredentialInfo {
		t.Helper()
		all := must(admin.DescribeUserScramCredentials(t.Context(), []string{"clerk", "nobody"}))(t).Descriptions
		wantConfluent(t, "a user that does not exist", all["nobody"].Error, kafka.ErrResourceNotFound)
		return all["clerk"].ScramCredentialInfos
	}
	both := []kafka.ScramCredentialInfo{{Mechanism: kafka.ScramMechanismSHA256, Iterations: 4096}, {Mechanism: kafka.ScramMechanismSHA512, Iterations: 8192}}
	equal(t, "the user", described(), both)
	alter := func(by *kafka.AdminClient, iterations int) error {
		t.Helper()
		change := []kafka.UserScramCredentialUpsertion{scramUser("clerk", kafka.ScramMechanismSHA256, iterations, "another")}
		return must(by.AlterUserScramCredentials(t.Context(), change, nil))(t).Errors["clerk"]
	}
	wantConfluent(t, "alter without the right", alter(clerk, 4096), kafka.ErrClusterAuthorizationFailed)
	wantConfluent(t, "too few iterations", alter(admin, 4095), kafka.ErrUnacceptableCredential)
	equal(t, "the user after refused changes", described(), both)
	wantConfluent(t, "alter", alter(admin, 5000), kafka.ErrNoError)
	removed := must(admin.AlterUserScramCredentials(t.Context(), nil, []kafka.UserScramCredentialDeletion{{User: "clerk", Mechanism: kafka.ScramMechanismSHA512}}))(t)
	wantConfluent(t, "remove a password", removed.Errors["clerk"], kafka.ErrNoError)
	equal(t, "the user in the end", described(), []kafka.ScramCredentialInfo{{Mechanism: kafka.ScramMechanismSHA256, Iterations: 5000}})
}

// confluentAccessLists gives a user topics with access lists, and takes them away.
func confluentAccessLists(t *testing.T, s secured, password string) {
	admin, clerk := confluentUser(t, s, "PLAIN", "admin", adminSecret), confluentUser(t, s, "SCRAM-SHA-256", "clerk", password)
	create := func(topic string) error {
		t.Helper()
		return must(clerk.CreateTopics(t.Context(), []kafka.TopicSpecification{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}))(t)[0].Error
	}
	every := kafka.ACLBindingFilter{
		Type: kafka.ResourceAny, ResourcePatternType: kafka.ResourcePatternTypeAny, Principal: "User:clerk",
		Operation: kafka.ACLOperationAny, PermissionType: kafka.ACLPermissionTypeAny,
	}
	allow := kafka.ACLBinding{
		Type: kafka.ResourceTopic, Name: "rdkafka", ResourcePatternType: kafka.ResourcePatternTypePrefixed, Principal: "User:clerk", Host: "*",
		Operation: kafka.ACLOperationAll, PermissionType: kafka.ACLPermissionTypeAllow,
	}
	deny := allow
	deny.Name, deny.ResourcePatternType = "rdkafka-closed", kafka.ResourcePatternTypeLiteral
	deny.Operation, deny.PermissionType = kafka.ACLOperationCreate, kafka.ACLPermissionTypeDeny
	acls := kafka.ACLBindings{allow, deny}

	for _, result := range must(clerk.CreateACLs(t.Context(), acls))(t) {
		wantConfluent(t, "create access lists without the right", result.Error, kafka.ErrClusterAuthorizationFailed)
	}
	wantConfluent(t, "delete access lists without the right", must(clerk.DeleteACLs(t.Context(), kafka.ACLBindingFilters{every}))(t)[0].Error, kafka.ErrClusterAuthorizationFailed)
	wantConfluent(t, "without access lists", create("rdkafka"), kafka.ErrTopicAuthorizationFailed)
	for _, result := range must(admin.CreateACLs(t.Context(), acls))(t) {
		wantConfluent(t, "create access lists", result.Error, kafka.ErrNoError)
	}
	wantConfluent(t, "allowed", create("rdkafka"), kafka.ErrNoError)
	wantConfluent(t, "denied", create("rdkafka-closed"), kafka.ErrTopicAuthorizationFailed)
	wantConfluent(t, "delete the topic", must(clerk.DeleteTopics(t.Context(), []string{"rdkafka"}))(t)[0].Error, kafka.ErrNoError)
	described := must(admin.DescribeACLs(t.Context(), every))(t).ACLBindings
	slices.SortFunc(described, func(a, b kafka.ACLBinding) int { return len(a.Name) - len(b.Name) })
	equal(t, "access lists", described, acls)
	equal(t, "deleted", len(must(admin.DeleteACLs(t.Context(), kafka.ACLBindingFilters{every}))(t)[0].ACLBindings), 2)
	equal(t, "left", len(must(admin.DescribeACLs(t.Context(), every))(t).ACLBindings), 0)
}

// confluentMember is a member of a group of the consumer protocol that reads "orders".
type confluentMember struct {
	*kafka.Consumer
	leave func()
	mu    sync.Mutex
	read  []string
}

func confluentJoin(t *testing.T, addr string) *confluentMember {
	t.Helper()
	m := &confluentMember{Consumer: must(kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": addr, "group.id": "readers", "group.protocol": "consumer", "auto.offset.reset": "earliest",
		"enable.auto.commit": false, "fetch.wait.max.ms": 100,
	}))(t)}
	if err := m.Subscribe("orders", nil); err != nil {
		t.Fatal(err)
	}
	m.leave = sync.OnceFunc(beside(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			if message, ok := m.Poll(100).(*kafka.Message); ok && message.TopicPartition.Error == nil {
				m.mu.Lock()
				m.read = append(m.read, string(message.Value))
				m.mu.Unlock()
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(m.leave)
	return m
}

func (m *confluentMember) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.read)
}

// has returns how many partitions the member has.
func (m *confluentMember) has(t *testing.T) int {
	t.Helper()
	return len(must(m.Assignment())(t))
}

// confluentWriter returns a transactional producer for "orders", which is made.
func confluentWriter(t *testing.T, addr string) *kafka.Producer {
	t.Helper()
	producer := must(kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": addr, "transactional.id": "till"}))(t)
	t.Cleanup(producer.Close)
	admin := must(kafka.NewAdminClientFromProducer(producer))(t)
	defer admin.Close()
	created := must(admin.CreateTopics(t.Context(), []kafka.TopicSpecification{{Topic: "orders", NumPartitions: 4, ReplicationFactor: nodes()}}))(t)
	wantConfluent(t, "create a topic", created[0].Error, kafka.ErrNoError)
	if err := producer.InitTransactions(t.Context()); err != nil {
		t.Fatal(err)
	}
	return producer
}

// confluentWrite sends "value from" to "value to-1" in a transaction, with the offset 7 of partition 0 for a member if there is one.
func confluentWrite(ctx context.Context, producer *kafka.Producer, from, to int, reader *kafka.ConsumerGroupMetadata) error {
	err := producer.BeginTransaction()
	for i := from; i < to && err == nil; i++ {
		place := kafka.TopicPartition{Topic: pointer("orders"), Partition: int32(i % 4)}
		err = producer.Produce(&kafka.Message{TopicPartition: place, Value: fmt.Append(nil, "value ", i)}, nil)
	}
	if err == nil && reader != nil {
		err = producer.SendOffsetsToTransaction(ctx, []kafka.TopicPartition{{Topic: pointer("orders"), Partition: 0, Offset: 7}}, reader)
	}
	if err == nil {
		err = producer.CommitTransaction(ctx)
	}
	return err
}

// Members of a group of the consumer protocol (KIP-848) share their partitions. A transaction that commits offsets for one of them
// counts, and one for a member that has left does not.
func TestLibrdkafkaConsumerProtocol(t *testing.T) {
	t.Setenv("SLUICE_TOPIC_CONSUMER_HEARTBEAT", "200ms")
	addr := startServer(t)
	producer := confluentWriter(t, addr)
	write := func(from, to int, reader *kafka.ConsumerGroupMetadata) error {
		return confluentWrite(t.Context(), producer, from, to, reader)
	}
	if err := write(0, 40, nil); err != nil {
		t.Fatal(err)
	}
	first := confluentJoin(t, addr)
	eventually(t, "all is read", func() bool { return len(first.got()) == 40 })
	admin := must(kafka.NewAdminClientFromProducer(producer))(t)
	defer admin.Close()
	groups := must(admin.ListConsumerGroups(t.Context(), kafka.SetAdminMatchConsumerGroupTypes([]kafka.ConsumerGroupType{kafka.ConsumerGroupTypeConsumer})))(t)
	equal(t, "groups", []any{len(groups.Valid), groups.Valid[0].GroupID, groups.Valid[0].Type}, []any{1, "readers", kafka.ConsumerGroupTypeConsumer})
	must(first.Commit())(t)
	second := confluentJoin(t, addr)
	eventually(t, "each has two partitions", func() bool { return first.has(t) == 2 && second.has(t) == 2 })
	if err := write(40, 48, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each has read half", func() bool { return len(first.got()) == 44 && len(second.got()) == 4 })
	gone := must(first.GetConsumerGroupMetadata())(t)
	must(first.Commit())(t)
	first.leave()
	eventually(t, "the last has all", func() bool { return second.has(t) == 4 })
	failed := kafka.Error{}
	if err := write(100, 104, gone); !errors.As(err, &failed) || !failed.TxnRequiresAbort() {
		t.Fatalf("offsets for a member that has left: %v", err)
	}
	if err := producer.AbortTransaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(48, 52, must(second.GetConsumerGroupMetadata())(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rest is read", func() bool { return len(second.got()) == 8 })
	read := append(first.got(), second.got()...)
	slices.Sort(read)
	want := numbered(0, 52)
	slices.Sort(want)
	equal(t, "read once", read, want)
	committed := must(second.Committed([]kafka.TopicPartition{{Topic: pointer("orders"), Partition: 0}}, int(patience.Milliseconds())))(t)
	equal(t, "committed by a transaction", committed[0].Offset, kafka.Offset(7))
}
