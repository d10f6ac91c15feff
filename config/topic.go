package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Topic says how topics are served; see topic.Config.
type Topic struct {
	// Kafka is the address to serve Kafka clients at, host:port, or Off.
	Kafka string
	// Advertise is the host:port that clients are told to connect to, or "auto".
	Advertise string
	// Sync is SyncAlways, or how often appends are fsynced.
	Sync       string
	AutoCreate bool
	Partitions int
	// MaxMessageBytes is the most bytes of one batch.
	MaxMessageBytes int64
	Linger          time.Duration
	Retention       time.Duration
	RetentionBytes  int64
	TailBytes       int64
	// Replicas is how many nodes keep each partition of a topic whose creator does
	// not say; 0: three, or as many as there are.
	Replicas int
	// LeaderBalanceInterval is how often partitions go back to the leaders that are
	// preferred; negative: never.
	LeaderBalanceInterval time.Duration
	Groups                topic.GroupsConfig
}

const (
	// Off as the address for Kafka turns topics off, as the state rooms and bulk.
	Off = "off"
	// SyncAlways fsyncs each append before it is acknowledged.
	SyncAlways = "always"
	// advertiseAuto is the address that a client has connected to.
	advertiseAuto = "auto"
	// syncMax is the longest interval between fsyncs.
	syncMax = time.Minute
	// replicasMost is how many replicas the engine of topics has at most.
	replicasMost = 5
)

func defaultTopic() Topic {
	c := topic.Config{}.WithDefaults()
	c.Groups.InitialDelay = -1
	return Topic{
		Kafka: "127.0.0.1:9092", Advertise: advertiseAuto, Sync: SyncAlways, AutoCreate: true,
		Partitions: int(c.Partitions), MaxMessageBytes: int64(c.MaxMessageBytes), Linger: -1,
		Retention: c.Retention, RetentionBytes: c.RetentionBytes, TailBytes: c.TailBytes, Groups: c.Groups,
		LeaderBalanceInterval: 5 * time.Minute,
	}
}

// Config returns the settings of the broker.
func (t *Topic) Config() topic.Config {
	groups := t.Groups
	groups.InitialDelay = max(groups.InitialDelay, 0)
	return topic.Config{
		Linger: max(t.Linger, 0), AutoCreateOff: !t.AutoCreate,
		Partitions: int32(t.Partitions), MaxMessageBytes: int32(t.MaxMessageBytes),
		Retention: t.Retention, RetentionBytes: t.RetentionBytes, TailBytes: t.TailBytes, Groups: groups,
		Replicas: int16(t.Replicas), LeaderBalanceInterval: t.LeaderBalanceInterval,
	}
}

// Advertised returns the host:port that clients are told to connect to; empty:
// the one that they have connected to.
func (t *Topic) Advertised() string {
	if t.Advertise == advertiseAuto {
		return ""
	}
	return t.Advertise
}

// SyncInterval returns how often appends are fsynced; 0: each one.
func (t *Topic) SyncInterval() time.Duration {
	interval, _ := time.ParseDuration(t.Sync) // checked when it was set; "always" is 0
	return interval
}

func topicField(field func(*Topic) any) func(*Config) any {
	return func(c *Config) any { return field(&c.Topic) }
}

