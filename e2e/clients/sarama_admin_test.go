package clients

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// Seeking goes to an offset and to the first message of a time.
func TestSaramaSeek(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	for _, version := range []sarama.KafkaVersion{sarama.V0_11_0_0, sarama.DefaultVersion, sarama.MaxVersion} {
		config, topic := saramaConfig(version), "orders"+version.String()
		saramaCreate(t, addr, saramaConfig(sarama.DefaultVersion), topic, 1)
		messages := saramaNumbered(topic, 0, 20, "")
		start := time.UnixMilli(1_700_000_000_000)
		for i, message := range messages {
			message.Timestamp = start.Add(time.Duration(i) * time.Second)
		}
		saramaSend(t, addr, config, messages...)
		client := must(sarama.NewClient([]string{addr}, config))(t)
		for at, want := range map[int64]int64{
			start.UnixMilli() + 5000: 5, start.UnixMilli() + 5001: 6, 1: 0, start.UnixMilli() + 20_000: -1,
			sarama.OffsetOldest: 0, sarama.OffsetNewest: 20,
		} {
			equal(t, "offset of a time", must(client.GetOffset(topic, 0, at))(t), want)
		}
		client.Close()
		equal(t, "from an offset", saramaValues(saramaRead(t, addr, config, topic, 13, 7)), numbered(13, 20))
		equal(t, "from the newest", len(saramaRead(t, addr, config, topic, sarama.OffsetNewest, 0)), 0)
		consumer := must(sarama.NewConsumer([]string{addr}, config))(t)
		if _, err := consumer.ConsumePartition(topic, 0, 21); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
			t.Errorf("from beyond the end: %v", err)
		}
		consumer.Close()
	}
}

// Topics are created, described, changed and deleted, and records are deleted.
func TestSaramaTopics(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	for _, version := range []sarama.KafkaVersion{sarama.V1_0_0_0, sarama.DefaultVersion, sarama.MaxVersion} {
		config, topic := saramaConfig(version), "orders"+version.String()
		admin := saramaCreate(t, addr, config, topic, 1, "retention.ms", "3600000")
		if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: int16(nodes())}, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			t.Errorf("created again: %v", err)
		}
		saramaSend(t, addr, config, saramaNumbered(topic, 0, 10, "")...)
		if err := admin.DeleteRecords(topic, map[int32]int64{0: 4}); err != nil {
			t.Error(err)
		}
		equal(t, "after records were deleted", saramaValues(saramaRead(t, addr, config, topic, sarama.OffsetOldest, 6)), numbered(4, 10))
		if err := admin.CreatePartitions(topic, 3, nil, false); err != nil {
			t.Error(err)
		}
		detail := must(admin.ListTopics())(t)[topic]
		equal(t, "partitions", detail.NumPartitions, int32(3))
		equal(t, "its settings", *detail.ConfigEntries["retention.ms"], "3600000")
		eventually(t, "all replicas are in sync", func() bool {
			return len(must(admin.DescribeTopics([]string{topic}))(t)[0].Partitions[0].Isr) == nodes()
		})
		if err := admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": pointer("7200000")}, false); err != nil {
			t.Error(err)
		}
		resources := must(admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}}, sarama.DescribeConfigsOptions{}))(t)
		entries := resources[0].Configs
		equal(t, "setting that was changed", []any{len(entries), entries[0].Value}, []any{1, "7200000"})
		if err := admin.DeleteTopic(topic); err != nil {
			t.Error(err)
		}
		eventually(t, "no topic is left", func() bool { return len(must(admin.ListTopics())(t)) == 0 })
		eventually(t, "the cluster has its nodes", func() bool { // a busy one may be taken for dead for a moment
			brokers, controller, err := admin.DescribeCluster()
			slices.SortFunc(brokers, func(x, y *sarama.Broker) int { return int(x.ID() - y.ID()) })
			return err == nil && len(brokers) == nodes() && brokers[0].ID() == controller && brokers[0].Addr() == addr
		})
	}
}

