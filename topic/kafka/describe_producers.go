package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers: version 0.
//
//   - The answer has the idempotent producers that each partition remembers; those of a view are its
//     source's.
//   - There are no transactions, so no producer has an open one.
func (s *Server) describeProducers(_ *call, r *kmsg.DescribeProducersRequest) answer {
	response := r.ResponseKind().(*kmsg.DescribeProducersResponse)
	asked := once[partitionName]{}
	for i := range r.Topics {
		described := kmsg.NewDescribeProducersResponseTopic()
		described.Topic = r.Topics[i].Topic
		for _, number := range r.Topics[i].Partitions {
			if asked.first(partitionName{described.Topic, number}) {
				described.Partitions = append(described.Partitions, s.producersOf(described.Topic, number))
			}
		}
		response.Topics = append(response.Topics, described)
	}
	return respond(response)
}

func (s *Server) producersOf(name string, number int32) kmsg.DescribeProducersResponseTopicPartition {
	described := kmsg.NewDescribeProducersResponseTopicPartition()
	described.Partition = number
	p, err := s.partition(name, number)
	described.ErrorCode, described.ErrorMessage = s.outcome("describe producers", err)
	if err != nil {
		return described
	}
	for _, producer := range p.Producers() {
		active := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		active.ProducerID, active.ProducerEpoch = producer.ID, int32(producer.Epoch)
		active.LastSequence, active.LastTimestamp = producer.LastSequence, producer.LastTimestamp.UnixMilli()
		active.CoordinatorEpoch, active.CurrentTxnStartOffset = -1, -1
		described.ActiveProducers = append(described.ActiveProducers, active)
	}
	return described
}
