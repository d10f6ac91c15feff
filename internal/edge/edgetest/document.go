package edgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/internal/edge"
)

// Document is the OpenAPI document of an API.
type Document struct{ *huma.OpenAPI }

// Read returns the document of an API, which is valid and the same at each path.
func Read(t testing.TB, handler http.Handler) Document {
	t.Helper()
	var first []byte
	for _, path := range edge.DocumentPaths {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/openapi+json" {
			t.Fatalf("%s: %d %v", path, w.Code, w.Header())
		}
		if first == nil {
			first = w.Body.Bytes()
		}
		if !bytes.Equal(w.Body.Bytes(), first) {
			t.Errorf("%s is not the document of %s", path, edge.DocumentPaths[0])
		}
	}
	for _, wrong := range Validate(first) {
		t.Error(wrong)
	}
	return Document{handler.(*edge.API).OpenAPI()}
}

// Operations returns all operations, such as "GET /v1/rooms".
func (d Document) Operations() []string {
	var all []string
	for path, item := range d.Paths {
		for method, op := range Methods(item) {
			if op != nil {
				all = append(all, method+" "+path)
			}
		}
	}
	return all
}

// Methods returns the operations of a path, by their methods; nil: there is none.
func Methods(item *huma.PathItem) map[string]*huma.Operation {
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
	}
}

// find returns the operation of a request, or nil.
func (d Document) find(r *http.Request) *huma.Operation {
	got := strings.Split(r.URL.EscapedPath(), "/")
	for path, item := range d.Paths {
		want := strings.Split(path, "/")
		matches := len(want) == len(got)
		for i := 0; matches && i < len(want); i++ {
			matches = want[i] == got[i] || strings.HasPrefix(want[i], "{") && got[i] != ""
		}
		if matches {
			return Methods(item)[r.Method]
		}
	}
	return nil
}

// Conforms returns an error if an answer is not as the document says. An operation
// that the document lacks is an error unless the answer is 404 or 405.
func (d Document) Conforms(r *http.Request, w *httptest.ResponseRecorder) error {
	op := d.find(r)
	if op == nil {
		if w.Code == http.StatusNotFound || w.Code == http.StatusMethodNotAllowed || r.Method == http.MethodOptions || r.Method == http.MethodHead {
			return nil
		}
		return fmt.Errorf("%s %s is not in the document", r.Method, r.URL)
	}
	response := op.Responses[strconv.Itoa(w.Code)]
	if response == nil && w.Code >= http.StatusBadRequest {
		response = op.Responses["default"]
	}
	if response == nil {
		return fmt.Errorf("%s has no answer %d", op.OperationID, w.Code)
	}
	if len(response.Content) == 0 {
		if w.Body.Len() > 0 {
			return fmt.Errorf("%s: the document has no body for %d", op.OperationID, w.Code)
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	media := response.Content[kind]
	if err != nil || media == nil {
		return fmt.Errorf("%s: the document has no content type %q for %d", op.OperationID, kind, w.Code)
	}
	if strings.HasPrefix(kind, "text/") {
		return nil
	}
	var value any
	if err := json.Unmarshal(w.Body.Bytes(), &value); err != nil {
		return fmt.Errorf("%s: %w", op.OperationID, err)
	}
	return d.Fits(media.Schema, value)
}

// Fits returns an error if a value, as encoding/json decodes it, does not match a
// schema.
func (d Document) Fits(schema *huma.Schema, value any) error {
	var result huma.ValidateResult
	huma.Validate(d.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, &result)
	if len(result.Errors) > 0 {
		return fmt.Errorf("not as the document says: %v", result.Errors)
	}
	return nil
}
