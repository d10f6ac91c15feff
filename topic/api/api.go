package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/delay"
)

// MaxDelayed is the most records of one list. Default of a request: 100.
const MaxDelayed = 1000

// Broker is what the edge needs of topic's broker, whose methods say what each
// promises.
type Broker interface {
	Node() int32
	ClusterID() string
	Nodes() []topic.Node
	Topics() []*broker.Topic
	Topic(name string) (*broker.Topic, error)
	Delayed(ctx context.Context, topic string, limit int) ([]delay.Waiting, error)
	CancelDelayed(ctx context.Context, topic, id string) error
	GroupLag(ctx context.Context, group string) ([]broker.Lag, error)
	AwaitReplicas(ctx context.Context, partitions []*broker.Partition)
	Administrator
}

// Administrator is what it needs to change a cluster.
type Administrator interface {
	Drain(ctx context.Context, node int32, drain bool) (moves int, err error)
	RemoveNode(ctx context.Context, node int32) error
	Balance(ctx context.Context) (moves int, err error)
	AddPartitions(ctx context.Context, topic string, count int32, dryRun bool, assignments ...[]int32) error
	SetReplicas(ctx context.Context, topic string, replicas int) error
	RemovePartitions(ctx context.Context, topic string, count int32, grace time.Duration) error
	ElectLeaders(ctx context.Context, topic string, partitions []int32) (refused map[int32]error, err error)
	Reassignments(ctx context.Context) ([]broker.Reassignment, error)
}

// Option changes what Register adds.
type Option func(*server)

// WithLogger sets where faults of the server are logged, each kind at most once a
// second. Default: nowhere.
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.logger = logger } }

// server has what the operations share.
type server struct {
	broker Broker
	part   *edge.Part
	logger *slog.Logger
}

// New returns an API of topic alone, as Register adds it.
func New(broker Broker, options ...Option) http.Handler {
	to := edge.New()
	Register(to, broker, options...)
	return to
}

// Register adds the operations of topic to an API.
func Register(to *edge.API, broker Broker, options ...Option) {
	s := &server{broker: scoped{broker}, logger: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		option(s)
	}
	s.part = to.Part("topic", edge.PartOptions{Logger: s.logger, Refuse: refuse})
	register(s, "list-delayed", "GET /v1/topics/{topic}/delayed", "Records of a topic that wait until they are due", s.delayed)
	registerDone(s, "cancel-delayed", "DELETE /v1/topics/{topic}/delayed/{id}", "Cancel a record before it is due", s.cancel)
	register(s, "show-group", "GET /v1/groups/{group}", "How far a consumer group has read, and its lag", s.group)
	registerDone(s, "change-topic", "PATCH /v1/topics/{topic}", "Change how many replicas or partitions a topic has", s.changeTopic)
	s.registerCluster()
}

// register adds an operation that answers with an object, registerDone one that
// answers 204.
func register[I, O any](s *server, id, route, summary string, handler func(context.Context, *I) (*O, error)) {
	edge.Register(s.part, edge.Operation{ID: id, Route: route, Summary: summary}, handler)
}

func registerDone[I any](s *server, id, route, summary string, handler func(context.Context, *I) error) {
	edge.Register(s.part, edge.Operation{ID: id, Route: route, Summary: summary, Status: http.StatusNoContent},
		func(ctx context.Context, in *I) (*struct{}, error) { return nil, handler(ctx, in) })
}
