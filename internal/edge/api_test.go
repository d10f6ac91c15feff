package edge_test

import (
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	bulkapi "github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/edgetest"
	roomapi "github.com/sluice-project/sluice/room/api"
	topicapi "github.com/sluice-project/sluice/topic/api"
)

var update = flag.Bool("update", false, "write the types of the packages in sdk again")

// whole returns an API of all three parts, whose engines are never called.
func whole() *edge.API {
	to := edge.New()
	bulkapi.Register(to, struct{ bulkapi.Engine }{})
	roomapi.Register(to, struct{ roomapi.Engine }{}, nil)
	topicapi.Register(to, struct{ topicapi.Broker }{})
	return to
}

// The parts share one document: no schema and no operation of one part takes the
// name of another's.
func TestOneDocument(t *testing.T) {
	doc := edgetest.Read(t, whole())
	operations := doc.Operations()
	for _, want := range []string{"POST /v1/actions", "POST /v1/rooms/{room}/visitors", "GET /.well-known/jwks.json", "PATCH /v1/topics/{topic}", "GET /v1/cluster"} {
		if !slices.Contains(operations, want) {
			t.Errorf("the document lacks %s", want)
		}
	}
	if len(operations) != 36+20+11 {
		t.Errorf("the document has %d operations", len(operations))
	}
	for _, not := range []string{"ErrorModel", "ErrorDetail"} {
		if doc.Components.Schemas.Map()[not] != nil {
			t.Errorf("the document has %s, which is never answered", not)
		}
	}
}

