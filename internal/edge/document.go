package edge

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// Version is that of the API, as the document has it.
const Version = "1.0"

// tokenScheme is the scheme by which operators and their programs show who they are.
const tokenScheme = "token"

// Operation describes a method of a path beyond what the types of its input and
// output say.
type Operation struct {
	ID string
	// Route is the method and the path, such as "GET /v1/rooms/{room}".
	Route string
	// Tag groups the operations of the document. Default: the segment after /v1/.
	Tag                  string
	Summary, Description string
	// Status is that of a success. Default: 200, or 204 without a body.
	Status int
	// Answers are the successes that the output type does not describe.
	Answers []Answer
	// Reads are the content types of a body that is not JSON.
	Reads []string
	// MaxBody is the most bytes of a body. Default: that of the part.
	MaxBody int64
	// Audience says whom it is for. Default: Operators. A handler of its own may have
	// another.
	Audience Audience
	// Security names the schemes of which one is needed.
	Security []string
}

// Answer describes a success.
type Answer struct {
	Status      int
	Description string
	// Of is a value of the type of the body, nil if there is none.
	Of any
	// Type is the content type. Default: JSON. An event stream has Of as the data of
	// its events; any other type is text.
	Type string
}

func (a *API) config() huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "View")
	})
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Sluice",
				Version: Version,
				Description: "Virtual waiting rooms: people in a fair line. Bulk actions of many tenants, fairly scheduled. " +
					"Delayed records of topics, and the nodes of a cluster; everything else of topics speaks the Kafka protocol.",
				License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{Schemas: schemas, SecuritySchemes: map[string]*huma.SecurityScheme{
				tokenScheme: {Type: "http", Scheme: "bearer", Description: "A token, where the server has accounts."},
			}},
		},
		Formats:                      formats(),
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{reshape},
	}
}

// describe returns an operation as the framework has it.
func (p *Part) describe(framework huma.API, op *Operation) huma.Operation {
	components := framework.OpenAPI().Components
	for of, as := range p.options.Schemas {
		components.Schemas.RegisterTypeAlias(of, as)
	}
	maps.Copy(components.SecuritySchemes, p.options.Security)
	method, path, _ := strings.Cut(op.Route, " ")
	described := huma.Operation{
		OperationID: op.ID, Method: method, Path: path, Summary: op.Summary, Description: op.Description,
		Tags: []string{cmp.Or(op.Tag, strings.Split(path, "/")[2])}, DefaultStatus: op.Status,
		// The framework refuses a body of exactly its limit.
		MaxBodyBytes: cmp.Or(op.MaxBody, p.options.MaxBody) + 1,
		// The edge sets the deadline of each body; this one would outlive it.
		BodyReadTimeout: -1,
		Metadata:        map[string]any{partOf: p},
		Responses: map[string]*huma.Response{"default": {
			Description: "What is wrong, and what would be right.",
			Content:     map[string]*huma.MediaType{problemType: {Schema: schemaOf(framework, problem.Problem{})}},
			Headers: map[string]*huma.Param{"Retry-After": {
				Description: "Seconds after which a retry may succeed.", Schema: &huma.Schema{Type: huma.TypeInteger},
			}},
		}},
	}
	if right := access.Operation(op.ID); right != access.Open {
		described.Security = append(described.Security, map[string][]string{tokenScheme: {}})
		described.Description = strings.TrimSpace(op.Description + " Needs the right " + right.String() + ", of the roles " + access.JoinRoles(access.RolesWith(right)) + ".")
	}
	for _, name := range op.Security {
		described.Security = append(described.Security, map[string][]string{name: {}})
	}
	if len(op.Reads) > 0 {
		described.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for _, contentType := range op.Reads {
			described.RequestBody.Content[contentType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
	}
	for _, answer := range op.Answers {
		status := strconv.Itoa(answer.Status)
		response := described.Responses[status]
		if response == nil {
			response = &huma.Response{Content: map[string]*huma.MediaType{}}
			described.Responses[status] = response
		}
		response.Description = answer.Description
		answer.describe(framework, response)
	}
	return described
}

func (a *Answer) describe(framework huma.API, response *huma.Response) {
	switch a.Type {
	case "":
		if a.Of != nil {
			response.Content["application/json"] = &huma.MediaType{Schema: schemaOf(framework, a.Of)}
		}
	case "text/event-stream":
		response.Content[a.Type] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Extensions: map[string]any{
			"contentMediaType": "application/json", "contentSchema": schemaOf(framework, a.Of),
		}}}
	default:
		schema := &huma.Schema{Type: huma.TypeString}
		if a.Of != nil {
			schema = schemaOf(framework, a.Of)
		}
		response.Content[a.Type] = &huma.MediaType{Schema: schema}
	}
}

func schemaOf(framework huma.API, value any) *huma.Schema {
	return framework.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(value), true, "")
}

// OpenAPI returns the document as an object.
func (a *API) OpenAPI() *huma.OpenAPI {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.openAPI()
}

// openAPI describes what is not described yet. a.mu is held.
func (a *API) openAPI() *huma.OpenAPI {
	config := a.config()
	config.OpenAPI = a.framework.OpenAPI()
	only := huma.NewAPI(config, binding{a, &struct{}{}})
	for _, describe := range a.described {
		describe(only)
	}
	a.described = nil
	// The framework's own error schemas are never written: reshape replaces them.
	schemas := config.OpenAPI.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	return config.OpenAPI
}

// serveDocument answers with the document.
func (a *API) serveDocument(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		Refuse(http.StatusMethodNotAllowed, problem.Method, r.URL.Path+" has only GET, HEAD").Set("Allow", "GET, HEAD").Write(w)
		return
	}
	a.mu.Lock()
	if a.document == nil {
		text, err := json.Marshal(a.openAPI())
		if err != nil {
			a.mu.Unlock()
			panic("edge: the OpenAPI document cannot be written: " + err.Error())
		}
		a.document = text
	}
	text := a.document
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/openapi+json")
	_, _ = w.Write(text) // The client is gone if it fails.
}
