package api

import (
	"net/http"
	"strings"
)

// Paths that are not below /v1/rooms.
const (
	// JWKSPath is where the keys are by which passes can be checked.
	JWKSPath = "/.well-known/jwks.json"
	// DocumentPath is where the OpenAPI document is.
	DocumentPath = "/openapi-room.json"

	roomsPath  = "/v1/rooms"
	rotatePath = "/v1/room-keys/rotate"
)

// resource is a path with its methods.
type resource struct {
	operations []operation
	// forVisitors says that pages of other origins may be allowed to call it, and
	// forAll that all may.
	forVisitors, forAll bool
}

// operation is a method of a path.
type operation struct {
	method string
	run    func(*server, *exchange) error
	// maxBody is the most bytes of the body; 0: a body of up to MaxBody is ignored.
	maxBody int
	// parameters are those of the query that there may be.
	parameters []string
}

// fixed are the resources by their path.
var fixed = map[string]*resource{
	roomsPath:    {operations: []operation{{method: "GET", run: (*server).listRooms}}},
	rotatePath:   {operations: []operation{{method: "POST", run: (*server).rotateKeys}}},
	JWKSPath:     {operations: []operation{{method: "GET", run: (*server).jwks}}, forAll: true},
	DocumentPath: {operations: []operation{{method: "GET", run: (*server).document}}},
}

// ofRoom are the resources of a room, by what follows its name.
var ofRoom = map[string]*resource{
	"": {operations: []operation{
		{method: "GET", run: (*server).showRoom},
		{method: "PUT", run: (*server).putRoom, maxBody: MaxSettings},
		{method: "DELETE", run: (*server).deleteRoom},
	}},
	"/visitors": {forVisitors: true, operations: []operation{{method: "POST", run: (*server).enter, maxBody: MaxBody}}},
	"/visitors/me": {forVisitors: true, operations: []operation{
		{method: "GET", run: (*server).me, parameters: []string{"wait_ms", "position"}},
		{method: "DELETE", run: (*server).leave},
	}},
	"/visitors/me/watch": {forVisitors: true, operations: []operation{{method: "GET", run: (*server).watch, parameters: []string{"ticket"}}}},
	"/visitors/me/renew": {forVisitors: true, operations: []operation{{method: "POST", run: (*server).renew}}},
	"/lottery":           {forVisitors: true, operations: []operation{{method: "GET", run: (*server).lottery}}},
	"/pause":             {operations: []operation{{method: "POST", run: (*server).pause}}},
	"/resume":            {operations: []operation{{method: "POST", run: (*server).resume}}},
	"/revoke":            {operations: []operation{{method: "POST", run: (*server).revoke, maxBody: MaxBody}}},
}

// find returns what a path names, and the name of the room; nil if it names
// nothing.
func find(path string) (*resource, string) {
	name, ok := strings.CutPrefix(path, roomsPath+"/")
	if !ok {
		return fixed[path], ""
	}
	rest := ""
	if slash := strings.IndexByte(name, '/'); slash >= 0 {
		name, rest = name[:slash], name[slash:]
	}
	if name == "" {
		return nil, ""
	}
	return ofRoom[rest], name
}

// operation returns that of a method; nil if there is none. HEAD is GET without
// its body.
func (o *resource) operation(method string) *operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range o.operations {
		if o.operations[i].method == method {
			return &o.operations[i]
		}
	}
	return nil
}

// methods lists those of a resource.
func (o *resource) methods() string {
	var names []string
	for i := range o.operations {
		names = append(names, o.operations[i].method)
		if o.operations[i].method == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	return strings.Join(names, ", ")
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := exchanges.Get().(*exchange)
	defer e.release()
	e.w, e.r = w, r
	if err := s.serve(e); err != nil {
		s.refuse(e, err)
	}
}

func (s *server) serve(e *exchange) error {
	what, name := find(e.r.URL.Path)
	if what == nil {
		return newProblem(http.StatusNotFound, CodeNotFound, "there is no "+e.r.URL.Path+"; see "+DocumentPath)
	}
	e.room = name
	if s.allow(e, what) && preflight(e.r) {
		s.permit(e, what)
		return nil
	}
	operation := what.operation(e.r.Method)
	if operation == nil {
		e.w.Header().Set("Allow", what.methods())
		return newProblem(http.StatusMethodNotAllowed, CodeMethod, e.r.URL.Path+" has only "+what.methods())
	}
	if !what.forVisitors {
		if err := ownPages.Check(e.r); err != nil {
			return newProblem(http.StatusForbidden, CodeCrossOrigin, "a page of another origin may not do this")
		}
	}
	if e.r.URL.RawQuery != "" {
		if err := e.parseQuery(operation.parameters); err != nil {
			return err
		}
	}
	if e.r.ContentLength != 0 {
		if err := e.readBody(operation.maxBody); err != nil {
			return err
		}
	}
	return operation.run(s, e)
}
