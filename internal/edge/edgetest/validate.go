package edgetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// walk is a check of a document.
type walk struct {
	root  map[string]any
	ids   map[string]bool
	wrong []error
}

// Validate returns what is wrong with an OpenAPI 3.1 document: references that lead
// nowhere, operations without an id of their own, a summary or a default answer,
// path parameters that are not declared, and schemas of unknown types.
func Validate(text []byte) []error {
	w := &walk{ids: map[string]bool{}}
	if err := json.Unmarshal(text, &w.root); err != nil {
		return []error{err}
	}
	info, _ := w.root["info"].(map[string]any)
	if w.root["openapi"] != "3.1.0" || info["title"] == nil || info["version"] == nil {
		w.fail("the head is %v %v", w.root["openapi"], info)
	}
	paths, _ := w.root["paths"].(map[string]any)
	if len(paths) == 0 {
		w.fail("there are no paths")
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for method, operation := range paths[path].(map[string]any) {
			w.operation(method+" "+path, operation.(map[string]any))
		}
	}
	w.visit("#", w.root)
	return w.wrong
}

func (w *walk) fail(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Errorf(format, args...))
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

func (w *walk) operation(name string, op map[string]any) {
	id, _ := op["operationId"].(string)
	if id == "" || w.ids[id] {
		w.fail("%s: operationId %q is empty or not its own", name, id)
	}
	w.ids[id] = true
	if op["summary"] == nil {
		w.fail("%s has no summary", name)
	}
	responses, _ := op["responses"].(map[string]any)
	if responses["default"] == nil || len(responses) < 2 {
		w.fail("%s lacks an answer or the problem", name)
	}
	for status, response := range responses {
		if response.(map[string]any)["description"] == nil {
			w.fail("%s: %s has no description", name, status)
		}
	}
	var declared []string
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		if p := p.(map[string]any); p["in"] == "path" && p["required"] == true && p["schema"] != nil {
			declared = append(declared, p["name"].(string))
		}
	}
	for _, match := range wildcard.FindAllStringSubmatch(name, -1) {
		if !slices.Contains(declared, match[1]) {
			w.fail("%s does not declare %s", name, match[1])
		}
	}
	security, _ := op["security"].([]any)
	for _, needed := range security {
		for scheme := range needed.(map[string]any) {
			if w.resolve("#/components/securitySchemes/"+scheme) == nil {
				w.fail("%s: there is no security scheme %s", name, scheme)
			}
		}
	}
}

var types = []string{"object", "array", "string", "integer", "number", "boolean", "null"}

// visit checks references and types at every depth.
func (w *walk) visit(at string, value any) {
	switch value := value.(type) {
	case []any:
		for i, v := range value {
			w.visit(fmt.Sprintf("%s/%d", at, i), v)
		}
	case map[string]any:
		if ref, ok := value["$ref"].(string); ok && w.resolve(ref) == nil {
			w.fail("%s: %s leads nowhere", at, ref)
		}
		if strings.HasSuffix(at, "/schema") || strings.Contains(at, "/schemas/") && strings.Contains(at, "/properties/") {
			w.checkType(at, value["type"])
		}
		for key, v := range value {
			w.visit(at+"/"+key, v)
		}
	}
}

func (w *walk) checkType(at string, value any) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, kind := range list {
		if name, ok := kind.(string); ok && !slices.Contains(types, name) {
			w.fail("%s has the type %q", at, name)
		}
	}
}

func (w *walk) resolve(ref string) any {
	var value any = w.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, _ := value.(map[string]any)
		value = object[part]
	}
	return value
}
