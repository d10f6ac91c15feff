package ops

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// trailOf returns a trail, and a function that ends it and returns its entries.
func trailOf(t *testing.T) (*audit.Trail, func() []audit.Entry) {
	t.Helper()
	var entries []audit.Entry
	trail := audit.New(audit.Options{Logger: quiet()})
	trail.PublishTo("test", func(_ context.Context, written []audit.Entry) error {
		entries = append(entries, written...)
		return nil
	})
	if err := trail.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return trail, func() []audit.Entry {
		t.Helper()
		if err := trail.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		return entries
	}
}

// auditedServer returns a server with some operations.
func auditedServer(known *access.Accounts, trail *audit.Trail) *Server {
	s := NewServer(Options{Pprof: true, Accounts: known, Audit: trail, Logger: quiet()})
	part := s.API().Part("test", edge.PartOptions{Logger: quiet()})
	answer := func(status int) func(*edge.Exchange) error {
		return func(e *edge.Exchange) error {
			audit.About(e.R.Context(), "room:shop")
			if status >= http.StatusBadRequest {
				return edge.Refuse(status, problem.Conflict, "no")
			}
			e.W.WriteHeader(status)
			return nil
		}
	}
	type body struct{ Body struct{} }
	edge.Handle[body, struct{}](part, edge.Operation{ID: "put-room", Route: "PUT /v1/rooms/{room}", Summary: "Put"}, answer(http.StatusNoContent))
	edge.Handle[body, struct{}](part, edge.Operation{ID: "delete-room", Route: "DELETE /v1/rooms/{room}", Summary: "Delete"}, answer(http.StatusConflict))
	edge.Handle[body, struct{}](part, edge.Operation{ID: "lease-jobs", Route: "POST /v1/leases", Summary: "Lease"}, answer(http.StatusForbidden))
	edge.Handle[body, struct{}](part, edge.Operation{ID: "pause-room", Route: "POST /v1/rooms/{room}/pause", Summary: "Pause"}, func(*edge.Exchange) error {
		panic(http.ErrAbortHandler)
	})
	return s
}

// Each refusal and each change over HTTP is in the trail, with who sent it and what became of it, and without what is
// secret.
func TestRequestsInTheTrail(t *testing.T) {
	known, token := accounts(t)
	trail, ended := trailOf(t)
	s := auditedServer(known, trail)
	viewer, operator := token("viewer", access.Viewer), token("operator", access.Operator)
	const unknown = "sluice_somebody-who-is-not-known"
	var want []string
	for _, test := range []struct {
		method, path, token string
		want                string // its entry; "": none
	}{
		{"PUT", "/v1/rooms/shop?key=" + unknown, operator, "put-room failed 422 /v1/rooms/shop"},
		{"PUT", "/v1/rooms/shop", operator, "put-room allowed  /v1/rooms/shop room:shop"},
		{"PUT", "/v1/rooms/shop", viewer, "put-room refused 403 /v1/rooms/shop"},
		{"PUT", "/v1/rooms/shop", unknown, "put-room unauthenticated 401 /v1/rooms/shop"},
		{"DELETE", "/v1/rooms/shop", operator, "delete-room failed 409 /v1/rooms/shop room:shop"},
		{"POST", "/v1/leases", operator, "lease-jobs refused 403 /v1/leases"},
		{"POST", "/v1/rooms/shop/pause", operator, "pause-room failed 500 /v1/rooms/shop/pause"},
		{"GET", "/debug/pprof/cmdline", viewer, "GET /debug/pprof/cmdline refused 403 /debug/pprof/cmdline"},
		{"GET", "/metrics", viewer, ""},
		{"GET", "/healthz", unknown, ""},
		{"GET", "/v1/nothing", unknown, ""},
	} {
		if test.want != "" {
			want = append(want, test.want)
		}
		func() {
			defer func() { _ = recover() }() // as the server does
			ask(s, test.method, test.path, "Bearer "+test.token, strings.NewReader(`{"secret":"`+unknown+`"}`))
		}()
	}
	entries := ended()
	var got []string
	for _, e := range entries[1 : len(entries)-1] { // without the start and the stop
		got = append(got, strings.Join(append([]string{e.Operation, string(e.Outcome), e.Code}, e.Resources...), " "))
		if e.Address != "192.0.2.1" || e.Edge != audit.HTTP {
			t.Errorf("got %+v", e)
		}
		if who := e.Token; (who == "") != (e.Outcome == audit.Unauthenticated) || (e.TokenID == "") != (who == "") {
			t.Errorf("got %+v", e)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{viewer, operator, unknown} {
		if strings.Contains(string(text), secret) {
			t.Errorf("a secret is in %s", text)
		}
	}
}
