package edge

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/access"
)

// maxWildcards is the most wildcards of one path.
const maxWildcards = 2

// values are those of the wildcards of a path, in its order.
type values struct {
	count int
	texts [maxWildcards]string
}

// node is a segment of paths.
type node struct {
	fixed map[string]*node
	any   *node
	here  *resource
}

// resource is a path with its methods.
type resource struct {
	names     []string // of the wildcards
	endpoints []*endpoint
}

// endpoint serves one method of a path.
type endpoint struct {
	part     *Part
	id       string
	method   string
	audience Audience
	right    access.Right

	// framework serves an operation that was registered.
	framework func(huma.Context)
	operation *huma.Operation

	// run serves an operation that has its own handler. A body is ignored unless
	// readsBody.
	run        func(*Exchange) error
	readsBody  bool
	maxBody    int64
	parameters []string // of the query
}

// add makes the resource of a path, such as /v1/rooms/{room}.
func (n *node) add(path string) *resource {
	var names []string
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		name, wildcard := strings.CutPrefix(segment, "{")
		if wildcard {
			names = append(names, strings.TrimSuffix(name, "}"))
			if n.any == nil {
				n.any = &node{}
			}
			n = n.any
			continue
		}
		if n.fixed == nil {
			n.fixed = map[string]*node{}
		}
		if n.fixed[segment] == nil {
			n.fixed[segment] = &node{}
		}
		n = n.fixed[segment]
	}
	if len(names) > maxWildcards {
		panic("edge: too many wildcards in " + path)
	}
	if n.here == nil {
		n.here = &resource{names: names}
	}
	return n.here
}

// find returns the resource of a URL, or nil. A wildcard matches one segment that
// is not empty.
func (n *node) find(to *url.URL, found *values) *resource {
	path, escaped := to.Path, to.RawPath != ""
	if escaped {
		path = to.EscapedPath()
	}
	for path != "" {
		path = path[1:] // the slash
		segment := path
		if end := strings.IndexByte(path, '/'); end >= 0 {
			segment, path = path[:end], path[end:]
		} else {
			path = ""
		}
		if escaped {
			var err error
			if segment, err = url.PathUnescape(segment); err != nil {
				return nil
			}
		}
		next := n.fixed[segment]
		if next == nil {
			if next = n.any; next == nil || segment == "" {
				return nil
			}
			found.texts[found.count] = segment
			found.count++
		}
		n = next
	}
	return n.here
}

// endpoint returns that of a method, or nil. HEAD is GET without the body.
func (r *resource) endpoint(method string) *endpoint {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, e := range r.endpoints {
		if e.method == method {
			return e
		}
	}
	return nil
}

// serve adds a method.
func (r *resource) serve(e *endpoint) {
	if len(r.endpoints) > 0 && r.endpoints[0].audience != e.audience {
		panic("edge: " + e.id + " is for others than " + r.endpoints[0].id + ", on the same path")
	}
	if (e.audience == Operators) != (e.right != access.Open) {
		panic("edge: " + e.id + " needs a right if it is for operators, and only then: see access/table.go")
	}
	r.endpoints = append(r.endpoints, e)
}

// public reports whether it is for others than operators.
func (r *resource) public() bool { return r.endpoints[0].audience != Operators }

// methods lists the methods of a resource.
func (r *resource) methods() string {
	var names []string
	for _, e := range r.endpoints {
		names = append(names, e.method)
		if e.method == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	return strings.Join(names, ", ")
}
