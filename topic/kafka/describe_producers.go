package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/broker"
)

// DescribeProducers: version 0.
//
//   - The answer has the idempotent producers that each partition remembers; those of a view are its
//     source's.
//   - There are no transactions, so no producer has an open one.
func (s *Server) describeProducers(c *call, r *kmsg.DescribeProducersRequest) answer {
	return func(context.Context) kmsg.Response { return s.describedProducers(c, r) }
}

func (s *Server) describedProducers(c *call, r *kmsg.DescribeProducersRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.DescribeProducersResponse)
	asked := once[partitionName]{}
	for i := range r.Topics {
		described := kmsg.NewDescribeProducersResponseTopic()
		described.Topic = r.Topics[i].Topic
		for _, number := range r.Topics[i].Partitions {
			if asked.first(partitionName{described.Topic, number}) {
				described.Partitions = append(described.Partitions, s.producersOf(c, described.Topic, number))
			}
		}
		response.Topics = append(response.Topics, described)
	}
	return response
}

// producerCost is the memory of a producer in an answer.
const producerCost = 128

func (s *Server) producersOf(c *call, name string, number int32) kmsg.DescribeProducersResponseTopicPartition {
	described := kmsg.NewDescribeProducersResponseTopicPartition()
	described.Partition = number
	var producers []broker.Producer
	p, err := s.partition(name, number)
	if err == nil {
		producers = p.Producers()
		err = c.memory.add(int64(len(producers)) * producerCost)
	}
	described.ErrorCode, described.ErrorMessage = s.outcome("describe producers", err)
	if err != nil {
		return described
	}
	for _, producer := range producers {
		active := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		active.ProducerID, active.ProducerEpoch = producer.ID, int32(producer.Epoch)
		active.LastSequence, active.LastTimestamp = producer.LastSequence, producer.LastTimestamp.UnixMilli()
		active.CoordinatorEpoch, active.CurrentTxnStartOffset = -1, -1
		described.ActiveProducers = append(described.ActiveProducers, active)
	}
	return described
}
