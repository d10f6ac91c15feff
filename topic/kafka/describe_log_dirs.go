package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// logDir is the name of the only log directory.
const logDir = "data"

// DescribeLogDirs: versions 0 to 4.
//
//   - One directory with the size of each requested partition, or of all.
//   - Unknown partitions and views, which have no records of their own, are left out. In a
//     cluster the answer has the partitions that this node leads: it does not know the size
//     of other replicas.
//   - The size of the disk is -1: not reported.
func (s *Server) describeLogDirs(c *call, r *kmsg.DescribeLogDirsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir = logDir
		dir.TotalBytes, dir.UsableBytes = -1, -1
		var err error
		if dir.Topics, err = s.sizes(ctx, c, r.Topics); err != nil {
			dir.ErrorCode = code(err)
		}
		response.Dirs = append(response.Dirs, dir)
		return response
	}
}

// sizes returns the sizes of the requested partitions, or of all for nil.
func (s *Server) sizes(ctx context.Context, c *call, wanted []kmsg.DescribeLogDirsRequestTopic) (sized []kmsg.DescribeLogDirsResponseDirTopic, err error) {
	if wanted == nil {
		for _, t := range s.broker.Topics() {
			if sized, err = appendSizes(ctx, c, sized, t, t.Partitions()); err != nil {
				return nil, err
			}
		}
	}
	for i := range wanted {
		t, err := s.broker.Topic(wanted[i].Topic)
		if err != nil {
			continue
		}
		var partitions []*broker.Partition
		for _, number := range wanted[i].Partitions {
			if p, err := t.Partition(number); err == nil {
				partitions = append(partitions, p)
			}
		}
		if sized, err = appendSizes(ctx, c, sized, t, partitions); err != nil {
			return nil, err
		}
	}
	return sized, nil
}

// sizeCost is the memory of the size of a partition in an answer.
const sizeCost = 128

// appendSizes appends a topic with the sizes of its partitions.
func appendSizes(ctx context.Context, c *call, topics []kmsg.DescribeLogDirsResponseDirTopic, t *broker.Topic, partitions []*broker.Partition) ([]kmsg.DescribeLogDirsResponseDirTopic, error) {
	if t.Source() != nil || len(partitions) == 0 {
		return topics, nil
	}
	if err := c.memory.add(topicCost + int64(len(partitions))*sizeCost); err != nil {
		return nil, err
	}
	sized := kmsg.NewDescribeLogDirsResponseDirTopic()
	sized.Topic = t.Name()
	for _, p := range partitions {
		if p.Ready() != nil { // another node has it, or it is being read
			continue
		}
		bytes, err := p.Bytes(ctx)
		if errors.Is(err, topic.ErrNoLog) { // deleted in the meantime
			return topics, nil
		}
		if err != nil {
			return nil, fail(kerr.KafkaStorageError, err.Error())
		}
		size := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		size.Partition, size.Size = p.Number(), bytes
		sized.Partitions = append(sized.Partitions, size)
	}
	if len(sized.Partitions) == 0 {
		return topics, nil
	}
	return append(topics, sized), nil
}
