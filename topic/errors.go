package topic

import "errors"

// Errors that callers branch on. They come wrapped with what was wrong.
var (
	ErrNoTopic           = errors.New("topic does not exist")
	ErrNoPartition       = errors.New("partition does not exist")
	ErrTopicExists       = errors.New("topic exists already")
	ErrInvalidName       = errors.New("invalid topic name")
	ErrInvalidSetting    = errors.New("invalid topic setting")
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	ErrInvalidReplicas   = errors.New("invalid number of replicas")
	// ErrInvalidAssignment says that a partition cannot be on those brokers.
	ErrInvalidAssignment = errors.New("invalid replica assignment")
	ErrHasViews          = errors.New("topic has views")
	// ErrNoNode says that no node of that number belongs to the cluster.
	ErrNoNode = errors.New("node does not exist")
	// ErrNodeInUse says that a node cannot be removed yet, and ErrNoCluster that
	// there is one node, of no cluster.
	ErrNodeInUse = errors.New("node is in use")
	ErrNoCluster = errors.New("not a cluster: there is one node")
	// ErrNoReassignment says that a partition is not being moved.
	ErrNoReassignment = errors.New("no reassignment is under way")
	// ErrElectionNotNeeded says that the preferred leader leads, ErrNoPreferredLeader
	// that it cannot.
	ErrElectionNotNeeded = errors.New("no election is needed")
	ErrNoPreferredLeader = errors.New("preferred leader is not available")
	// ErrPartitionsLeaving says that partitions that were removed can still be read:
	// none can be added before they are gone.
	ErrPartitionsLeaving = errors.New("partitions are being removed")
	// ErrView says that a view cannot do that: produce to its source.
	ErrView = errors.New("topic is a view")
	// ErrNotLeader says that another broker leads the partition.
	ErrNotLeader        = errors.New("not the leader of the partition")
	ErrOffsetOutOfRange = errors.New("offset out of range")
	ErrRecordTooLarge   = errors.New("record batch too large")
	ErrInvalidRecord    = errors.New("invalid record")
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrOutOfOrderSequence says that a batch of an idempotent producer does not
	// follow its last one; ErrProducerFenced that a newer epoch of that producer
	// exists; ErrUnknownProducer that the partition has forgotten it.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	ErrProducerFenced     = errors.New("producer has a newer epoch")
	ErrUnknownProducer    = errors.New("unknown producer id")
	// ErrRetry says that the partition is looking at the end of its log again,
	// after a failure: try again soon. Nothing of the append will be written,
	// or an idempotent producer's retry finds it. The failure is wrapped too: with
	// ErrFull it lasts until there is room again.
	ErrRetry = errors.New("partition is recovering")
)