// Groups are listed, described, reset and deleted.
func TestSaramaGroups(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	for _, version := range []sarama.KafkaVersion{sarama.V1_1_0_0, sarama.DefaultVersion, sarama.MaxVersion} {
		config, topic := saramaConfig(version), "orders"
		admin := saramaCreate(t, addr, config, topic, 1)
		saramaSend(t, addr, config, saramaNumbered(topic, 0, 10, "")...)
		member := saramaJoin(t, addr, config, topic, 7)
		eventually(t, "all is read", func() bool { return len(member.got()) == 10 })
		described := must(admin.DescribeConsumerGroups([]string{"readers"}))(t)
		equal(t, "group", []any{described[0].State, described[0].ProtocolType, len(described[0].Members)}, []any{"Stable", "consumer", 1})
		for _, m := range described[0].Members {
			equal(t, "assigned", must(m.GetMemberAssignment())(t).Topics, map[string][]int32{topic: {0}})
		}
		member.stop()
		equal(t, "groups", slices.Collect(maps.Keys(must(admin.ListConsumerGroups())(t))), []string{"readers"})
		committed := func() int64 {
			return must(admin.ListConsumerGroupOffsets("readers", map[string][]int32{topic: {0}}))(t).GetBlock(topic, 0).Offset
		}
		equal(t, "committed", committed(), int64(7))
		if _, err := admin.AlterConsumerGroupOffsets("readers", map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 3}}}, nil); err != nil {
			t.Error(err)
		}
		equal(t, "moved", committed(), int64(3))
		if version.IsAtLeast(sarama.V2_4_0_0) {
			if err := admin.DeleteConsumerGroupOffset("readers", topic, 0); err != nil {
				t.Error(err)
			}
			equal(t, "after it was deleted", committed(), int64(-1))
		}
		if err := admin.DeleteConsumerGroup("readers"); err != nil {
			t.Error(err)
		}
		equal(t, "groups left", len(must(admin.ListConsumerGroups())(t)), 0)
		if err := admin.DeleteTopic(topic); err != nil {
			t.Error(err)
		}
	}
}

// A view is read past 20,000 hidden records, and past a hidden end. The producer is idempotent.
func TestSaramaView(t *testing.T) {
	t.Parallel()
	for _, version := range []sarama.KafkaVersion{sarama.V2_1_0_0, sarama.DefaultVersion, sarama.MaxVersion} {
		t.Run(version.String(), func(t *testing.T) {
			addr := startServer(t)
			config := saramaConfig(version)
			config.Producer.Compression = sarama.CompressionSnappy
			config.Producer.Idempotent, config.Producer.RequiredAcks, config.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
			saramaCreate(t, addr, config, "orders", 1)
			saramaCreate(t, addr, config, "paid", -1, "sluice.view.of", "orders", "sluice.view.where", `headers.tag == "paid"`)
			saramaSend(t, addr, config, saramaNumbered("orders", 0, 10, "paid")...)
			saramaSend(t, addr, config, saramaNumbered("orders", 10, 20_010, "open")...)
			saramaSend(t, addr, config, saramaNumbered("orders", 20_010, 20_020, "paid")...)
			saramaSend(t, addr, config, saramaNumbered("orders", 20_020, 40_020, "open")...)
			want := append(numbered(0, 10), numbered(20_010, 20_020)...)
			messages := saramaRead(t, addr, config, "paid", sarama.OffsetOldest, 20)
			equal(t, "view", saramaValues(messages), want)
			equal(t, "offset after the gap", messages[10].Offset, int64(20_010))

			first := saramaJoin(t, addr, config, "paid", 10)
			eventually(t, "all is read", func() bool { return len(first.got()) == 20 })
			first.stop()
			second := saramaJoin(t, addr, config, "paid", 0)
			eventually(t, "the rest is read", func() bool { return len(second.got()) >= 10 })
			saramaSend(t, addr, config, saramaNumbered("orders", 40_020, 40_021, "paid")...)
			eventually(t, "what comes later is read", func() bool { return len(second.got()) >= 11 })
			equal(t, "read by the group", first.got(), want)
			equal(t, "read on by the group", second.got(), append(want[10:], "value 40020"))
		})
	}
}

// A delayed record appears after a record that is sent later without a delay.
func TestSaramaDelays(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	config := saramaConfig(sarama.DefaultVersion)
	config.Producer.Compression = sarama.CompressionLZ4
	saramaCreate(t, addr, config, "reminders", 1, "sluice.delay.enable", "true")
	messages := saramaNumbered("reminders", 0, 2, "")
	messages[0].Headers = []sarama.RecordHeader{{Key: []byte("sluice-delay"), Value: []byte("1s")}, {Key: []byte("sluice-id"), Value: []byte("a")}}
	member := saramaJoin(t, addr, config, "reminders", 0)
	saramaSend(t, addr, config, messages...)
	eventually(t, "both are read", func() bool { return len(member.got()) >= 2 })
	equal(t, "delayed", member.got(), []string{"value 1", "value 0"})
}
