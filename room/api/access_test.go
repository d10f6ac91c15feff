package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
)

// sentBy lets requests come from somebody.
func (f *fixture) sentBy(p *access.Principal) {
	next := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), p)))
	})
}

// For a shop, rooms beyond its limits do not exist, and their engine is not asked.
func TestAShopHasItsOwnRooms(t *testing.T) {
	for _, test := range []struct {
		room   string
		status int // of an operation that answers with the room
	}{{"shop", 200}, {"shop-2", 404}} {
		engine := newFake()
		f := newFixture(t, engine)
		f.sentBy(&access.Principal{Roles: []access.Role{access.Shop}, Rooms: []string{"shop"}})
		f.do(test.status, "GET", "/v1/rooms/"+test.room, "")
		f.do(test.status, "PUT", "/v1/rooms/"+test.room+"/health", `{"utilization":0.5}`)
		revoked := map[int]int{200: 204, 404: 404}[test.status]
		f.do(revoked, "POST", "/v1/rooms/"+test.room+"/revoke", "")
		if test.status == 404 && len(engine.calls) > 0 {
			t.Errorf("%s: calls %q", test.room, engine.calls)
		}
	}
	f := newFixture(t, newFake())
	f.sentBy(&access.Principal{Roles: []access.Role{access.Shop}, Rooms: []string{"other*"}})
	if a := f.do(200, "GET", "/v1/rooms", ""); strings.Contains(a.Body.String(), "shop") {
		t.Errorf("the list of another shop has %s", a.Body)
	}
}

// With accounts, only those who keep a room may name its visitors without the shop's signature.
func TestOnlyThoseWhoKeepARoomNameItsVisitors(t *testing.T) {
	for name, test := range map[string]struct {
		sender *access.Principal
		status int
	}{
		"nobody":       {access.Nobody, 403},
		"a viewer":     {&access.Principal{Roles: []access.Role{access.Viewer}}, 403},
		"another shop": {&access.Principal{Roles: []access.Role{access.Shop}, Rooms: []string{"other"}}, 403},
		"the shop":     {&access.Principal{Roles: []access.Role{access.Shop}, Rooms: []string{"shop"}}, 200},
		"an operator":  {&access.Principal{Roles: []access.Role{access.Operator}}, 200},
		"no accounts":  {access.From(context.Background()), 200},
	} {
		f := newFixture(t, newFake())
		f.sentBy(test.sender)
		f.do(test.status, "POST", "/v1/rooms/shop/visitors", `{"visitor":"alice"}`)
		f.do(200, "POST", "/v1/rooms/shop/visitors", "")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
