package topic

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the settings of a broker. The zero value of each field means its
// default, unless the field says otherwise.
type Config struct {
	// Linger is how long an append to an idle partition waits for others to be
	// written with it: a longer time means fewer fsyncs and more latency. Appends
	// that arrive during a write are collected in any case. Default 0; at most 1 s.
	Linger time.Duration
	// AutoCreateOff turns off the creation of missing topics when a client asks for
	// them and allows their creation. By default they are created.
	AutoCreateOff bool
	// AutoCreatePerMinute bounds how many topics are created in that way, and up to a
	// sixth of it at once; the others do not exist until a client asks again. Default
	// 600.
	AutoCreatePerMinute int
	// Partitions is a topic's number of partitions if its creator gives none. Default 1.
	Partitions int32
	// MaxPartitions bounds the partitions of one topic. Default 1,000.
	MaxPartitions int32
	// TotalPartitions bounds the partitions of all topics, or of all topics of a
	// cluster: more cannot be created. Default 4,000.
	TotalPartitions int32
	// MaxMessageBytes bounds the size of one record batch, as sent, unless the
	// topic has a setting of its own. Default 1 MiB and 12 bytes of overhead,
	// as in Kafka; at most 7 MiB.
	MaxMessageBytes int32
	// Retention is how long records are kept, by their timestamps, unless the
	// topic has a setting of its own. Default 7 days; negative: forever.
	Retention time.Duration
	// RetentionBytes bounds the size of a partition, unless the topic has a
	// setting of its own. Default and negative: no limit.
	RetentionBytes int64
	// RetentionInterval is how often retention is applied. Default 1 minute.
	RetentionInterval time.Duration
	// TailBytes bounds the memory for the newest records of all partitions, which
	// serves consumers that keep up; batches above a sixteenth of it are left to the log. Default, and negative: 4 MiB on a single server, where the system's
	// cache serves the others as well, and 128 MiB on a node of a cluster.
	TailBytes int64
	// PendingBytes bounds the memory of one partition's appends that are not yet
	// durable; an append above it waits. Default 32 MiB.
	PendingBytes int64
	// UnpackBytes bounds the memory for decompressed records, where the broker has to
	// decompress them: to check them, for views, for delayed records and to find one
	// by its time; what needs more waits. Default 256 MiB; at least 128 MiB.
	UnpackBytes int64
	// ProducerRetention is how long a partition remembers a silent idempotent
	// producer. Default 24 hours.
	ProducerRetention time.Duration
	// ProducersMax bounds the idempotent producers that a partition remembers; above
	// it, the one that was silent longest is forgotten. Default and maximum: 10,000,
	// which is what a value of the metadata can hold.
	ProducersMax int
	// Replicas is the number of nodes that keep each partition of a topic whose
	// creator gives none: 1 to 5. Default: 3, or the number of nodes if that is less.
	Replicas int16
	// LeaderBalanceInterval is how often leadership returns to the preferred leaders,
	// for example after a node was away. Default 5 minutes; negative: never.
	LeaderBalanceInterval time.Duration
	// Advertise is what this node tells other nodes of a cluster about itself.
	Advertise Advertised
	Delays    DelayConfig
	Groups    GroupsConfig
	Shares    SharesConfig
}

// SharesConfig holds the settings of share groups.
type SharesConfig struct {
	// Lock is how long a member has a record before others get it. Default 30 s; 1 s to 1 hour.
	Lock time.Duration
	// Deliveries is how often a record is delivered at most. Default 5; at most 100.
	Deliveries int
	// Records bounds the records of a partition that are in flight in one group: those after the
	// first one that is not done, up to the last one that was delivered. Default 10,000, which is also the most; at least 100.
	Records int
	// Earliest makes a group begin at the first record of a partition that it reads for the first
	// time. By default it begins at the end, as in Kafka.
	Earliest bool
}

// Bounds of the settings of share groups.
const (
	MinShareLock  = time.Second
	MaxShareLock  = time.Hour
	MaxDeliveries = 100
)

func (c SharesConfig) validate() error {
	switch {
	case c.Lock < MinShareLock || c.Lock > MaxShareLock:
		return errors.New("topic.share_lock: want 1s to 1h")
	case c.Deliveries < 1 || c.Deliveries > MaxDeliveries:
		return errors.New("topic.share_deliveries: want 1 to 100")
	case c.Records < 100 || c.Records > 10_000:
		return errors.New("topic.share_records: want 100 to 10000")
	}
	return nil
}

// GroupsConfig holds the settings of consumer groups.
type GroupsConfig struct {
	// MinSession and MaxSession bound the session timeout that members ask for.
	// Defaults 6 s and 30 minutes.
	MinSession, MaxSession time.Duration
	// InitialDelay is how long the first rebalance of an empty group waits for
	// more members. Default 0: no wait.
	InitialDelay time.Duration
	// OffsetRetention is how long offsets are kept after a group became empty.
	// Default 7 days.
	OffsetRetention time.Duration
	// ConsumerSession is how long a member of the consumer protocol may be silent. Default 45 s.
	// ConsumerHeartbeat is the time between its heartbeats. Default 5 s.
	ConsumerSession, ConsumerHeartbeat time.Duration
	// MembersMax bounds the members of one group. Default 1,000.
	MembersMax int
	// GroupsMax bounds the number of groups. Default 10,000.
	GroupsMax int
	// BytesTotal bounds what the members of all groups of a node bring, their assignments, and
	// 1 KiB for each member. Default 256 MiB.
	BytesTotal int64
	// OffsetMetadataBytes bounds the text that is stored with a committed
	// offset. Default 4,096.
	OffsetMetadataBytes int
}

