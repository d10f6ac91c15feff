package kafka

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// logDir is the name of the only log directory.
const logDir = "data"

// DescribeLogDirs: versions 0 to 4.
//
//   - One directory with the size of each requested partition, or of all.
//   - Unknown partitions and views, which have no records of their own, are left out.
//   - In a cluster the answer has the partitions that this node keeps. The size of a replica is
//     that of its leader's, which is asked; those of leaders that do not answer are left out.
//   - 4: the size of the disk, and how much of it is free; -1 where that is not known.
func (s *Server) describeLogDirs(c *call, r *kmsg.DescribeLogDirsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		if err := c.authorize(auth.Cluster, ""); err != nil {
			response.ErrorCode = code(err)
			return response
		}
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir = logDir
		var err error
		if dir.TotalBytes, dir.UsableBytes, err = s.broker.Volume(); err != nil {
			dir.TotalBytes, dir.UsableBytes = -1, -1
		}
		if dir.Topics, err = s.sizes(ctx, c, r.Topics); err != nil {
			dir.ErrorCode = code(err)
		}
		response.Dirs = append(response.Dirs, dir)
		return response
	}
}

// sizes returns the sizes of the requested partitions, or of all for nil.
func (s *Server) sizes(ctx context.Context, c *call, wanted []kmsg.DescribeLogDirsRequestTopic) (sized []kmsg.DescribeLogDirsResponseDirTopic, err error) {
	elsewhere := s.broker.SizesElsewhere(ctx)
	if wanted == nil {
		for _, t := range c.topics() {
			if sized, err = s.appendSizes(ctx, c, sized, t, t.Partitions(), elsewhere); err != nil {
				return nil, err
			}
		}
	}
	for i := range wanted {
		t, err := c.topic(wanted[i].Topic)
		if err != nil {
			continue
		}
		var partitions []*broker.Partition
		for _, number := range wanted[i].Partitions {
			if p, err := t.Find(number); err == nil {
				partitions = append(partitions, p)
			}
		}
		if sized, err = s.appendSizes(ctx, c, sized, t, partitions, elsewhere); err != nil {
			return nil, err
		}
	}
	return sized, nil
}

// sizeCost is the memory of the size of a partition in an answer.
const sizeCost = 128

// appendSizes appends a topic with the sizes of its partitions.
func (s *Server) appendSizes(ctx context.Context, c *call, topics []kmsg.DescribeLogDirsResponseDirTopic, t *broker.Topic, partitions []*broker.Partition, elsewhere broker.Sizes) ([]kmsg.DescribeLogDirsResponseDirTopic, error) {
	if t.Source() != nil || len(partitions) == 0 {
		return topics, nil
	}
	if err := c.memory.add(topicCost + int64(len(partitions))*sizeCost); err != nil {
		return nil, err
	}
	sized := kmsg.NewDescribeLogDirsResponseDirTopic()
	sized.Topic = t.Name()
	for _, p := range partitions {
		bytes, known, err := s.sizeOf(ctx, t, p, elsewhere)
		if errors.Is(err, topic.ErrNoLog) { // deleted in the meantime
			return topics, nil
		}
		if err != nil {
			return nil, fail(kerr.KafkaStorageError, err.Error())
		}
		if known {
			size := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			size.Partition, size.Size = p.Number(), bytes
			sized.Partitions = append(sized.Partitions, size)
		}
	}
	if len(sized.Partitions) == 0 {
		return topics, nil
	}
	return append(topics, sized), nil
}

// sizeOf returns the size of a partition that this node keeps, if it is known.
func (s *Server) sizeOf(ctx context.Context, t *broker.Topic, p *broker.Partition, elsewhere broker.Sizes) (bytes int64, known bool, err error) {
	if p.Ready() == nil {
		bytes, err = p.Bytes(ctx)
		return bytes, true, err
	}
	bytes, known = elsewhere[t.Name()][p.Number()]
	return bytes, known && slices.Contains(p.Replicas(), s.broker.Node()), nil
}
