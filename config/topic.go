package config

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Topic are the settings of topics; see topic.Config.
type Topic struct {
	// Kafka are the addresses to serve Kafka clients at, or Off; see Config.Listeners. Advertise are the host:port that
	// clients are told to connect to, or "auto".
	Kafka, Advertise List
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
	// TotalPartitions bounds the partitions of all topics.
	TotalPartitions int
	// AutoCreatePerMinute bounds the topics that are created because clients ask for them.
	AutoCreatePerMinute int
	Groups              topic.GroupsConfig
	Shares              topic.SharesConfig
}

const (
	// Off turns a part off: topics as their address, rooms and bulk as their state.
	Off = "off"
	// SyncAlways fsyncs each append before it is acknowledged.
	SyncAlways = "always"
	// advertiseAuto advertises the address that a client has connected to.
	advertiseAuto = "auto"
	// syncMax is the longest interval between fsyncs.
	syncMax = time.Minute
	// replicasMost is how many replicas the engine of topics has at most.
	replicasMost = 5
)

// defaultTopic returns the defaults of topic; the schema has the others.
func defaultTopic() Topic {
	c := topic.Config{}.WithDefaults()
	return Topic{
		TotalPartitions: int(c.TotalPartitions), AutoCreatePerMinute: c.AutoCreatePerMinute,
		Partitions: int(c.Partitions), MaxMessageBytes: int64(c.MaxMessageBytes),
		Retention: c.Retention, RetentionBytes: c.RetentionBytes, TailBytes: c.TailBytes, Groups: c.Groups, Shares: c.Shares,
	}
}

// Config returns the settings of the broker.
func (t *Topic) Config() topic.Config {
	groups := t.Groups
	groups.InitialDelay = max(groups.InitialDelay, 0)
	return topic.Config{
		Linger: max(t.Linger, 0), AutoCreateOff: !t.AutoCreate,
		TotalPartitions: int32(t.TotalPartitions), AutoCreatePerMinute: t.AutoCreatePerMinute,
		Partitions: int32(t.Partitions), MaxMessageBytes: int32(t.MaxMessageBytes),
		Retention: t.Retention, RetentionBytes: t.RetentionBytes, TailBytes: t.TailBytes, Groups: groups, Shares: t.Shares,
		Replicas: int16(t.Replicas), LeaderBalanceInterval: t.LeaderBalanceInterval,
	}
}

// On reports whether the process serves topics.
func (t *Topic) On() bool { return t.Kafka.String() != Off }

// SyncInterval returns how often appends are fsynced; 0: each one.
func (t *Topic) SyncInterval() time.Duration {
	interval, _ := time.ParseDuration(t.Sync) // checked when it was set; "always" is 0
	return interval
}

func checkSync(text string) error {
	interval, err := time.ParseDuration(text)
	if err != nil || interval < time.Millisecond || interval > syncMax {
		return fmt.Errorf("want always, or a duration from 1ms to %v", syncMax)
	}
	return nil
}

// validateTopic checks the ranges that package topic defines. Numbers that have 32 bits
// there are checked before they are truncated.
func (c *Config) validateTopic() error {
	for key, value := range map[string]int64{
		"topic.partitions": int64(c.Topic.Partitions), "topic.total_partitions": int64(c.Topic.TotalPartitions),
		"topic.max_message_bytes": c.Topic.MaxMessageBytes, "topic.auto_create_per_minute": int64(c.Topic.AutoCreatePerMinute),
		"topic.max_groups": int64(c.Topic.Groups.GroupsMax), "topic.max_group_members": int64(c.Topic.Groups.MembersMax),
	} {
		if value < 1 || value > math.MaxInt32 {
			return c.located(fmt.Errorf("%s: want 1 to %d", key, math.MaxInt32))
		}
	}
	if err := c.Topic.Config().Validate(); err != nil {
		return c.located(err)
	}
	return c.validateListeners()
}
