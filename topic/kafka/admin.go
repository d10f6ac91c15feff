package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
)

// adminTime bounds what one administrative request may take, whatever timeout
// the client asks for.
const adminTime = 2 * time.Minute

// adminContext does not end when the client hangs up or loses patience: what a
// request has begun to change is finished.
func adminContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), adminTime)
}

// refused is an error with the code that it has in the protocol.
type refused struct {
	kafka *kerr.Error
	why   string
}

func (r *refused) Error() string { return r.why }
func (r *refused) Unwrap() error { return r.kafka }

// refuse is the error with that code of the protocol.
func refuse(kafka *kerr.Error, format string, args ...any) error {
	return &refused{kafka, fmt.Sprintf(format, args...)}
}

// outcome returns the code and the message of an error; 0 and nil for none.
func outcome(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	why := err.Error()
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Code, &why
	}
	return code(err), &why
}

// twice returns what is named more than once.
func twice[T any, K comparable](all []T, name func(*T) K) map[K]bool {
	seen, again := map[K]bool{}, map[K]bool{}
	for i := range all {
		key := name(&all[i])
		again[key] = seen[key]
		seen[key] = true
	}
	for key, more := range again {
		if !more {
			delete(again, key)
		}
	}
	return again
}

// checkReplicas refuses replicas of a partition that are not those it has.
func (s *Server) checkReplicas(partition int32, replicas []int32) error {
	if have := []int32{s.broker.Node()}; !slices.Equal(replicas, have) {
		return refuse(kerr.InvalidReplicaAssignment, "partition %d on brokers %v: there is one broker, so want %v", partition, replicas, have)
	}
	return nil
}

// partition returns a partition of a topic.
func (s *Server) partition(name string, number int32) (*topic.Topic, *topic.Partition, error) {
	t, err := s.broker.Topic(name)
	if err != nil {
		return nil, nil, err
	}
	p, err := t.Partition(number)
	return t, p, err
}
