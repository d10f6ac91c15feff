package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// place is the answer to a visitor.
type place struct {
	Ticket   string
	ID       int64
	Status   string
	Position *int64
	Ahead    *int64
	Pass     *string
	NextPoll int64 `json:"next_poll_ms"`
}

// newService returns the API on the real engine and a store in memory.
func newService(t *testing.T) (*fixture, *storetest.Memory) {
	store := storetest.NewMemory()
	engine, err := engine.New(store, room.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
		defer cancel()
		if err := engine.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return newFixture(t, engine), store
}

// place makes a request that is answered with a place.
func (f *fixture) place(status int, method, path, body, ticket string) place {
	f.Helper()
	a := f.do(status, method, "/v1/rooms/shop"+path, body, bearer, "Bearer "+ticket)
	var p place
	if err := json.Unmarshal(a.Body.Bytes(), &p); err != nil {
		f.Fatal(err)
	}
	return p
}

func (f *fixture) waits(p place, position int64) {
	f.Helper()
	if p.Status != "waiting" || p.Position == nil || *p.Position != position || *p.Ahead != position-1 || p.Pass != nil {
		f.Errorf("%+v, want position %d", p, position)
	}
}

func (f *fixture) inside(p place) {
	f.Helper()
	if p.Status != "inside" || p.Position != nil || p.Ahead != nil || p.Pass == nil || strings.Count(*p.Pass, ".") != 2 {
		f.Errorf("%+v, want a pass", p)
	}
}

func (f *fixture) show() (view struct {
	State                   string
	Waiting, Inside, Called int64
	Admitted                int64 `json:"admitted_total"`
	Epoch                   int64
}) {
	f.Helper()
	if err := json.Unmarshal(f.do(200, "GET", "/v1/rooms/shop", "").Body.Bytes(), &view); err != nil {
		f.Fatal(err)
	}
	return view
}

const oneAtATime = `{"mode":"teller","capacity":1,"pass":"fixed","renewals":1,"pass_ttl_ms":60000}`

func TestStoryOfATeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newService(t)
		f.do(404, "POST", "/v1/rooms/shop/visitors", "")
		f.do(201, "PUT", "/v1/rooms/shop", oneAtATime)
		f.do(200, "PUT", "/v1/rooms/shop", oneAtATime)
		first := f.place(201, "POST", "/visitors", `{"visitor":"ada"}`, "")
		f.inside(first)
		second := f.place(201, "POST", "/visitors", `{"visitor":"bob"}`, "")
		f.waits(second, 1)
		third := f.place(201, "POST", "/visitors", "", "")
		f.waits(third, 2)
		if again := f.place(200, "POST", "/visitors", `{"visitor":"bob"}`, ""); again.ID != second.ID || again.Ticket != second.Ticket {
			t.Errorf("the same key has %+v, had %+v", again, second)
		}
		f.inside(f.place(200, "GET", "/visitors/me", "", first.Ticket))
		f.waits(f.place(200, "GET", "/visitors/me", "", third.Ticket), 2)
		f.inside(f.place(200, "POST", "/visitors/me/renew", "", first.Ticket))
		if a := f.do(409, "POST", "/v1/rooms/shop/visitors/me/renew", "", bearer, "Bearer "+first.Ticket); a.problem.Code != api.CodeNotRenewable {
			t.Error(a.problem)
		}
		f.do(204, "DELETE", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+first.Ticket)
		f.do(204, "DELETE", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+first.Ticket)
		f.inside(f.place(200, "GET", "/visitors/me", "", second.Ticket))
		if a := f.do(410, "GET", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+first.Ticket); a.problem.Reason != string(room.Left) || a.problem.ID != first.ID {
			t.Error(a.problem)
		}
		if view := f.show(); view.State != "queueing" || view.Waiting != 1 || view.Inside != 1 || view.Admitted != 2 {
			t.Errorf("%+v", view)
		}
		f.do(401, "GET", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+first.Ticket+"x")
		f.do(200, "POST", "/v1/rooms/shop/sold-out", "")
		if a := f.do(410, "GET", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+third.Ticket); a.problem.Reason != string(room.SoldOut) {
			t.Error(a.problem)
		}
		if a := f.do(403, "POST", "/v1/rooms/shop/visitors", ""); a.problem.Code != api.CodeSoldOut || f.show().State != "sold_out" {
			t.Error(a.problem)
		}
		f.do(200, "POST", "/v1/rooms/shop/resume", "")
		f.do(200, "POST", "/v1/rooms/shop/pause", "")
		f.do(204, "POST", "/v1/rooms/shop/revoke", `{"visitor":"bob"}`)
		f.do(404, "POST", "/v1/rooms/shop/revoke", `{"visitor":"bob"}`)
		f.waits(f.place(200, "GET", "/visitors/me", "", third.Ticket), 1)
		f.do(200, "POST", "/v1/rooms/shop/resume", "")
		time.Sleep(2 * time.Second)
		f.inside(f.place(200, "GET", "/visitors/me", "", third.Ticket))
		f.do(204, "POST", "/v1/rooms/shop/revoke", "")
		if view := f.show(); view.Inside != 0 || view.Epoch != 2 {
			t.Errorf("%+v", view)
		}
		f.do(204, "POST", "/v1/room-keys/rotate", "")
		f.do(200, "GET", api.JWKSPath, "")
		if a := f.do(410, "GET", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+third.Ticket); a.problem.Reason != string(room.Revoked) {
			t.Error(a.problem)
		}
		f.do(204, "DELETE", "/v1/rooms/shop", "")
		f.do(404, "GET", "/v1/rooms/shop", "")
	})
}

