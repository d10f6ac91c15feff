package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafkago runs the tests' operations with kafka-go.
type kafkago struct{ addr string }

// client returns a client for administration. It answers metadata requests from a cache, by default
// one of six seconds.
func (k kafkago) client(t *testing.T) *kafka.Client {
	transport := &kafka.Transport{MetadataTTL: 50 * time.Millisecond}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(k.addr), Transport: transport, Timeout: patience}
}

// create creates a topic.
func (k kafkago) create(t *testing.T, topic string, partitions int, settings ...string) {
	t.Helper()
	config := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: nodes()}
	for i := 0; i < len(settings); i += 2 {
		config.ConfigEntries = append(config.ConfigEntries, kafka.ConfigEntry{ConfigName: settings[i], ConfigValue: settings[i+1]})
	}
	response := must(k.client(t).CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}}))(t)
	if err := response.Errors[topic]; err != nil {
		t.Fatal(err)
	}
}

// send produces messages, in order, each to the partition that it names.
func (k kafkago) send(t *testing.T, topic string, codec kafka.Compression, messages ...kafka.Message) {
	t.Helper()
	writer := &kafka.Writer{
		Addr: kafka.TCP(k.addr), Topic: topic, Compression: codec, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond, BatchSize: 1000, MaxAttempts: 100,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.Partition }),
	}
	defer writer.Close()
	if err := writer.WriteMessages(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
}

func (k kafkago) numbered(from, to int, tag string) (messages []kafka.Message) {
	for _, value := range numbered(from, to) {
		message := kafka.Message{Value: []byte(value)}
		if tag != "" {
			message.Headers = []kafka.Header{{Key: "tag", Value: []byte(tag)}}
		}
		messages = append(messages, message)
	}
	return messages
}

// reader returns a reader of a group, or of partition 0 if group is empty.
func (k kafkago) reader(t *testing.T, topic, group string) *kafka.Reader {
	t.Helper()
	config := kafka.ReaderConfig{
		Brokers: []string{k.addr}, Topic: topic, GroupID: group, MaxWait: 200 * time.Millisecond, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 100 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond, ReadBackoffMax: 200 * time.Millisecond,
	}
	if group == "" {
		config.StartOffset = 0
	}
	reader := kafka.NewReader(config)
	t.Cleanup(func() { reader.Close() })
	return reader
}

// read reads count messages, and fails if more arrive at once.
func (k kafkago) read(t *testing.T, reader *kafka.Reader, count int) (messages []kafka.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(messages) < count {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(messages), count, err)
		}
		messages = append(messages, message)
	}
	quiet, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if message, err := reader.FetchMessage(quiet); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("after all, offset %d and %v", message.Offset, err)
	}
	return messages
}

func (k kafkago) values(messages []kafka.Message) (values []string) {
	for _, message := range messages {
		values = append(values, string(message.Value))
	}
	return values
}

// kafka-go reads the records that it sent unchanged, with each codec.
func TestKafkaGoRecords(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	k.create(t, "orders", 1)
	var want []kafka.Message
	for codec := kafka.Compression(0); codec <= kafka.Zstd; codec++ {
		messages := []kafka.Message{
			{Key: []byte("key"), Value: []byte("value"), Headers: []kafka.Header{{Key: "tag", Value: []byte("paid")}, {Key: "tag", Value: nil}, {Key: "empty", Value: []byte{}}}},
			{Key: []byte("deleted"), Value: nil},
			{Key: []byte{}, Value: []byte{}},
			{Key: []byte("long"), Value: []byte(strings.Repeat("long ", 1000))},
		}
		for i := range messages {
			messages[i].Time = time.UnixMilli(1_700_000_000_000 + int64(codec))
		}
		k.send(t, "orders", codec, messages...)
		want = append(want, messages...)
	}
	// The reader does not distinguish empty from null.
	text := func(m kafka.Message) string {
		return fmt.Sprintf("%q %q %q %d", m.Key, m.Value, m.Headers, m.Time.UnixMilli())
	}
	for i, got := range k.read(t, k.reader(t, "orders", ""), len(want)) {
		equal(t, "offset", got.Offset, int64(i))
		equal(t, "contents", text(got), text(want[i]))
	}
}

// Seeking goes to an offset and to the first message of a time.
func TestKafkaGoSeek(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	k.create(t, "orders", 1)
	messages := k.numbered(0, 20, "")
	start := time.UnixMilli(1_700_000_000_000)
	for i := range messages {
		messages[i].Time = start.Add(time.Duration(i) * time.Second)
	}
	k.send(t, "orders", kafka.Lz4, messages...)
	reader := k.reader(t, "orders", "")
	equal(t, "from the start", k.values(k.read(t, reader, 20)), numbered(0, 20))
	if err := reader.SetOffset(13); err != nil {
		t.Fatal(err)
	}
	equal(t, "from an offset", k.values(k.read(t, reader, 7)), numbered(13, 20))
	for at, from := range map[time.Duration]int{5 * time.Second: 5, 5*time.Second + time.Millisecond: 6} {
		if err := reader.SetOffsetAt(t.Context(), start.Add(at)); err != nil {
			t.Fatal(err)
		}
		equal(t, "from a time", k.values(k.read(t, reader, 20-from)), numbered(from, 20))
	}
	if err := reader.SetOffset(kafka.LastOffset); err != nil {
		t.Fatal(err)
	}
	k.read(t, reader, 0)
}