// WithDefaults returns the config with every unset field at its default.
func (c Config) WithDefaults() Config {
	orDefault(&c.Partitions, 1)
	orDefault(&c.MaxPartitions, 1000)
	orDefault(&c.AutoCreatePerMinute, 600)
	orDefault(&c.TotalPartitions, 4000)
	orDefault(&c.MaxMessageBytes, 1<<20+12)
	orDefault(&c.Retention, 7*24*time.Hour)
	orDefault(&c.RetentionBytes, -1)
	orDefault(&c.RetentionInterval, time.Minute)
	orDefault(&c.PendingBytes, 32<<20)
	orDefault(&c.UnpackBytes, 256<<20)
	orDefault(&c.ProducerRetention, 24*time.Hour)
	orDefault(&c.ProducersMax, ProducersMax)
	orDefault(&c.LeaderBalanceInterval, 5*time.Minute)
	orDefault(&c.Groups.MinSession, 6*time.Second)
	orDefault(&c.Groups.MaxSession, 30*time.Minute)
	orDefault(&c.Groups.OffsetRetention, 7*24*time.Hour)
	orDefault(&c.Groups.ConsumerSession, 45*time.Second)
	orDefault(&c.Groups.ConsumerHeartbeat, 5*time.Second)
	orDefault(&c.Groups.MembersMax, 1000)
	orDefault(&c.Groups.GroupsMax, 10_000)
	orDefault(&c.Groups.BytesTotal, 256<<20)
	orDefault(&c.Groups.OffsetMetadataBytes, 4096)
	orDefault(&c.Shares.Lock, 30*time.Second)
	orDefault(&c.Shares.Deliveries, 5)
	orDefault(&c.Shares.Records, 10_000)
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// MaxBatchBytes is the largest batch size that any setting may allow: an entry
// has to fit into a message of the log's engine.
const MaxBatchBytes = 7 << 20

// MaxReplicas is the maximum number of replicas of a partition.
const MaxReplicas = 5

// ProducersMax is the largest number of producers of a partition whose snapshot
// fits into a value of the metadata.
const ProducersMax = 10_000

// Validate returns an error that names the setting that is out of range, such as
// "topic.linger: want 0s to 1s".
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case c.Linger < 0 || c.Linger > time.Second:
		return errors.New("topic.linger: want 0s to 1s")
	case c.MaxPartitions < 1:
		return errors.New("topic.max_partitions: want at least 1")
	case c.TotalPartitions < 1:
		return errors.New("topic.total_partitions: want at least 1")
	case c.AutoCreatePerMinute < 1:
		return errors.New("topic.auto_create_per_minute: want at least 1")
	case c.Partitions < 1 || c.Partitions > c.MaxPartitions:
		return fmt.Errorf("topic.partitions: want 1 to %d", c.MaxPartitions)
	case c.MaxMessageBytes < BatchOverhead || c.MaxMessageBytes > MaxBatchBytes:
		return fmt.Errorf("topic.max_message_bytes: want %d to %d", BatchOverhead, MaxBatchBytes)
	case c.RetentionInterval < 0:
		return errors.New("topic.retention_interval: want more than 0s")
	case c.PendingBytes < 0:
		return errors.New("topic.pending_bytes: want more than 0")
	case c.UnpackBytes < LeastUnpackBytes:
		return fmt.Errorf("topic.unpack_bytes: want at least %d", LeastUnpackBytes)
	case c.ProducersMax < 0 || c.ProducersMax > ProducersMax || c.ProducerRetention < 0:
		return fmt.Errorf("topic.producers: want 1 to %d of them, for more than 0s", ProducersMax)
	case c.Replicas < 0 || c.Replicas > MaxReplicas:
		return fmt.Errorf("topic.replicas: want 1 to %d", MaxReplicas)
	}
	return errors.Join(c.Groups.validate(), c.Shares.validate())
}

func (c GroupsConfig) validate() error {
	switch {
	case c.MinSession < 0 || c.MaxSession < c.MinSession:
		return errors.New("topic.group_session_max: want at least topic.group_session_min")
	case c.ConsumerHeartbeat < time.Millisecond || c.ConsumerSession > 24*time.Hour || c.ConsumerHeartbeat > c.ConsumerSession/2:
		return errors.New("topic.consumer_heartbeat: want 1ms to half of topic.consumer_session, which is at most 24h")
	case c.InitialDelay < 0:
		return errors.New("topic.group_initial_delay: want 0s or more")
	case c.OffsetRetention < 0:
		return errors.New("topic.offset_retention: want more than 0s")
	case c.GroupsMax < 1:
		return errors.New("topic.max_groups: want at least 1")
	case c.MembersMax < 1:
		return errors.New("topic.max_group_members: want at least 1")
	case c.BytesTotal < 0:
		return errors.New("topic.total_group_bytes: want more than 0")
	case c.OffsetMetadataBytes < 0:
		return errors.New("topic.offset_metadata_bytes: want more than 0")
	}
	return nil
}