// The default bound of joins is for visitors' own addresses.
func TestJoinsFromOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newService(t)
		f.do(201, "PUT", "/v1/rooms/shop", oneAtATime)
		from := func(status int, address string) answer {
			t.Helper()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/rooms/shop/visitors", http.NoBody)
			r.RemoteAddr = address + ":1"
			return f.send(status, r)
		}
		for range room.DefaultJoinsPerMinute {
			from(201, "192.0.2.1")
			from(201, "127.0.0.1")
		}
		if a := from(429, "192.0.2.1"); a.problem.Code != api.CodeTooManyJoins || a.Header().Get("Retry-After") == "" {
			t.Error(a.problem)
		}
		from(201, "127.0.0.1")
	})
}

// A visitor with a long poll gets the pass as soon as there is a slot.
func TestLongPollIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newService(t)
		f.do(201, "PUT", "/v1/rooms/shop", oneAtATime)
		first := f.place(201, "POST", "/visitors", "", "")
		second := f.place(201, "POST", "/visitors", "", "")
		go func() {
			time.Sleep(3 * time.Second)
			f.do(204, "DELETE", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+first.Ticket)
		}()
		began := time.Now()
		f.inside(f.place(200, "GET", "/visitors/me?wait_ms=30000", "", second.Ticket))
		if took := time.Since(began); took < 3*time.Second || took > 3500*time.Millisecond {
			t.Errorf("let in after %v", took)
		}
	})
}

func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, store := newService(t)
		f.do(201, "PUT", "/v1/rooms/shop", oneAtATime)
		p := f.place(201, "POST", "/visitors", "", "")
		store.Fail(fmt.Errorf("store: %w", room.ErrUnavailable))
		for _, method := range []string{"GET", "DELETE"} {
			if a := f.do(503, method, "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+p.Ticket); a.problem.Code != api.CodeUnavailable || a.Header().Get("Retry-After") == "" {
				t.Error(a.problem)
			}
		}
		store.Fail(nil)
		f.inside(f.place(200, "GET", "/visitors/me", "", p.Ticket))
	})
}

// A stream delivers the admission. A stream of a room that was removed and created again ends, even
// though another visitor has its number now.
func TestStreamOfARoom(t *testing.T) {
	f, _ := newService(t)
	f.do(201, "PUT", "/v1/rooms/shop", oneAtATime)
	first := f.place(201, "POST", "/visitors", "", "")
	second := f.place(201, "POST", "/visitors", "", "")
	server := httptest.NewServer(f.handler)
	defer server.Close()
	stream := get(t, server.URL+"/v1/rooms/shop/visitors/me/watch?ticket="+second.Ticket).body
	event := func() (p place) {
		t.Helper()
		_, data, _ := strings.Cut(next(t, stream), "data: ")
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			t.Fatal(err, data)
		}
		return p
	}
	f.waits(event(), 1)
	f.do(204, "DELETE", "/v1/rooms/shop/visitors/me", "", bearer, "Bearer "+first.Ticket)
	f.inside(event())

	third := f.place(201, "POST", "/visitors", "", "")
	waiting := get(t, server.URL+"/v1/rooms/shop/visitors/me/watch?ticket="+third.Ticket).body
	next(t, waiting)
	f.do(204, "DELETE", "/v1/rooms/shop", "")
	f.do(201, "PUT", "/v1/rooms/shop", oneAtATime)
	for range 5 {
		f.place(201, "POST", "/visitors", "", "")
	}
	if got := next(t, waiting); got != "event: gone\ndata: {\"reason\":\"removed\"}\n" {
		t.Errorf("%q", got)
	}
	if got := next(t, waiting); got != "" {
		t.Errorf("after the last event: %q", got)
	}
}

// Visitors enter with codes, which are made for a lane and a time; wrong ones are refused.
func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newService(t)
		f.do(201, "PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":1,"lanes":"vip=1,public=1","invitation_only":true,"codes":true}`)
		order := func(lane string) string {
			return fmt.Sprintf(`{"count":2,"lane":%q,"until":%q}`, lane, time.Now().Add(time.Hour).Format(time.RFC3339))
		}
		var made struct{ Codes []string }
		if err := json.Unmarshal(f.do(201, "POST", "/v1/rooms/shop/codes", order("vip")).Body.Bytes(), &made); err != nil || len(made.Codes) != 2 {
			t.Fatalf("%+v %v", made, err)
		}
		f.do(403, "POST", "/v1/rooms/shop/visitors", "")
		f.inside(f.place(201, "POST", "/visitors", `{"code":"`+made.Codes[0]+`"}`, ""))
		f.waits(f.place(201, "POST", "/visitors", `{"code":"`+made.Codes[1]+`"}`, ""), 1)
		f.place(200, "POST", "/visitors", `{"code":"`+made.Codes[1]+`"}`, "")
		if a := f.do(422, "POST", "/v1/rooms/shop/codes", order("gold")); a.problem.Errors[0].Field != "lane" {
			t.Errorf("%+v", a.problem)
		}
		f.do(204, "DELETE", "/v1/rooms/shop/codes", "")
		if a := f.do(403, "POST", "/v1/rooms/shop/visitors", `{"code":"`+made.Codes[0]+`"}`); a.problem.Code != api.CodeBadCode {
			t.Errorf("%+v", a.problem)
		}
	})
}
