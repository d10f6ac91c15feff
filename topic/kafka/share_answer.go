package kafka

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// fill fills the answer to a fetch.
func (f *sharing) fill(response *kmsg.ShareFetchResponse) {
	// The fields around the records take memory without waiting, since the records have theirs.
	around := int64(len(f.parts)) * answerCost
	f.server.answers.change(-around)
	f.call.memory.held, f.held = f.call.memory.held+f.held+around, 0
	at := map[topic.ID]int{} // indexes of topics in the answer
	var told leaders
	for _, p := range f.parts {
		if !p.told && p.err == nil && p.got.Size == 0 {
			continue
		}
		answered := kmsg.NewShareFetchResponseTopicPartition()
		answered.Partition = p.part.partition
		answered.ErrorCode, answered.ErrorMessage = code(p.err), message(p.err)
		answered.AcknowledgeErrorCode, answered.AcknowledgeErrorMessage = code(p.ackErr), message(p.ackErr)
		if leader, epoch, known := leaderOf(p.err, p.topic, p.part.partition); known {
			answered.CurrentLeader.LeaderID, answered.CurrentLeader.LeaderEpoch = leader, epoch
			told.add(leader)
		}
		answered.Records = slices.Concat(p.got.Data...)
		for _, d := range p.got.Deliveries {
			acquired := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
			acquired.FirstOffset, acquired.LastOffset, acquired.DeliveryCount = d.First, d.Last, d.Count
			answered.AcquiredRecords = append(answered.AcquiredRecords, acquired)
		}
		n, known := at[p.part.id]
		if !known {
			n = len(response.Topics)
			at[p.part.id] = n
			response.Topics = append(response.Topics, kmsg.ShareFetchResponseTopic{TopicID: p.part.id})
		}
		response.Topics[n].Partitions = append(response.Topics[n].Partitions, answered)
		f.finish(p)
	}
	for _, n := range f.endpoints(told) {
		endpoint := kmsg.NewShareFetchResponseNodeEndpoint()
		endpoint.NodeID, endpoint.Host, endpoint.Port, endpoint.Rack = n.ID, n.Host, n.Port, rackOf(n)
		response.NodeEndpoints = append(response.NodeEndpoints, endpoint)
	}
}

// finish logs an unexpected error of a partition, and makes the next request look for the partition again.
func (f *sharing) finish(p *shared) {
	if p.err != nil && !errors.Is(p.err, context.Canceled) { // the session ends
		f.server.unexpected("share group ", f.session.group, p.err)
		p.part.drop()
	}
}

// endpoints returns the nodes that an answer names as leaders.
func (f *sharing) endpoints(told leaders) []topic.Node {
	if told == nil {
		return nil
	}
	return told.nodes(f.server.nodes(f.call))
}
