package api

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// Version is that of the API, as the OpenAPI document has it.
const Version = "1.0"

// Option changes what New makes.
type Option func(*server)

// WithLogger sets where answers of 500 and above are logged. Default:
// slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.logger = logger } }

// WithConfig sets the engine's config, which says what holds where no setting
// was stored. Default: the defaults of bulk.Config.
func WithConfig(config bulk.Config) Option {
	return func(s *server) { s.config = config.WithDefaults() }
}

// server has what the operations share.
type server struct {
	engine  Engine
	config  bulk.Config
	logger  *slog.Logger
	tracer  trace.Tracer
	uploads *gate
	watches *gate
}

// New returns the handler of bulk's API: all paths below /v1/, and
// /openapi.json. It needs no shutdown of its own, but a watch ends and a lease
// request stops waiting only when the context of its request ends; so a server
// that drains should end the context that it gives to requests.
func New(engine Engine, options ...Option) http.Handler {
	s := &server{
		engine:  engine,
		config:  bulk.Config{}.WithDefaults(),
		logger:  slog.Default(),
		uploads: newGate(MaxUploads, uploadWait),
		watches: newGate(maxWatches, 0),
	}
	for _, option := range options {
		option(s)
	}
	mux := http.NewServeMux()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Sluice bulk",
				Version:     Version,
				Description: "Bulk actions of many tenants, fairly scheduled.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			},
		},
		Formats:                      huma.DefaultFormats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{s.reshape},
	})
	if s.tracer != nil {
		api.UseMiddleware(s.trace)
	}
	s.registerActions(api)
	s.registerJobs(api)
	s.registerWatch(api)
	s.registerLeases(api)
	s.registerDeadLetters(api)
	s.registerSettings(api)
	s.registerSchedules(api)
	mux.Handle("GET /openapi.json", document(api))
	return &edge{mux: mux}
}

// document serves the OpenAPI document.
func document(api huma.API) http.Handler {
	// The library's own error schemas are never written: reshape replaces them.
	schemas := api.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	text, err := json.Marshal(api.OpenAPI())
	if err != nil {
		panic("api: the OpenAPI document cannot be written: " + err.Error())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(text)
	})
}

// operation describes an operation by its pattern, such as "GET /v1/limits".
func operation(api huma.API, id, pattern, summary string) huma.Operation {
	method, path, _ := strings.Cut(pattern, " ")
	group := strings.Split(path, "/")[2]
	problem := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Problem](), true, "")
	return huma.Operation{
		OperationID: id,
		Method:      method,
		Path:        path,
		Summary:     summary,
		Tags:        []string{group},
		// The library refuses a body of exactly its limit.
		MaxBodyBytes: maxBody + 1,
		// The edge sets the deadline of every body; this one would outlive it.
		BodyReadTimeout: -1,
		Responses: map[string]*huma.Response{
			"default": {
				Description: "What was wrong, and what would be right.",
				Content:     map[string]*huma.MediaType{problemType: {Schema: problem}},
			},
		},
	}
}
