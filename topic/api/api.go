package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-project/sluice/topic"
)

// Version is that of the API, as the OpenAPI document has it.
const Version = "1.0"

// DocumentPath is where the OpenAPI document is.
const DocumentPath = "/openapi-topic.json"

// MaxDelayed is the most records of one list. If the client does not say it is
// 100.
const (
	MaxDelayed = 1000
)

// Broker is what the edge needs of topic's broker, whose methods say what each
// promises.
type Broker interface {
	Node() int32
	ClusterID() string
	Nodes() []topic.Node
	Topics() []*topic.Topic
	Topic(name string) (*topic.Topic, error)
	Delayed(ctx context.Context, topic string, limit int) ([]topic.DelayedInfo, error)
	CancelDelayed(ctx context.Context, topic, id string) error
	AwaitReplicas(ctx context.Context, partitions []*topic.Partition)
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
	Reassignments(ctx context.Context) ([]topic.Reassignment, error)
}

// Option changes what New makes.
type Option func(*server)

// WithLogger sets where answers of 500 and above are logged. Default: nowhere.
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.logger = logger } }

// server has what the operations share.
type server struct {
	broker Broker
	logger *slog.Logger
	nodes  *http.Client // asks other nodes
}

// New returns the handler of topic's API: all paths below /v1/topics/ and
// /v1/cluster, and DocumentPath.
func New(broker Broker, options ...Option) http.Handler {
	s := &server{broker: broker, logger: slog.New(slog.DiscardHandler), nodes: newNodeClient()}
	for _, option := range options {
		option(s)
	}
	mux := http.NewServeMux()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Sluice topic", Version: Version,
				Description: "Delayed records of topics, and the nodes of a cluster. Everything else of topics speaks the Kafka protocol.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)},
		},
		OpenAPIPath:                  "/openapi-topic",
		Formats:                      huma.DefaultFormats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{s.reshape},
	})
	s.register(api)
	// The library's own error schemas are never written: reshape replaces them.
	delete(api.OpenAPI().Components.Schemas.Map(), "ErrorModel")
	delete(api.OpenAPI().Components.Schemas.Map(), "ErrorDetail")
	mux.HandleFunc("/", notServed)
	return fromOwnPages(mux)
}

// register adds the operations, and what they answer when they fail.
func (s *server) register(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-delayed", Method: http.MethodGet, Path: "/v1/topics/{topic}/delayed",
		Summary: "Records of a topic that wait until they are due", Tags: []string{"topics"}, Responses: problems(api),
	}, s.delayed)
	huma.Register(api, huma.Operation{
		OperationID: "cancel-delayed", Method: http.MethodDelete, Path: "/v1/topics/{topic}/delayed/{id}",
		Summary: "Take a record out before it is due", Tags: []string{"topics"}, DefaultStatus: http.StatusNoContent, Responses: problems(api),
	}, s.cancel)
	s.registerCluster(api)
}
