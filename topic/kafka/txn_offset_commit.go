package kafka

import (
	"cmp"
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/txn"
)

// TxnOffsetCommit: versions 0 to 5.
//
// Adds offsets of a group to the transaction of a producer; they are committed with it. The group must
// have been added with AddOffsetsToTxn. The answer comes when they are durable. An unknown partition
// is UNKNOWN_TOPIC_OR_PARTITION; the others are added nevertheless.
//
//   - 2: the leader epoch of the last record read.
//   - 3: the member and its generation: a member of an old generation changes nothing.
//   - 4: TRANSACTION_ABORTABLE, which does not occur.
//   - 5: the group need not have been added, unless the cluster has nodes that know version 1 of
//     transactions only.
func (s *Server) txnOffsetCommit(c *call, r *kmsg.TxnOffsetCommitRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		offsets, err := s.offsetsOfTxn(c, r, response)
		var all int16
		if refused := cmp.Or(c.authorize(auth.Transaction, r.TransactionalID), c.authorize(auth.Group, r.Group)); refused != nil {
			err = refused
		}
		if err == nil {
			all, err = s.addOffsets(ctx, r, offsets)
		}
		if err != nil {
			all = s.groupCode(r.Group, err)
		}
		for i := range response.Topics {
			for j := range response.Topics[i].Partitions {
				if answered := &response.Topics[i].Partitions[j]; answered.ErrorCode == 0 {
					answered.ErrorCode = all
				}
			}
		}
		return response
	}
}

// offsetsOfTxn returns the offsets of a request, and answers those of unknown partitions.
func (s *Server) offsetsOfTxn(c *call, r *kmsg.TxnOffsetCommitRequest, response *kmsg.TxnOffsetCommitResponse) (txn.Offsets, error) {
	offsets := txn.Offsets{}
	most := s.broker.Config().Groups.OffsetMetadataBytes
	var failed error
	response.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(r.Topics))
	for i, t := range r.Topics {
		answered := &response.Topics[i]
		answered.Topic = t.Topic
		answered.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		existing, missing := c.topic(t.Topic)
		for j, p := range t.Partitions {
			answered.Partitions[j].Partition = p.Partition
			err := missing
			if err == nil {
				err = existing.Has(p.Partition)
			}
			if err != nil {
				answered.Partitions[j].ErrorCode = code(err)
				continue
			}
			if offsets[t.Topic] == nil {
				offsets[t.Topic] = map[int32]txn.Offset{}
			}
			of := txn.Offset{Offset: p.Offset, Epoch: -1, Metadata: orEmpty(p.Metadata)}
			if r.Version >= 2 {
				of.Epoch = p.LeaderEpoch
			}
			failed = errors.Join(failed, group.CheckMetadata(of.Metadata, most))
			offsets[t.Topic][p.Partition] = of
		}
	}
	return offsets, failed
}

// addOffsets adds offsets to a transaction, if the member is of the group's present generation. The
// error is of the group, the code of the transaction.
func (s *Server) addOffsets(ctx context.Context, r *kmsg.TxnOffsetCommitRequest, offsets txn.Offsets) (int16, error) {
	member := group.MemberIdentity{Group: r.Group, Member: r.MemberID, Instance: orEmpty(r.InstanceID), Generation: r.Generation}
	if r.Version < 3 {
		member.Generation = -1
	}
	begins := r.Version >= 5 && s.broker.TransactionsVersion() >= txn.Version
	var err error
	for range catalog.StoreAttempts {
		guard, refused := s.broker.Groups().MayCommit(member)
		if refused != nil {
			return 0, refused
		}
		err = s.broker.Transactions().AddOffsets(ctx, r.TransactionalID, producerOf(r.ProducerID, r.ProducerEpoch), r.Group, offsets, begins, guard)
		if !errors.Is(err, topic.ErrConflict) {
			break
		}
	}
	return s.transactionCode(r.TransactionalID, err, false), nil
}
