package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions: versions 0 to 3.
//
//   - The count is the number of partitions that the topic then has; it must be
//     more than it has.
//   - An assignment has one entry for each new partition, and is taken if it
//     says what would be done anyway.
//   - With validate_only nothing is made.
func (s *Server) createPartitions(_ *call, r *kmsg.CreatePartitionsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.CreatePartitionsResponse)
		again := twice(r.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
		for i := range r.Topics {
			wanted := &r.Topics[i]
			grown := kmsg.NewCreatePartitionsResponseTopic()
			grown.Topic = wanted.Topic
			var err error
			if again[wanted.Topic] {
				err = refuse(kerr.InvalidRequest, "the request names topic %q more than once", wanted.Topic)
			} else {
				err = s.growTopic(ctx, wanted, r.ValidateOnly)
			}
			grown.ErrorCode, grown.ErrorMessage = s.outcome("add partitions", err)
			response.Topics = append(response.Topics, grown)
		}
		return response
	}
}

func (s *Server) growTopic(ctx context.Context, wanted *kmsg.CreatePartitionsRequestTopic, dryRun bool) error {
	t, err := s.broker.Topic(wanted.Topic)
	if err != nil {
		return err
	}
	have := int32(len(t.Partitions()))
	if wanted.Count <= have {
		return refuse(kerr.InvalidPartitions, "topic %q has %d partitions: want more than that, not %d", wanted.Topic, have, wanted.Count)
	}
	if wanted.Assignment != nil && int64(len(wanted.Assignment)) != int64(wanted.Count)-int64(have) {
		return refuse(kerr.InvalidReplicaAssignment, "the assignment is for %d partitions, %d are new", len(wanted.Assignment), wanted.Count-have)
	}
	for i := range wanted.Assignment {
		if err := s.checkReplicas(have+int32(i), wanted.Assignment[i].Replicas); err != nil {
			return err
		}
	}
	return s.broker.AddPartitions(ctx, wanted.Topic, wanted.Count, dryRun)
}
