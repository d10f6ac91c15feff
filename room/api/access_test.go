package api_test

import (
	"context"
	"encoding/json"
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

// The cursor of a list does not name a room beyond the limits, and the next page begins there.
func TestCursorsOfRoomsNameNothingBeyondTheLimits(t *testing.T) {
	engine := newFake()
	f := newFixture(t, engine)
	f.sentBy(&access.Principal{Roles: []access.Role{access.Shop}, Rooms: []string{"other*"}})
	var page struct{ Next string }
	if err := json.Unmarshal(f.do(200, "GET", "/v1/rooms?after=&limit=1", "").Body.Bytes(), &page); err != nil || page.Next == "" || strings.Contains(page.Next, "shop") {
		t.Fatalf("%q, %v", page.Next, err)
	}
	f.do(200, "GET", "/v1/rooms?limit=1&after="+page.Next, "")
	if last := engine.calls[len(engine.calls)-1]; last != "Rooms shop 1" {
		t.Errorf("the next page is %q", last)
	}
	f.do(422, "GET", "/v1/rooms?limit=1&after=shop", "")
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
