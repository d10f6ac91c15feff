package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// CreatePartitions: versions 0 to 3.
//
//   - The count is the new number of partitions, which must be larger than the present one.
//   - An assignment has the brokers of each new partition, the preferred leader first.
//     Without one, new partitions have as many replicas as the others.
//   - With validate_only the request is checked only.
func (s *Server) createPartitions(c *call, r *kmsg.CreatePartitionsRequest) answer {
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
				err = s.growTopic(ctx, c, wanted, r.ValidateOnly)
			}
			grown.ErrorCode, grown.ErrorMessage = s.outcome("add partitions", err)
			response.Topics = append(response.Topics, grown)
		}
		return response
	}
}

// growTopic leaves all checks to the broker, which first reads the changes of other nodes.
func (s *Server) growTopic(ctx context.Context, c *call, wanted *kmsg.CreatePartitionsRequestTopic, dryRun bool) error {
	if err := c.authorize(auth.Topic, wanted.Topic); err != nil {
		return err
	}
	on := make([][]int32, len(wanted.Assignment))
	for i := range wanted.Assignment {
		on[i] = wanted.Assignment[i].Replicas
	}
	return s.broker.AddPartitions(ctx, wanted.Topic, wanted.Count, dryRun, on...)
}
