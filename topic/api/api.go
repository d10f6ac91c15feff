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
	Delayed(ctx context.Context, topic string, limit int) ([]topic.DelayedInfo, error)
	CancelDelayed(ctx context.Context, topic, id string) error
}

// Option changes what New makes.
type Option func(*server)

// WithLogger sets where answers of 500 and above are logged. Default: nowhere.
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.logger = logger } }

// server has what the operations share.
type server struct {
	broker Broker
	logger *slog.Logger
}

// New returns the handler of topic's API: all paths below /v1/topics/, and
// DocumentPath.
func New(broker Broker, options ...Option) http.Handler {
	s := &server{broker: broker, logger: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		option(s)
	}
	mux := http.NewServeMux()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Sluice topic", Version: Version,
				Description: "Delayed records of topics. Everything else of topics speaks the Kafka protocol.",
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
	return mux
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
}

// Delayed is a record that waits until it is due.
type Delayed struct {
	ID        string    `json:"id" doc:"What it is canceled by: its header sluice-id, or made for it."`
	Partition int32     `json:"partition" doc:"Where it will appear."`
	DeliverAt time.Time `json:"deliver_at" doc:"When it is due."`
}

// DelayedList are records that wait.
type DelayedList struct {
	Delayed []Delayed `json:"delayed" nullable:"false" doc:"Those first that are due first."`
}

type inDelayed struct {
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most records of the answer."`
}

type outDelayed struct{ Body DelayedList }

func (s *server) delayed(ctx context.Context, in *inDelayed) (*outDelayed, error) {
	records, err := s.broker.Delayed(ctx, in.Topic, in.Limit)
	if err != nil {
		return nil, s.refuse(ctx, err)
	}
	out := &outDelayed{Body: DelayedList{Delayed: make([]Delayed, 0, len(records))}}
	for _, record := range records {
		out.Body.Delayed = append(out.Body.Delayed, Delayed{record.ID, record.Partition, record.DeliverAt.UTC()})
	}
	return out, nil
}

type inCancel struct {
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	ID    string `path:"id" maxLength:"256" doc:"The id of a delayed record."`
}

func (s *server) cancel(ctx context.Context, in *inCancel) (*struct{}, error) {
	if err := s.broker.CancelDelayed(ctx, in.Topic, in.ID); err != nil {
		return nil, s.refuse(ctx, err)
	}
	return nil, nil
}
