package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/share"
)

// ShareAcknowledge: versions 1 to 2.
//
// Acknowledges records of a share group: accept, release, reject, gap, which says that there is no record, and renew.
// All of a partition count, or none. The answer comes when that is durable. It belongs to a session, see
// ShareFetch; epoch -1 ends it, and releases the records that the member still has.
//
//   - 2: renew, and the time of locks.
//   - 0: of a preview of Kafka, not supported.
func (s *Server) shareAcknowledge(c *call, r *kmsg.ShareAcknowledgeRequest) answer {
	began := time.Now()
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
		response.AcquisitionLockTimeoutMillis = s.lockTime(ctx, r.GroupID)
		err := c.authorize(auth.Group, orEmpty(r.GroupID))
		var session *shareSession
		if err == nil {
			session, err = s.shares.open(c.session, r.GroupID, r.MemberID, r.ShareSessionEpoch, false)
		}
		if err != nil {
			response.ErrorCode, response.ErrorMessage = code(err), message(err)
			return response
		}
		defer session.done(s.shares, r.ShareSessionEpoch)
		f := &sharing{server: s, call: c, session: session, byPart: map[*sharePart]*shared{}}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all := make([]share.Acknowledgement, len(p.AcknowledgementBatches))
				for i, b := range p.AcknowledgementBatches {
					all[i] = acknowledgement(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes)
				}
				f.acknowledge(ctx, t.TopicID, p.Partition, false, all)
			}
		}
		f.await(ctx)
		f.fillAcknowledged(response)
		if s.spans != nil && len(f.parts) > 0 {
			batch := f.batch(func(*shared) bool { return true })
			s.spans.Settled(began, &batch)
		}
		return response
	}
}

func (f *sharing) fillAcknowledged(response *kmsg.ShareAcknowledgeResponse) {
	at := map[topic.ID]int{}
	var told leaders
	for _, p := range f.parts {
		answered := kmsg.NewShareAcknowledgeResponseTopicPartition()
		answered.Partition, answered.ErrorCode, answered.ErrorMessage = p.part.partition, code(p.ackErr), message(p.ackErr)
		if leader, epoch, known := leaderOf(p.ackErr, p.topic, p.part.partition); known {
			answered.CurrentLeader.LeaderID, answered.CurrentLeader.LeaderEpoch = leader, epoch
			told.add(leader)
		}
		n, known := at[p.part.id]
		if !known {
			n = len(response.Topics)
			at[p.part.id] = n
			response.Topics = append(response.Topics, kmsg.ShareAcknowledgeResponseTopic{TopicID: p.part.id})
		}
		response.Topics[n].Partitions = append(response.Topics[n].Partitions, answered)
		f.finish(p)
	}
	for _, n := range f.endpoints(told) {
		endpoint := kmsg.NewShareAcknowledgeResponseNodeEndpoint()
		endpoint.NodeID, endpoint.Host, endpoint.Port, endpoint.Rack = n.ID, n.Host, n.Port, rackOf(n)
		response.NodeEndpoints = append(response.NodeEndpoints, endpoint)
	}
}
