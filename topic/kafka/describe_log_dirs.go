package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// logDir is the name of the one place where records are kept.
const logDir = "data"

// DescribeLogDirs: versions 0 to 4.
//
//   - One directory with the size of each partition that was asked for, or of all.
//   - What does not exist is left out, as are views: they keep nothing.
//   - The size of the disk is not told: it is -1.
func (s *Server) describeLogDirs(_ *call, r *kmsg.DescribeLogDirsRequest) answer {
	response := r.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = logDir
	dir.TotalBytes, dir.UsableBytes = -1, -1
	if r.Topics == nil {
		for _, t := range s.broker.Topics() {
			dir.Topics = appendSizes(dir.Topics, t, t.Partitions())
		}
	}
	for i := range r.Topics {
		t, err := s.broker.Topic(r.Topics[i].Topic)
		if err != nil {
			continue
		}
		var partitions []*topic.Partition
		for _, number := range r.Topics[i].Partitions {
			if p, err := t.Partition(number); err == nil {
				partitions = append(partitions, p)
			}
		}
		dir.Topics = appendSizes(dir.Topics, t, partitions)
	}
	response.Dirs = append(response.Dirs, dir)
	return respond(response)
}

// appendSizes appends a topic with the sizes of its partitions.
func appendSizes(topics []kmsg.DescribeLogDirsResponseDirTopic, t *topic.Topic, partitions []*topic.Partition) []kmsg.DescribeLogDirsResponseDirTopic {
	if t.Source() != nil || len(partitions) == 0 {
		return topics
	}
	sized := kmsg.NewDescribeLogDirsResponseDirTopic()
	sized.Topic = t.Name()
	for _, p := range partitions {
		size := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		size.Partition, size.Size = p.Number(), p.Bytes()
		sized.Partitions = append(sized.Partitions, size)
	}
	return append(topics, sized)
}
