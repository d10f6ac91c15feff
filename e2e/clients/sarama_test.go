package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// saramaConfig returns sarama's configuration for a version of Kafka, which decides the versions of
// its requests. It waits longer than by default for what takes a moment: topics, and their leaders.
func saramaConfig(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Admin.Timeout = 20 * time.Second
	config.Metadata.Retry.Max, config.Producer.Retry.Max = 200, 200
	return config
}

// saramaSend produces messages, in order.
func saramaSend(t *testing.T, addr string, config *sarama.Config, messages ...*sarama.ProducerMessage) {
	t.Helper()
	producer := must(sarama.NewSyncProducer([]string{addr}, config))(t)
	defer producer.Close()
	if err := producer.SendMessages(messages); err != nil {
		t.Fatal(err)
	}
}

// saramaNumbered returns messages with the values "value from" to "value to-1".
func saramaNumbered(topic string, from, to int, tag string) (messages []*sarama.ProducerMessage) {
	for _, value := range numbered(from, to) {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
		if tag != "" {
			message.Headers = []sarama.RecordHeader{{Key: []byte("tag"), Value: []byte(tag)}}
		}
		messages = append(messages, message)
	}
	return messages
}

// saramaRead reads count messages of partition 0, from an offset on, and fails if there are more.
func saramaRead(t *testing.T, addr string, config *sarama.Config, topic string, offset int64, count int) (messages []*sarama.ConsumerMessage) {
	t.Helper()
	consumer := must(sarama.NewConsumer([]string{addr}, config))(t)
	defer consumer.Close()
	partition := must(consumer.ConsumePartition(topic, 0, offset))(t)
	defer partition.Close()
	timeout := time.After(patience)
	for len(messages) < count {
		select {
		case message := <-partition.Messages():
			messages = append(messages, message)
		case <-timeout:
			t.Fatalf("%d of %d messages", len(messages), count)
		}
	}
	select {
	case message := <-partition.Messages():
		t.Fatalf("a message too many, at offset %d", message.Offset)
	case <-time.After(200 * time.Millisecond):
	}
	return messages
}

func saramaValues(messages []*sarama.ConsumerMessage) (values []string) {
	for _, message := range messages {
		values = append(values, string(message.Value))
	}
	return values
}

// saramaCreate creates a topic and returns a client for administration.
func saramaCreate(t *testing.T, addr string, config *sarama.Config, name string, partitions int32, settings ...string) sarama.ClusterAdmin {
	t.Helper()
	admin := must(sarama.NewClusterAdmin([]string{addr}, config))(t)
	t.Cleanup(func() { admin.Close() })
	entries := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		entries[settings[i]] = &settings[i+1]
	}
	if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: int16(nodes()), ConfigEntries: entries}, false); err != nil {
		t.Fatal(err)
	}
	return admin
}

// sarama reads the records that it sent unchanged, with each codec, as old and new versions of
// Kafka; 0.11 is the first whose Fetch the server supports.
func TestSaramaRecords(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	for _, version := range []sarama.KafkaVersion{sarama.V0_11_0_0, sarama.V1_0_0_0, sarama.V2_1_0_0, sarama.DefaultVersion, sarama.MaxVersion} {
		t.Run(version.String(), func(t *testing.T) {
			config := saramaConfig(version)
			saramaCreate(t, addr, config, "orders"+version.String(), 1)
			var want []*sarama.ProducerMessage
			for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
				if codec == sarama.CompressionZSTD && !version.IsAtLeast(sarama.V2_1_0_0) {
					break
				}
				config.Producer.Compression = codec
				messages := saramaMessages("orders"+version.String(), time.UnixMilli(1_700_000_000_000+int64(codec)))
				saramaSend(t, addr, config, messages...)
				want = append(want, messages...)
			}
			for i, got := range saramaRead(t, addr, config, "orders"+version.String(), sarama.OffsetOldest, len(want)) {
				equal(t, "offset", got.Offset, int64(i))
				equal(t, "contents", saramaText(got.Key, got.Value, got.Timestamp), saramaText(encoded(want[i].Key), encoded(want[i].Value), want[i].Timestamp))
				var headers []sarama.RecordHeader
				for _, header := range got.Headers {
					headers = append(headers, *header)
				}
				equal(t, "headers", headers, want[i].Headers)
			}
		})
	}
}