// kafkagoMember reads in the group "readers" and commits what it has read.
type kafkagoMember struct {
	stop func()

	mu     sync.Mutex
	values []string
}

func (m *kafkagoMember) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.values)
}

func (k kafkago) join(t *testing.T) *kafkagoMember {
	t.Helper()
	reader, m := k.reader(t, "orders", "readers"), &kafkagoMember{}
	m.stop = beside(t, func(ctx context.Context) {
		defer reader.Close()
		for {
			message, err := reader.ReadMessage(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			m.mu.Lock()
			m.values = append(m.values, string(message.Value))
			m.mu.Unlock()
		}
	})
	return m
}

// shares returns how many partitions each member of the group has, once it is
// stable.
func (k kafkago) shares(t *testing.T, client *kafka.Client) (shares []int) {
	t.Helper()
	response := must(client.DescribeGroups(t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{"readers"}}))(t)
	for _, member := range response.Groups[0].Members {
		if response.Groups[0].GroupState != "Stable" {
			return nil
		}
		count := 0
		for _, topic := range member.MemberAssignments.Topics {
			count += len(topic.Partitions)
		}
		shares = append(shares, count)
	}
	return shares
}

// A group resumes where it committed; a second member takes half and gives it back.
func TestKafkaGoGroup(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	k.create(t, "orders", 4)
	k.send(t, "orders", 0, k.numbered(0, 20, "")...)
	first := k.reader(t, "orders", "readers")
	messages := k.read(t, first, 20)
	if err := first.CommitMessages(t.Context(), messages[11]); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := k.reader(t, "orders", "readers")
	messages = k.read(t, second, 8)
	equal(t, "read on", k.values(messages), numbered(12, 20))
	if err := second.CommitMessages(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	second.Close()

	client := k.client(t)
	third, fourth := k.join(t), k.join(t)
	eventually(t, "each has two", func() bool { return slices.Equal(k.shares(t, client), []int{2, 2}) })
	messages = k.numbered(20, 24, "")
	for i := range messages {
		messages[i].Partition = i
	}
	k.send(t, "orders", 0, messages...)
	eventually(t, "each has read half", func() bool { return len(third.got()) == 2 && len(fourth.got()) == 2 })
	fourth.stop()
	eventually(t, "the last has all", func() bool { return slices.Equal(k.shares(t, client), []int{4}) })
	got := append(third.got(), fourth.got()...)
	slices.Sort(got)
	equal(t, "read by two", got, numbered(20, 24))
}

// A view is read past 20,000 hidden records, and past a hidden end.
func TestKafkaGoView(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	k.create(t, "orders", 1)
	k.create(t, "paid", -1, "sluice.view.of", "orders", "sluice.view.where", `headers.tag == "paid"`)
	k.send(t, "orders", kafka.Zstd, k.numbered(0, 10, "paid")...)
	k.send(t, "orders", kafka.Zstd, k.numbered(10, 20_010, "open")...)
	k.send(t, "orders", kafka.Zstd, k.numbered(20_010, 20_020, "paid")...)
	k.send(t, "orders", kafka.Zstd, k.numbered(20_020, 40_020, "open")...)
	want := append(numbered(0, 10), numbered(20_010, 20_020)...)
	messages := k.read(t, k.reader(t, "paid", ""), 20)
	equal(t, "view", k.values(messages), want)
	equal(t, "offset after the gap", messages[10].Offset, int64(20_010))

	first := k.reader(t, "paid", "readers")
	messages = k.read(t, first, 20)
	equal(t, "read by the group", k.values(messages), want)
	if err := first.CommitMessages(t.Context(), messages[9]); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := k.reader(t, "paid", "readers")
	equal(t, "read on by the group", k.values(k.read(t, second, 10)), want[10:])
	k.send(t, "orders", 0, k.numbered(40_020, 40_021, "paid")...)
	equal(t, "what comes later", k.values(k.read(t, second, 1)), []string{"value 40020"})
}

// A delayed record appears after a record that is sent later without a delay.
func TestKafkaGoDelays(t *testing.T) {
	t.Parallel()
	k := kafkago{startServer(t)}
	k.create(t, "reminders", 1, "sluice.delay.enable", "true")
	messages := k.numbered(0, 2, "")
	messages[0].Headers = []kafka.Header{{Key: "sluice-delay", Value: []byte("1s")}, {Key: "sluice-id", Value: []byte("a")}}
	k.send(t, "reminders", kafka.Snappy, messages...)
	equal(t, "delayed", k.values(k.read(t, k.reader(t, "reminders", "readers"), 2)), []string{"value 1", "value 0"})
}
