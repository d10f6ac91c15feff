package api

import (
	"net/http"
	"slices"
)

// ownPages refuses what a page of another origin would change: a browser that can
// reach the server sends such a request for any page, without asking, if it has no
// body.
var ownPages = http.NewCrossOriginProtection()

// allow lets a page of another origin read the answer, if it may, and tells whether
// it may.
func (s *server) allow(e *exchange, what *resource) bool {
	if what.forAll {
		e.w.Header().Set("Access-Control-Allow-Origin", "*")
		return true
	}
	if !what.forVisitors || len(s.origins) == 0 {
		return false
	}
	header := e.w.Header()
	header.Add("Vary", "Origin")
	origin := e.r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.origins, origin) && !slices.Contains(s.origins, "*") {
		return false
	}
	// No cookies are involved: tickets are shown by the page itself.
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "Retry-After")
	return true
}

// preflight tells whether a browser asks what it may ask.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// permit answers a preflight.
func (s *server) permit(e *exchange, what *resource) {
	header := e.w.Header()
	header.Set("Access-Control-Allow-Methods", what.methods())
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	header.Set("Access-Control-Max-Age", "600")
	e.w.WriteHeader(http.StatusNoContent)
}
