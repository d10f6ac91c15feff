package api_test

import (
	"testing"

	"github.com/sluice-project/sluice/room/api"
)

func TestOrigins(t *testing.T) {
	const shop, evil = "https://shop.example", "https://evil.example"
	const visitors, admin = "/v1/rooms/shop/visitors", "/v1/rooms/shop"
	for _, test := range []struct {
		origins      []string
		path, origin string
		want         string
	}{
		{nil, visitors, shop, ""},
		{[]string{shop}, visitors, shop, shop},
		{[]string{shop}, visitors, evil, ""},
		{[]string{shop}, visitors, "", ""},
		{[]string{"*"}, visitors, evil, evil},
		{[]string{"*"}, admin, evil, ""},
		{[]string{"*"}, "/v1/room-keys/rotate", evil, ""},
		{nil, api.JWKSPath, evil, "*"},
	} {
		f := newFixture(t, newFake(), api.WithOrigins(test.origins...))
		method, status := "POST", 200
		switch test.path {
		case admin, api.JWKSPath:
			method = "GET"
		case "/v1/room-keys/rotate":
			status = 403
		}
		a := f.do(status, method, test.path, "", "Origin", test.origin)
		if got := a.Header().Get("Access-Control-Allow-Origin"); got != test.want {
			t.Errorf("%+v: allows %q", test, got)
		}
		if vary := a.Header().Get("Vary"); (vary == "Origin") != (test.origins != nil && test.path == visitors) {
			t.Errorf("%+v: Vary %q", test, vary)
		}
		if test.want == "" {
			f.do(405, "OPTIONS", test.path, "", "Origin", test.origin, "Access-Control-Request-Method", method)
			continue
		}
		a = f.do(204, "OPTIONS", test.path, "", "Origin", test.origin, "Access-Control-Request-Method", method)
		if a.Header().Get("Access-Control-Allow-Origin") != test.want || a.Header().Get("Access-Control-Allow-Headers") != "Authorization, Content-Type, Sluice-Token" {
			t.Errorf("%+v: preflight %v", test, a.Header())
		}
		if methods := a.Header().Get("Access-Control-Allow-Methods"); methods != map[string]string{visitors: "POST", api.JWKSPath: "GET, HEAD"}[test.path] {
			t.Errorf("%+v: allows methods %q", test, methods)
		}
	}
}

// A page may read the reason of a refusal.
func TestOriginOfProblems(t *testing.T) {
	f := newFixture(t, newFake(), api.WithOrigins("*"))
	a := f.do(401, "GET", "/v1/rooms/shop/visitors/me", "", "Origin", "https://shop.example")
	if a.Header().Get("Access-Control-Allow-Origin") != "https://shop.example" || a.Header().Get("Access-Control-Expose-Headers") != "Retry-After" {
		t.Error(a.Header())
	}
}

// Pages of other origins cannot act as operators: browsers send a POST without a body for any page,
// without a preflight request.
func TestPagesOfOthersAreNotOperators(t *testing.T) {
	for _, page := range [][2]string{{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
		f := newFixture(t, newFake(), api.WithOrigins("*"))
		for _, path := range []string{"/pause", "/resume", "/revoke"} {
			if a := f.do(403, "POST", "/v1/rooms/shop"+path, "", page[0], page[1]); a.problem.Code != api.CodeCrossOrigin {
				t.Errorf("%s %v: %+v", path, page, a.problem)
			}
		}
		f.do(403, "DELETE", "/v1/rooms/shop", "", page[0], page[1])
		f.do(200, "GET", "/v1/rooms/shop", "", page[0], page[1])
		f.do(200, "POST", "/v1/rooms/shop/visitors", "", page[0], page[1])
	}
	f := newFixture(t, newFake())
	f.do(200, "POST", "/v1/rooms/shop/pause", "", "Sec-Fetch-Site", "same-origin", "Origin", "http://example.com")
}
