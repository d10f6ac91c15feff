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
	ErrHasViews          = errors.New("topic has views")
	// ErrView says that a view cannot do that: produce to its source.
	ErrView             = errors.New("topic is a view")
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
