package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// At the public address visitors find their places and nothing of the operators, whatever host
// they ask for.
func TestPublic(t *testing.T) {
	t.Parallel()
	at := ports.Addrs(t, 1)[0]
	s := startServer(t, "--kafka", "off", "--public", at)
	public := &server{t: t, addr: at}
	s.call("PUT", "/v1/rooms/sale", `{"mode":"teller","capacity":1,"pass_ttl_ms":60000}`, http.StatusCreated, nil)
	first, second := public.enter("sale", "", http.StatusCreated), public.enter("sale", "", http.StatusCreated)
	// Knowing a visitor's key is not enough here.
	public.call("POST", "/v1/rooms/sale/visitors", `{"visitor":"alice"}`, http.StatusForbidden, nil)
	if first.Status != "inside" || second.Status != "waiting" || s.room("sale").Waiting != 1 {
		t.Errorf("%+v, %+v", first, second)
	}
	if a := public.me("DELETE", "sale", first.Ticket); a.status != http.StatusNoContent {
		t.Errorf("leave: %d %s", a.status, a.body)
	}
	until.True(t, "the second is called", func() bool { return public.ask("sale", second.Ticket).Status == "inside" })

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, public.url("/.well-known/jwks.json"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "rooms.shop.example"
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the keys, of a host with a name: %s", response.Status)
	}
	for _, test := range []struct {
		method, path string
		public, own  int
	}{
		{"GET", "/healthz", 200, 200}, {"GET", "/readyz", 404, 200}, {"GET", "/metrics", 404, 200}, {"GET", "/openapi.json", 404, 200},
		{"GET", "/v1/rooms/sale", 404, 200}, {"GET", "/v1/rooms", 404, 200}, {"GET", "/v1/actions", 404, 200}, {"GET", "/v1/rooms/sale/lottery", 200, 200},
		{"PUT", "/v1/rooms/sale/visitors", 405, 405}, {"GET", "/", 404, 200}, {"GET", "/v1/rooms/sale/visitors/../../sale", 404, 0},
	} {
		for _, of := range []struct {
			at   *server
			want int
		}{{public, test.public}, {s, test.own}} {
			a, err := of.at.do(test.method, test.path, "", nil)
			if err != nil || of.want != 0 && a.status != of.want {
				t.Errorf("%s %s: %d %s, %v; want %d", test.method, test.path, a.status, a.body, err, of.want)
			}
		}
	}
	if a, err := s.do("GET", "/metrics", "", nil); err != nil || !strings.Contains(string(a.body), "\nedge_connections_open ") {
		t.Errorf("metrics: %d, %v", a.status, err)
	}
}
