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
//   - With an open transaction, the answer has its first offset.
func (s *Server) describeProducers(c *call, r *kmsg.DescribeProducersRequest) answer {
	return func(context.Context) kmsg.Response { return s.describedProducers(c, r) }
}

func (s *Server) describedProducers(c *call, r *kmsg.DescribeProducersRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.DescribeProducersResponse)
	named := once[partitionName]{}
	response.Topics = make([]kmsg.DescribeProducersResponseTopic, len(r.Topics))
	for i := range r.Topics {
		asked, described := &r.Topics[i], &response.Topics[i]
		described.Topic = asked.Topic
		numbers := distinct(asked.Partitions)
		described.Partitions = make([]kmsg.DescribeProducersResponseTopicPartition, 0, len(numbers))
		t, missing := c.topic(asked.Topic)
		for _, number := range numbers {
			p, err := (*broker.Partition)(nil), missing
			if err == nil {
				p, err = t.Partition(number)
			}
			if err == nil && !named.first(partitionName{t, number}) {
				continue
			}
			described.Partitions = append(described.Partitions, s.producersOf(c, number, p, err))
		}
	}
	return response
}

// producerCost is the memory of a producer in an answer.
const producerCost = 128

// producersOf describes the producers of a partition, or why there are none.
func (s *Server) producersOf(c *call, number int32, p *broker.Partition, err error) kmsg.DescribeProducersResponseTopicPartition {
	described := kmsg.NewDescribeProducersResponseTopicPartition()
	described.Partition = number
	var producers []broker.Producer
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
		active.CoordinatorEpoch, active.CurrentTxnStartOffset = -1, producer.Open
		described.ActiveProducers = append(described.ActiveProducers, active)
	}
	return described
}
