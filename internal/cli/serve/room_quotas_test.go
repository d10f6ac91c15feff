package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	accesstest "github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
	"github.com/sluice-project/sluice/room/watch"
)

// An account that creates rooms over HTTP has as many as its quota says; the admin token has any number.
func TestQuotaOfRooms(t *testing.T) {
	accounts, err := access.New(&accesstest.Memory{}, adminOfTests, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, ada, err := accounts.Create(t.Context(), access.Principal{Name: "ada", Roles: []access.Role{access.Operator}})
	if err != nil {
		t.Fatal(err)
	}
	refused, err := accounts.ChangeQuotas(t.Context(), []access.Quota{{User: access.DefaultEntity, Rates: map[string]float64{access.MaxRooms: 2}}}, false)
	if err := errors.Join(append(refused, err)...); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(storetest.NewMemory(), room.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	server := ops.NewServer(ops.Options{Accounts: accounts})
	api.Register(server.API(), ownedRooms{e, accounts}, watch.New(e))
	put := func(secret, name string) (int, string) {
		r := httptest.NewRequest(http.MethodPut, "/v1/rooms/"+name, strings.NewReader(`{"mode":"teller","capacity":1}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		server.API().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for i := range 3 {
		if status, body := put(adminOfTests, fmt.Sprint("admins-", i)); status != http.StatusCreated {
			t.Fatalf("the admin token: %d %s", status, body)
		}
	}
	for _, step := range []struct {
		name   string
		status int
		says   string
	}{{"a", 201, ""}, {"b", 201, ""}, {"c", 429, `"code":"quota"`}, {"c", 429, "ada has 2 rooms"}, {"a", 200, ""}, {"admins-1", 200, ""}} {
		if status, body := put(ada, step.name); status != step.status || !strings.Contains(body, step.says) {
			t.Errorf("ada puts %s: %d %s, want %d with %q", step.name, status, body, step.status, step.says)
		}
	}
}
