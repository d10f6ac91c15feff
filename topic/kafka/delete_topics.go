package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// DeleteTopics: versions 0 to 6.
//
//   - Each topic has its own outcome: it is removed with its records, or refused.
//   - From version 6 on a topic is identified either by its name or by its id.
//   - A topic that has views is refused: delete the views first.
func (s *Server) deleteTopics(c *call, r *kmsg.DeleteTopicsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		wanted := r.Topics
		for i := range r.TopicNames {
			named := kmsg.NewDeleteTopicsRequestTopic()
			named.Topic = &r.TopicNames[i]
			wanted = append(wanted, named)
		}
		response := r.ResponseKind().(*kmsg.DeleteTopicsResponse)
		again := twice(wanted, s.nameToDelete)
		for i := range wanted {
			deleted := kmsg.NewDeleteTopicsResponseTopic()
			deleted.Topic, deleted.TopicID = wanted[i].Topic, wanted[i].TopicID
			name := s.nameToDelete(&wanted[i])
			err := c.authorize(auth.Topic, name)
			switch {
			case err != nil:
			case again[name] && (name != "" || wanted[i].Topic != nil):
				err = refuse(kerr.InvalidRequest, "the request names topic %q more than once", name)
			default:
				err = s.deleteTopic(ctx, &deleted)
			}
			deleted.ErrorCode, deleted.ErrorMessage = s.outcome("delete topic", err)
			response.Topics = append(response.Topics, deleted)
		}
		return response
	}
}

// nameToDelete returns the name of a topic to delete; empty if its id is unknown.
func (s *Server) nameToDelete(wanted *kmsg.DeleteTopicsRequestTopic) string {
	if wanted.Topic != nil {
		return *wanted.Topic
	}
	if t, err := s.broker.TopicByID(wanted.TopicID); err == nil {
		return t.Name()
	}
	return ""
}

// deleteTopic removes the topic that deleted names, and fills in its name and id.
func (s *Server) deleteTopic(ctx context.Context, deleted *kmsg.DeleteTopicsResponseTopic) error {
	byID := deleted.TopicID != topic.ID{}
	switch {
	case byID == (deleted.Topic != nil):
		return refuse(kerr.InvalidRequest, "want the name of a topic or its id, one of them")
	case byID:
		t, err := s.broker.TopicByID(deleted.TopicID)
		if err != nil {
			return refuse(kerr.UnknownTopicID, "there is no topic with the id %x", deleted.TopicID)
		}
		name := t.Name()
		deleted.Topic = &name
	default:
		// A topic that is not open may still be in the catalog.
		if t, err := s.broker.Topic(*deleted.Topic); err == nil {
			deleted.TopicID = t.ID()
		}
	}
	return s.broker.Delete(ctx, *deleted.Topic)
}