// saramaMessages returns one message of each kind.
func saramaMessages(topic string, at time.Time) []*sarama.ProducerMessage {
	messages := []*sarama.ProducerMessage{
		{Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder("value")},
		{Key: sarama.StringEncoder("deleted")},
		{Value: sarama.StringEncoder("")},
		{Key: sarama.StringEncoder("long"), Value: sarama.StringEncoder(strings.Repeat("long ", 1000))},
	}
	for _, message := range messages {
		message.Topic, message.Timestamp = topic, at
	}
	messages[0].Headers = []sarama.RecordHeader{{Key: []byte("tag"), Value: []byte("paid")}, {Key: []byte("tag"), Value: nil}, {Key: []byte("empty"), Value: []byte{}}}
	return messages
}

func encoded(encoder sarama.Encoder) []byte {
	if encoder == nil {
		return nil
	}
	bytes, err := encoder.Encode()
	if err != nil {
		panic(err)
	}
	return bytes
}

// saramaText formats a record and distinguishes null from empty.
func saramaText(key, value []byte, at time.Time) string {
	return fmt.Sprintf("%v %q %v %q %d", key == nil, key, value == nil, value, at.UnixMilli())
}

// saramaMember is one member of a group. It commits as it is told to.
type saramaMember struct {
	t *testing.T
	// commitTo is the offset to commit up to, 0 for all.
	commitTo int64
	stop     func()

	mu     sync.Mutex
	claims int
	values []string
}

// Setup counts the partitions that the member has.
func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims = len(session.Claims()["orders"])
	return nil
}

// Cleanup ends a generation.
func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims = 0
	return nil
}

// ConsumeClaim reads one partition.
func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		if m.commitTo == 0 || message.Offset < m.commitTo {
			session.MarkMessage(message, "")
			session.Commit()
		}
		m.mu.Lock()
		m.values = append(m.values, string(message.Value))
		m.mu.Unlock()
	}
	return nil
}

func (m *saramaMember) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.values)
}

func (m *saramaMember) owns() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims
}

// saramaJoin lets a member into the group "readers" until it is stopped.
func saramaJoin(t *testing.T, addr string, config *sarama.Config, topic string, commitTo int64) *saramaMember {
	t.Helper()
	group := must(sarama.NewConsumerGroup([]string{addr}, "readers", config))(t)
	m := &saramaMember{t: t, commitTo: commitTo}
	m.stop = beside(t, func(ctx context.Context) {
		defer group.Close()
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				t.Errorf("consume: %v", err)
				return
			}
		}
	})
	return m
}

// A group resumes where it committed; a second member takes half and gives it back.
func TestSaramaGroup(t *testing.T) {
	t.Parallel()
	for _, version := range []sarama.KafkaVersion{sarama.V0_11_0_0, sarama.DefaultVersion, sarama.MaxVersion} {
		t.Run(version.String(), func(t *testing.T) {
			addr := startServer(t)
			config := saramaConfig(version)
			admin := saramaCreate(t, addr, saramaConfig(sarama.DefaultVersion), "orders", 1)
			saramaSend(t, addr, config, saramaNumbered("orders", 0, 20, "")...)
			first := saramaJoin(t, addr, config, "orders", 12)
			eventually(t, "all is read", func() bool { return len(first.got()) == 20 })
			first.stop()
			second := saramaJoin(t, addr, config, "orders", 0)
			eventually(t, "the rest is read", func() bool { return len(second.got()) >= 8 })
			equal(t, "read", first.got(), numbered(0, 20))
			equal(t, "read on", second.got(), numbered(12, 20))
			second.stop()

			if err := admin.CreatePartitions("orders", 4, nil, false); err != nil {
				t.Fatal(err)
			}
			third, fourth := saramaJoin(t, addr, config, "orders", 0), saramaJoin(t, addr, config, "orders", 0)
			eventually(t, "each has two", func() bool { return third.owns() == 2 && fourth.owns() == 2 })
			for i, message := range saramaNumbered("orders", 20, 24, "") {
				message.Partition = int32(i)
				saramaSend(t, addr, config, message)
			}
			eventually(t, "each has read half", func() bool { return len(third.got()) == 2 && len(fourth.got()) == 2 })
			fourth.stop()
			eventually(t, "the last has all", func() bool { return third.owns() == 4 })
			got := append(third.got(), fourth.got()...)
			slices.Sort(got)
			equal(t, "read by two", got, numbered(20, 24))
		})
	}
}
