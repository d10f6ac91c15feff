package topic

import "errors"

// Errors that callers branch on. They come wrapped with details.
var (
	ErrNoTopic           = errors.New("topic does not exist")
	ErrNoPartition       = errors.New("partition does not exist")
	ErrTopicExists       = errors.New("topic exists already")
	ErrInvalidName       = errors.New("invalid topic name")
	ErrInvalidSetting    = errors.New("invalid topic setting")
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	// ErrTooManyPartitions reports that all topics together would have more partitions
	// than Config.TotalPartitions.
	ErrTooManyPartitions = errors.New("too many partitions")
	// ErrQuota reports that an owner would have more than a Quota allows.
	ErrQuota           = errors.New("quota exceeded")
	ErrInvalidReplicas = errors.New("invalid number of replicas")
	// ErrInvalidAssignment reports that a partition cannot be on those brokers.
	ErrInvalidAssignment = errors.New("invalid replica assignment")
	// ErrSharesFull reports that share groups read too many partitions at once.
	ErrSharesFull = errors.New("share groups read too many partitions")
	ErrHasViews   = errors.New("topic has views")
	// ErrNoNode reports that no node of that number belongs to the cluster.
	ErrNoNode = errors.New("node does not exist")
	// ErrNodeInUse reports that a node cannot be removed or drained yet.
	ErrNodeInUse = errors.New("node is in use")
	// ErrNoReassignment reports that a partition is not being reassigned.
	ErrNoReassignment = errors.New("no reassignment is under way")
	// ErrElectionNotNeeded reports that the preferred leader leads already,
	// ErrNoPreferredLeader that it cannot lead.
	ErrElectionNotNeeded = errors.New("no election is needed")
	ErrNoPreferredLeader = errors.New("preferred leader is not available")
	// ErrPartitionsLeaving reports that removed partitions can still be read: none can
	// be added before they are gone.
	ErrPartitionsLeaving = errors.New("partitions are being removed")
	// ErrCompacted reports that records of a compacted topic are removed by their keys only.
	ErrCompacted = errors.New("topic is compacted")
	// ErrView reports that a view does not support the call: produce to its source.
	ErrView = errors.New("topic is a view")
	// ErrNotLeader reports that another broker leads the partition.
	ErrNotLeader        = errors.New("not the leader of the partition")
	ErrOffsetOutOfRange = errors.New("offset out of range")
	ErrRecordTooLarge   = errors.New("record batch too large")
	ErrInvalidRecord    = errors.New("invalid record")
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrOutOfOrderSequence reports that a batch of an idempotent producer does not
	// follow its last one; ErrProducerFenced that a newer epoch of that producer
	// exists; ErrUnknownProducer that the partition has forgotten the producer.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	ErrProducerFenced     = errors.New("producer has a newer epoch")
	ErrUnknownProducer    = errors.New("unknown producer id")
	// ErrTransactionState reports that a batch does not belong to an ongoing transaction that has
	// its partition; ErrTransactionsFull that the partition can have no further one.
	ErrTransactionState = errors.New("no such transaction is ongoing")
	ErrTransactionsFull = errors.New("too many transactions")
	// ErrRetry reports that the partition reads the end of its log again after a
	// failure: try again soon. Either nothing of the append will be written, or an
	// idempotent producer's retry finds it. The failure is wrapped too: ErrFull
	// lasts until the disk has space again.
	ErrRetry = errors.New("partition is recovering")
)