// The types of the packages for TypeScript and Python are those of the document.
func TestTypes(t *testing.T) {
	document, err := edgetest.Read(t, whole()).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for file, write := range map[string]func([]byte) ([]byte, error){
		"../../sdk/typescript/types.d.ts": edgetest.TypeScript, "../../sdk/python/sluice/types.py": edgetest.Python,
	} {
		types, err := write(document)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if *update {
			if err := os.WriteFile(file, types, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := os.ReadFile(file); err != nil || string(found) != string(types) {
			t.Errorf("%s is not of this API, %v: write it again with -update", file, err)
		}
	}
}

// A path that no operation serves gets a problem as its answer, behind a mux too.
func TestUnknownRequests(t *testing.T) {
	mux := http.NewServeMux()
	whole().Mount(mux.Handle)
	for _, test := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/v1/nothing", 404, "not_found", ""},
		{"GET", "/v1/rooms/", 404, "not_found", ""},
		{"POST", "/.well-known/else", 404, "not_found", ""},
		{"DELETE", "/v1/limits", 405, "method", "GET, HEAD, PUT"},
		{"PATCH", "/v1/rooms/shop", 405, "method", "GET, HEAD, PUT, DELETE"},
		{"PUT", "/openapi.json", 405, "method", "GET, HEAD"},
		{"OPTIONS", "/v1/cluster/nodes/1/drain", 405, "method", "POST"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		var problem struct{ Code, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatalf("%s %s: %d %s", test.method, test.path, w.Code, w.Body)
		}
		if w.Code != test.status || problem.Code != test.code || w.Header().Get("Allow") != test.allow || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %v %s", test.method, test.path, w.Code, w.Header(), w.Body)
		}
	}
}

// The public handler serves what is for visitors and for everybody, and hides the rest,
// the document included.
func TestPublic(t *testing.T) {
	var served []string
	for _, operation := range edgetest.Read(t, whole()).Operations() {
		method, path, _ := strings.Cut(operation, " ")
		path = strings.NewReplacer("{", "", "}", "").Replace(path)
		w := httptest.NewRecorder()
		whole().Public().ServeHTTP(w, httptest.NewRequest(http.MethodTrace, path, nil))
		switch w.Code {
		case http.StatusMethodNotAllowed: // it is there, for other methods
			if !strings.Contains(w.Header().Get("Allow"), method) {
				t.Errorf("%s: it allows %s", operation, w.Header().Get("Allow"))
			}
			served = append(served, operation)
		case http.StatusNotFound:
			if body := w.Body.String(); !strings.Contains(body, `"not_found"`) || strings.Contains(body, "openapi") {
				t.Errorf("%s: %s", operation, body)
			}
		default:
			t.Errorf("%s: %d %s", operation, w.Code, w.Body)
		}
	}
	slices.Sort(served)
	want := []string{
		"DELETE /v1/rooms/{room}/visitors/me", "GET /.well-known/jwks.json", "GET /v1/rooms/{room}/lottery", "GET /v1/rooms/{room}/visitors/me",
		"GET /v1/rooms/{room}/visitors/me/watch", "POST /v1/rooms/{room}/visitors", "POST /v1/rooms/{room}/visitors/me/renew",
	}
	if !slices.Equal(served, want) {
		t.Errorf("it serves %q\nwant %q", served, want)
	}
	for _, path := range append([]string{"/", "/metrics", "/readyz", "/v1/", "/v1/rooms"}, edge.DocumentPaths...) {
		w := httptest.NewRecorder()
		if whole().Public().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil)); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

type (
	nothing struct{}
	item    struct {
		Group string `path:"group"`
		Name  string `path:"name"`
	}
)

// A wildcard is one segment, decoded; a segment that is named comes first.
func TestWildcards(t *testing.T) {
	to := edge.New()
	p := to.Part("test", edge.PartOptions{Logger: slog.New(slog.DiscardHandler)})
	edge.Handle[item, nothing](p, edge.Operation{ID: "show-room", Route: "GET /v1/{group}/items/{name}", Tag: "items", Summary: "An item"}, func(e *edge.Exchange) error {
		return e.AnswerValue(http.StatusOK, e.Path("group")+"|"+e.Path("name")+"|"+e.Path("else"))
	})
	edge.Handle[nothing, nothing](p, edge.Operation{ID: "list-rooms", Route: "GET /v1/own/items/all", Tag: "items", Summary: "All"}, func(e *edge.Exchange) error {
		return e.AnswerValue(http.StatusOK, "all")
	})
	for path, want := range map[string]string{
		"/v1/a/items/b":         `"a|b|"`,
		"/v1/a%2Fb/items/c%20":  `"a/b|c |"`,
		"/v1/한/items/%ED%95%9C": `"한|한|"`,
		"/v1/own/items/all":     `"all"`,
		"/v1/own/items/":        "",
		"/v1//items/b":          "",
		"/v1/a/items/b/":        "",
		"/v1/a/items":           "",
	} {
		w := httptest.NewRecorder()
		to.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if want == "" && w.Code != http.StatusNotFound || want != "" && strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
}

// The check of documents finds what is wrong with one.
func TestValidateFindsMistakes(t *testing.T) {
	const head = `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/v1/a/{b}":{"get":`
	const good = `{"operationId":"a","summary":"s","parameters":[{"in":"path","name":"b","required":true,"schema":{"type":"string"}}],"responses":{"200":{"description":"d"},"default":{"description":"d"}}}`
	if wrong := edgetest.Validate([]byte(head + good + `}}}`)); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	for _, change := range [][2]string{
		{`"operationId":"a",`, ``}, {`"summary":"s",`, ``}, {`"name":"b"`, `"name":"c"`}, {`"type":"string"`, `"type":"text"`},
		{`{"type":"string"}`, `{"$ref":"#/components/schemas/None"}`}, {`,"default":{"description":"d"}`, ``}, {`{"description":"d"}`, `{}`},
		{`"responses"`, `"security":[{"none":[]}],"responses"`},
	} {
		if wrong := edgetest.Validate([]byte(head + strings.Replace(good, change[0], change[1], 1) + `}}}`)); len(wrong) == 0 {
			t.Errorf("with %q for %q the document is taken for valid", change[1], change[0])
		}
	}
}
