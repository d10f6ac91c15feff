package edge_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/internal/edge"
)

// A request may allocate so many bytes for each of its own, besides the first ones; and its answer may
// be so long.
const (
	memoryFactor = 64
	memoryFloor  = 16 << 20
	mostAnswer   = 64 << 10
)

// costly are bodies of about n bytes that cost a parser or a validator the most: nested, of
// many values, of many unknown or repeated names, of escapes, and cut.
var costly = map[string]func(n int) string{
	"nested lists":   func(n int) string { return strings.Repeat("[", n/2) + strings.Repeat("]", n/2) },
	"nested objects": func(n int) string { return strings.Repeat(`{"a":`, n/6) + "1" + strings.Repeat("}", n/6) },
	"numbers":        func(n int) string { return "[" + strings.Repeat("1,", n/2) + "1]" },
	"empty lists":    func(n int) string { return "[" + strings.Repeat("[],", n/3) + "[]]" },
	"empty objects":  func(n int) string { return "[" + strings.Repeat("{},", n/3) + "{}]" },
	"a long text":    func(n int) string { return `{"id":"` + strings.Repeat("a", n) + `"}` },
	"escapes":        func(n int) string { return `{"id":"` + strings.Repeat(`\u0001`, n/6) + `"}` },
	"a long number":  func(n int) string { return `{"id":` + strings.Repeat("9", n) + `}` },
	"unknown names":  func(n int) string { return manyNames(n, func(i int) string { return fmt.Sprintf(`"x%d":1`, i) }) },
	"one name":       func(n int) string { return manyNames(n, func(int) string { return `"id":""` }) },
	"cut":            func(n int) string { return `{"id":["` + strings.Repeat("a", n) },
}

func manyNames(n int, name func(i int) string) string {
	var b strings.Builder
	b.WriteString("{" + name(0))
	for i := 1; b.Len() < n; i++ {
		b.WriteString("," + name(i))
	}
	return b.String() + "}"
}

var pathParameter = regexp.MustCompile(`\{[^}]*\}`)

// No body costs much more memory than it has bytes, whatever operation it is sent to.
func TestMemoryOfBodies(t *testing.T) {
	const size = edge.MaxBody/2 - 200
	for _, operation := range writing().operations {
		for name, body := range costly {
			operation.check(t, name, body(size))
		}
		for _, field := range operation.fields {
			for _, value := range []string{"1", `""`, "{}", "[]", "null"} {
				list := strings.Repeat(value+",", (size)/(len(value)+1)) + value
				operation.check(t, field+" of "+value, fmt.Sprintf("{%q:[%s]}", field, list))
			}
		}
	}
}

func FuzzMemoryOfBodies(f *testing.F) {
	for _, body := range costly {
		f.Add(body(1 << 10))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, operation := range writing().operations {
			operation.check(t, "this", text)
		}
	})
}

// written is an operation that takes a body, with the names of its fields.
type written struct {
	method, path string
	fields       []string
}

// writing returns all of them, and what serves them.
var writing = sync.OnceValue(func() (w struct {
	mux        *http.ServeMux
	operations []written
}) {
	w.mux = http.NewServeMux()
	api := whole()
	api.Mount(w.mux.Handle)
	document := api.OpenAPI()
	for path, item := range document.Paths {
		for method, operation := range map[string]*huma.Operation{http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch} {
			if operation == nil || operation.RequestBody == nil || operation.RequestBody.Content["application/json"] == nil {
				continue
			}
			schema := operation.RequestBody.Content["application/json"].Schema
			if schema.Ref != "" {
				schema = document.Components.Schemas.SchemaFromRef(schema.Ref)
			}
			w.operations = append(w.operations, written{method, pathParameter.ReplaceAllString(path, "x"), slices.Sorted(maps.Keys(schema.Properties))})
		}
	}
	return w
})

func (o *written) check(t *testing.T, name, text string) {
	var w *httptest.ResponseRecorder
	used, most := uint64(math.MaxUint64), uint64(memoryFloor+memoryFactor*len(text))
	for tries := 0; used > most && tries < 5; tries++ { // something else may have allocated at the same time
		used = min(used, allocated(func() { w = serve(writing().mux, o.method, o.path, text) }))
	}
	if used > most {
		t.Errorf("%s %s with %s: %d bytes take %d", o.method, o.path, name, len(text), used)
	}
	if w.Body.Len() > mostAnswer {
		t.Errorf("%s %s with %s: an answer of %d bytes: %.200s", o.method, o.path, name, w.Body.Len(), w.Body)
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// serve serves a request. An engine that is called ends it: the body was accepted.
func serve(mux http.Handler, method, path, body string) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() { _ = recover() }()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	mux.ServeHTTP(w, r)
	return w
}
