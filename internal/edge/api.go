package edge

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// DocumentPaths are where the OpenAPI document is. The first is the one to use; the
// others stay for those who know them.
var DocumentPaths = []string{"/openapi.json", "/openapi-room.json", "/openapi-topic.json"}

// API serves the operations of all parts, and their document.
type API struct {
	framework huma.API
	routes    node
	guard     Guard
	load      Load // nil: none

	mu        sync.Mutex
	described []func(huma.API) // handlers of their own that the document lacks yet
	document  []byte
}

// Guard decides who may call an operation.
type Guard interface {
	// Admit returns the request with who sent it in its context, or the problem that refuses it, for
	// an operation, by its id, that needs a right. It reads no body.
	Admit(w http.ResponseWriter, r *http.Request, operation string, right access.Right) (*http.Request, *Error)
}

// New returns an API without operations, which anybody may call. Parts register theirs before it serves.
func New() *API { return NewGuarded(everybody{}, nil) }

type everybody struct{}

// Admit implements Guard.
func (everybody) Admit(_ http.ResponseWriter, r *http.Request, _ string, _ access.Right) (*http.Request, *Error) {
	return r, nil
}

// NewGuarded is New with a guard of the operations that are not for the public, and a bound on the load of all; nil:
// there is no bound.
func NewGuarded(guard Guard, load Load) *API {
	a := &API{guard: guard, load: load}
	a.framework = huma.NewAPI(a.config(), binding{a, nil})
	return a
}

// Mount serves the API at its patterns.
func (a *API) Mount(handle func(pattern string, handler http.Handler)) {
	for _, path := range append([]string{"/v1/", "/.well-known/"}, DocumentPaths...) {
		handle(path, a)
	}
}

// PartOptions are what a part adds to its operations.
type PartOptions struct {
	// Logger gets the faults of the server, each kind at most once a second.
	Logger *slog.Logger
	// Refuse returns the problem of an error, or nil if it has none.
	Refuse func(error) *Error
	// Explain says what is wrong with a field in words of the part, or "".
	Explain func(field string, detail *huma.ErrorDetail) string
	// Middlewares run before the operations that the framework serves.
	Middlewares huma.Middlewares
	// MaxBody is the most bytes of a body. Default: MaxBody.
	MaxBody int64
	// Origins are those whose pages Visitors are on, such as "https://shop.example"; "*" is all.
	Origins []string
	// Security has the schemes that operations name.
	Security map[string]*huma.SecurityScheme
	// Schemas are types, by those whose place they take in the document.
	Schemas map[reflect.Type]reflect.Type
}

// Part registers the operations of one part.
type Part struct {
	api     *API
	options PartOptions
	turns   Turns // nil: requests begin at once
	faults  faultLog
}

// Part returns a part of a name, which the log uses.
func (a *API) Part(name string, options PartOptions) *Part {
	options.MaxBody = cmp.Or(options.MaxBody, MaxBody)
	p := &Part{api: a, options: options, faults: faultLog{part: name, logger: options.Logger}}
	if a.load != nil {
		p.turns = a.load.Part(name)
	}
	return p
}

// Register adds an operation whose input the framework decodes and validates.
func Register[I, O any](p *Part, op Operation, handler func(context.Context, *I) (*O, error)) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	a.document = nil
	described := p.describe(a.framework, &op)
	described.Middlewares = p.options.Middlewares
	huma.Register(a.framework, described, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, p.refusal(ctx, op.ID, err)
		}
		return out, nil
	})
}

// Handle adds an operation that has its own handler. I and O describe it as they
// would for Register: the parameters of the query and whether there is a body come
// from I.
func Handle[I, O any](p *Part, op Operation, run func(*Exchange) error) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	a.document = nil
	in := reflect.TypeFor[I]()
	_, readsBody := in.FieldByName("Body")
	method, path, _ := strings.Cut(op.Route, " ")
	e := &endpoint{
		part: p, id: op.ID, method: method, audience: op.Audience, right: access.Operation(op.ID),
		run: run, readsBody: readsBody, maxBody: cmp.Or(op.MaxBody, p.options.MaxBody),
	}
	for _, field := range reflect.VisibleFields(in) {
		if name := field.Tag.Get("query"); name != "" {
			e.parameters = append(e.parameters, name)
		}
	}
	a.routes.add(path).serve(e)
	a.described = append(a.described, func(framework huma.API) {
		huma.Register[I, O](framework, p.describe(framework, &op), nil)
	})
}

// binding is the framework's way to routes. With nowhere set it only describes.
type binding struct {
	*API
	nowhere *struct{}
}

// Handle implements huma.Adapter.
func (b binding) Handle(op *huma.Operation, handler func(huma.Context)) {
	if b.nowhere != nil {
		return
	}
	b.routes.add(op.Path).serve(&endpoint{
		part: op.Metadata[partOf].(*Part), id: op.OperationID, method: op.Method, right: access.Operation(op.OperationID), framework: handler, operation: op,
	})
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var found values
	here := a.routes.find(r.URL, &found)
	if here == nil {
		if slices.Contains(DocumentPaths, r.URL.Path) {
			a.serveDocument(w, r)
			return
		}
		Refuse(http.StatusNotFound, problem.NotFound, "there is no "+r.Method+" "+r.URL.Path+"; see "+DocumentPaths[0]).Write(w)
		return
	}
	here.answer(found, w, r, false)
}

// Public returns a handler of the operations that are not for operators. It serves no
// document.
func (a *API) Public() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var found values
		here := a.routes.find(r.URL, &found)
		if here == nil || !here.public() {
			Refuse(http.StatusNotFound, problem.NotFound, "there is no "+r.Method+" "+r.URL.Path+" here").Write(w)
			return
		}
		here.answer(found, w, r, true)
	})
}

// answer answers a request for a resource, which may be one of Public.
func (r *resource) answer(found values, w http.ResponseWriter, request *http.Request, public bool) {
	if r.allow(w, request) && preflight(request) {
		r.permit(w)
		return
	}
	e := r.endpoint(request.Method)
	if e == nil {
		methods := r.methods()
		Refuse(http.StatusMethodNotAllowed, problem.Method, request.URL.Path+" has only "+methods).Set("Allow", methods).Write(w)
		return
	}
	if e.audience == Operators {
		if err := ownPages.Check(request); err != nil {
			Refuse(http.StatusForbidden, problem.CrossOrigin, "a page of another origin may not do this: "+err.Error()).Write(w)
			return
		}
	}
	if !public {
		var refusal *Error
		if request, refusal = e.part.api.guard.Admit(w, request, e.id, e.right); refusal != nil {
			refusal.Write(w)
			return
		}
	}
	if refusal := e.begin(w, request); refusal != nil {
		refusal.Write(w)
		return
	}
	if e.run != nil {
		e.exchange(r.names, found, w, request, public)
		return
	}
	for i, name := range r.names {
		request.SetPathValue(name, found.texts[i])
	}
	e.framework(humago.NewContext(e.operation, request, w))
}

// exchange runs a handler of its own.
func (e *endpoint) exchange(names []string, found values, w http.ResponseWriter, r *http.Request, public bool) {
	x := exchanges.Get().(*Exchange)
	defer x.release()
	x.W, x.R, x.Public, x.endpoint, x.names, x.values = w, r, public, e, names, found
	if err := x.serve(); err != nil {
		e.part.refusal(r.Context(), e.id, err).Write(w)
	}
}