var topicSettings = []Setting{
	{Key: "kafka", Usage: "address to serve Kafka clients at, host:port; off: no topics. Anybody who reaches it may read and write them",
		field: topicField(func(t *Topic) any { return &t.Kafka }), check: checkKafka},
	{Key: "topic.advertise", Usage: "host:port that Kafka clients are told to connect to; auto: the address that they have connected to",
		field: topicField(func(t *Topic) any { return &t.Advertise }), check: checkAdvertise},
	{Key: "topic.sync", Usage: "always: records are fsynced before they are acknowledged; a duration, such as 1s: fsynced so often, and a power cut may take what was acknowledged within it",
		field: topicField(func(t *Topic) any { return &t.Sync }), check: checkSync},
	{Key: "topic.linger", Zero: "not at all", Usage: "how long an append to an idle partition waits for others to be written with it",
		field: topicField(func(t *Topic) any { return &t.Linger })},
	{Key: "topic.auto_create", Usage: "make topics that clients ask for and that do not exist",
		field: topicField(func(t *Topic) any { return &t.AutoCreate })},
	{Key: "topic.partitions", Usage: "partitions of a topic whose creator does not say how many",
		field: topicField(func(t *Topic) any { return &t.Partitions })},
	{Key: "topic.retention", Zero: "for ever", Usage: "how long records are kept, by their timestamps, unless the topic has a setting of its own",
		field: topicField(func(t *Topic) any { return &t.Retention })},
	{Key: "topic.retention_bytes", Zero: "no limit", Usage: "bytes that a partition keeps, unless the topic has a setting of its own",
		field: topicField(func(t *Topic) any { return &t.RetentionBytes })},
	{Key: "topic.max_message_bytes", Usage: "most bytes of one record batch, unless the topic has a setting of its own",
		field: topicField(func(t *Topic) any { return &t.MaxMessageBytes })},
	{Key: "topic.tail_bytes", Usage: "memory for the newest records of all partitions, for consumers that keep up",
		field: topicField(func(t *Topic) any { return &t.TailBytes })},
	{Key: "topic.replicas", Zero: "three, or as many as there are nodes if there are fewer", Usage: "nodes that keep each partition of a topic whose creator does not say how many; a server that is no node of a cluster has one",
		field: topicField(func(t *Topic) any { return &t.Replicas }), check: checkReplicas},
	{Key: "topic.leader_balance_interval", Zero: "never", Usage: "how often partitions of a cluster go back to the nodes that are preferred as their leaders",
		field: topicField(func(t *Topic) any { return &t.LeaderBalanceInterval })},
	{Key: "topic.group_session_min", Usage: "least session timeout that a member of a consumer group may ask for",
		field: topicField(func(t *Topic) any { return &t.Groups.MinSession })},
	{Key: "topic.group_session_max", Usage: "most session timeout that it may ask for",
		field: topicField(func(t *Topic) any { return &t.Groups.MaxSession })},
	{Key: "topic.group_initial_delay", Zero: "not at all", Usage: "how long the first rebalance of an empty group waits for more members",
		field: topicField(func(t *Topic) any { return &t.Groups.InitialDelay })},
	{Key: "topic.offset_retention", Usage: "how long committed offsets are kept after their group became empty",
		field: topicField(func(t *Topic) any { return &t.Groups.OffsetRetention })},
}

func checkKafka(text string) error {
	if text == Off {
		return nil
	}
	if err := checkAddress(text); err != nil {
		return errors.New(`want host:port, such as 127.0.0.1:9092, or "off"`)
	}
	return nil
}

func checkAdvertise(text string) error {
	if text == advertiseAuto {
		return nil
	}
	if err := checkAddress(text); err != nil {
		return errors.New(`want host:port, such as broker.example.com:9092, or "auto"`)
	}
	return nil
}

func checkSync(text string) error {
	if text == SyncAlways {
		return nil
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval < time.Millisecond || interval > syncMax {
		return fmt.Errorf("want always, or a duration from 1ms to %v", syncMax)
	}
	return nil
}

func checkReplicas(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n > replicasMost {
		return fmt.Errorf("want 1 to %d", replicasMost)
	}
	return nil
}

// validateTopic checks the ranges that topic knows. The numbers that it has as
// 32 bits are checked before they are cut.
func (c *Config) validateTopic() error {
	for key, value := range map[string]int64{"topic.partitions": int64(c.Topic.Partitions), "topic.max_message_bytes": c.Topic.MaxMessageBytes} {
		if value < 1 || value > math.MaxInt32 {
			return c.located(fmt.Errorf("%s: want 1 to %d", key, math.MaxInt32))
		}
	}
	if err := c.Topic.Config().Validate(); err != nil {
		return c.located(err)
	}
	return nil
}
