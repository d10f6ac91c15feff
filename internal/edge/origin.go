package edge

import (
	"net/http"
	"slices"
)

// Audience says whom an operation is for: which pages may call it from a browser, and
// whether [API.Public] serves it. All methods of a path have the same.
type Audience int

const (
	// Operators and their programs. Of pages only those of the server itself may call
	// it: a browser that reaches the server sends a request without a body for any page,
	// without asking. It is not public.
	Operators Audience = iota
	// Visitors, on pages of the origins of the part. A page of another origin may send
	// the request too, and cannot read the answer. It is public.
	Visitors
	// Everybody, on pages of all origins. It is public.
	Everybody
)

var ownPages = http.NewCrossOriginProtection()

// allow lets a page of another origin read the answer, if it may, and reports
// whether it may.
func (r *resource) allow(w http.ResponseWriter, request *http.Request) bool {
	first := r.endpoints[0]
	if first.audience == Everybody {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		return true
	}
	origins := first.part.options.Origins
	if first.audience == Operators || len(origins) == 0 {
		return false
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	origin := request.Header.Get("Origin")
	if origin == "" || !slices.Contains(origins, origin) && !slices.Contains(origins, "*") {
		return false
	}
	// No cookies are involved: pages send tickets themselves.
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "Retry-After")
	return true
}

// preflight reports whether a browser asks what a page may send.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// permit answers a preflight.
func (r *resource) permit(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Access-Control-Allow-Methods", r.methods())
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Sluice-Token")
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
