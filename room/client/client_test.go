package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// asked is a request as the server saw it.
type asked struct {
	Method, Path, Body, Bearer string
}

// serve answers with a function until the test ends, and returns a client.
func serve(t *testing.T, handler http.HandlerFunc, options ...client.Option) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(server.URL+"/", append(options, client.WithHTTPClient(&http.Client{Transport: transport}))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	roomJSON  = `{"room":"shop","mode":"teller","state":"queueing","waiting":3,"inside":2,"admitted_total":9,"outflow_per_second":0.5,"settings":{"mode":"teller","capacity":2}}`
	placeJSON = `{"ticket":"T","id":4,"status":"waiting","position":3,"ahead":2,"estimated_wait_ms":{"low":1,"high":5},"next_poll_ms":1000,"pass":null,"pass_expires_at":null}`
)

// requests has one request of each method.
var requests = []struct {
	name   string
	do     func(t *testing.T, c *client.Client) error
	want   asked
	answer string
}{
	{"put", func(t *testing.T, c *client.Client) error {
		_, _, err := c.PutRoom(t.Context(), "shop", map[string]int{"capacity": 2})
		return err
	}, asked{"PUT", "/v1/rooms/shop", `{"capacity":2}`, ""}, roomJSON},
	{"room", func(t *testing.T, c *client.Client) error {
		r, err := c.Room(t.Context(), "a/b")
		half := 0.5
		want := client.Room{
			Name: "shop", Mode: room.Teller, State: room.Queueing, Waiting: 3, Inside: 2, AdmittedTotal: 9, Outflow: &half,
			Settings: room.Settings{Mode: room.Teller, Capacity: 2}.WithDefaults(), JSON: json.RawMessage(roomJSON),
		}
		if err == nil && !reflect.DeepEqual(r, want) {
			t.Errorf("room %+v\nwant %+v", r, want)
		}
		return err
	}, asked{"GET", "/v1/rooms/a%2Fb", "", ""}, roomJSON},
	{"rooms", func(t *testing.T, c *client.Client) error {
		rooms, err := c.Rooms(t.Context())
		if err == nil && (len(rooms) != 1 || rooms[0].Name != "shop") {
			t.Errorf("rooms %+v", rooms)
		}
		return err
	}, asked{"GET", "/v1/rooms", "", ""}, `{"rooms":[` + roomJSON + `]}`},
	{"delete", func(t *testing.T, c *client.Client) error { return c.DeleteRoom(t.Context(), "shop") }, asked{"DELETE", "/v1/rooms/shop", "", ""}, ""},
	{"sold out", func(t *testing.T, c *client.Client) error { _, err := c.SoldOut(t.Context(), "shop"); return err }, asked{"POST", "/v1/rooms/shop/sold-out", "", ""}, roomJSON},
	{"pause", func(t *testing.T, c *client.Client) error { _, err := c.Pause(t.Context(), "shop"); return err }, asked{"POST", "/v1/rooms/shop/pause", "", ""}, roomJSON},
	{"resume", func(t *testing.T, c *client.Client) error { _, err := c.Resume(t.Context(), "shop"); return err }, asked{"POST", "/v1/rooms/shop/resume", "", ""}, roomJSON},
	{"revoke all", func(t *testing.T, c *client.Client) error { return c.RevokeAll(t.Context(), "shop") }, asked{"POST", "/v1/rooms/shop/revoke", "", ""}, ""},
	{"revoke a ticket", func(t *testing.T, c *client.Client) error { return c.RevokeTicket(t.Context(), "shop", "T") }, asked{"POST", "/v1/rooms/shop/revoke", `{"ticket":"T"}`, ""}, ""},
	{"revoke a visitor", func(t *testing.T, c *client.Client) error { return c.RevokeVisitor(t.Context(), "shop", "alice") }, asked{"POST", "/v1/rooms/shop/revoke", `{"visitor":"alice"}`, ""}, ""},
	{"enter", func(t *testing.T, c *client.Client) error {
		p, err := c.Enter(t.Context(), "shop", "alice")
		if err == nil && (p.Ticket != "T" || p.Status != "waiting" || *p.Position != 3 || p.Wait.High != 5 || p.Pass != "") {
			t.Errorf("place %+v", p)
		}
		return err
	}, asked{"POST", "/v1/rooms/shop/visitors", `{"visitor":"alice"}`, ""}, placeJSON},
	{"ask", func(t *testing.T, c *client.Client) error { _, err := c.Ask(t.Context(), "shop", "T"); return err }, asked{"GET", "/v1/rooms/shop/visitors/me", "", "Bearer T"}, placeJSON},
	{"enter with a code", func(t *testing.T, c *client.Client) error {
		_, err := c.EnterWithCode(t.Context(), "shop", "7K3M")
		return err
	}, asked{"POST", "/v1/rooms/shop/visitors", `{"code":"7K3M"}`, ""}, placeJSON},
	{"make codes", func(t *testing.T, c *client.Client) error {
		codes, err := c.MakeCodes(t.Context(), "shop", "vip", 2, time.Unix(4, 0).UTC())
		if err == nil && (len(codes) != 2 || codes[1] != "b") {
			t.Errorf("codes %q", codes)
		}
		return err
	}, asked{"POST", "/v1/rooms/shop/codes", `{"count":2,"lane":"vip","until":"1970-01-01T00:00:04Z"}`, ""}, `{"codes":["a","b"]}`},
	{"revoke codes", func(t *testing.T, c *client.Client) error { return c.RevokeCodes(t.Context(), "shop") }, asked{"DELETE", "/v1/rooms/shop/codes", "", ""}, ""},
	{"leave", func(t *testing.T, c *client.Client) error { return c.Leave(t.Context(), "shop", "T") }, asked{"DELETE", "/v1/rooms/shop/visitors/me", "", "Bearer T"}, ""},
	{"revoke keys", func(t *testing.T, c *client.Client) error { return c.RevokeKeys(t.Context()) }, asked{"POST", "/v1/room-keys/revoke", "", ""}, ""},
	{"rotate keys", func(t *testing.T, c *client.Client) error { return c.RotateKeys(t.Context()) }, asked{"POST", "/v1/room-keys/rotate", "", ""}, ""},
	{"lottery", func(t *testing.T, c *client.Client) error {
		l, err := c.Lottery(t.Context(), "shop")
		if err == nil && (l.Method != room.Lottery || l.Commitment != "ab" || l.Seed != "" || l.OpensAt.Unix() != 4) {
			t.Errorf("lottery %+v", l)
		}
		return err
	}, asked{"GET", "/v1/rooms/shop/lottery", "", ""}, `{"method":"lottery","commitment":"ab","opens_at":"1970-01-01T00:00:04Z","seed":null}`},
	{"keys", func(t *testing.T, c *client.Client) error { _, err := c.JWKS(t.Context()); return err }, asked{"GET", "/.well-known/jwks.json", "", ""}, `{"keys":[]}`},
}

// Each method makes the request that the API defines. A ticket takes the place of the client's token.
func TestRequests(t *testing.T) {
	for _, test := range requests {
		for _, token := range []string{"", "sluice_secret"} {
			testRequest(t, test.name, token, test.want, test.answer, test.do)
		}
	}
}

func testRequest(t *testing.T, name, token string, want asked, answer string, do func(*testing.T, *client.Client) error) {
	if want.Bearer == "" && token != "" {
		want.Bearer = "Bearer " + token
	}
	var got asked
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = asked{r.Method, r.URL.EscapedPath(), string(body), r.Header.Get("Authorization")}
		if answer == "" {
			w.WriteHeader(http.StatusNoContent)
		}
		_, _ = io.WriteString(w, answer)
	}, client.WithToken(token))
	if err := do(t, c); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if got != want {
		t.Errorf("%s: asked %+v, want %+v", name, got, want)
	}
}

func TestPutTellsWhetherTheRoomIsNew(t *testing.T) {
	for status, want := range map[int]bool{http.StatusCreated: true, http.StatusOK: false} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, roomJSON)
		})
		if _, created, err := c.PutRoom(t.Context(), "shop", map[string]int{}); err != nil || created != want {
			t.Errorf("status %d: created %v, %v", status, created, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"status":410,"title":"Gone","code":"gone","detail":"the visit has ended","reason":"expired"}`)
	})
	_, err := c.Ask(t.Context(), "shop", "T")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != "gone" || refused.Reason != room.Expired || refused.RetryAfter != 7*time.Second || !client.IsStatus(err, http.StatusGone) {
		t.Errorf("got %#v", err)
	}
	c = serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such host", http.StatusNotFound) })
	if _, err := c.Room(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "404 Not Found: no such host") {
		t.Errorf("of somebody else: %v", err)
	}
}

// Idempotent requests are retried a bounded number of times; others are made once.
func TestRetries(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(c *client.Client) error
		want int64
	}{
		{"room", func(c *client.Client) error { _, err := c.Room(t.Context(), "shop"); return err }, 3},
		{"enter with a key", func(c *client.Client) error { _, err := c.Enter(t.Context(), "shop", "alice"); return err }, 3},
		{"enter without a key", func(c *client.Client) error { _, err := c.Enter(t.Context(), "shop", ""); return err }, 1},
		{"revoke all", func(c *client.Client) error { return c.RevokeAll(t.Context(), "shop") }, 1},
	} {
		var count atomic.Int64
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			count.Add(1)
			http.Error(w, "away", http.StatusServiceUnavailable)
		}, client.WithAttempts(3))
		if err := test.do(c); !client.IsStatus(err, http.StatusServiceUnavailable) {
			t.Errorf("%s: %v", test.name, err)
		}
		if count.Load() != test.want {
			t.Errorf("%s: asked %d times, want %d", test.name, count.Load(), test.want)
		}
	}
}

// Refusals of a quota are not retried, unless the server says when to.
func TestQuotasAreNotRetried(t *testing.T) {
	for after, want := range map[string]int64{"": 1, "1": 2} {
		var count atomic.Int64
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			count.Add(1)
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"code":"quota","detail":"ada has 2 rooms"}`))
		}, client.WithAttempts(2))
		if _, _, err := c.PutRoom(t.Context(), "shop", map[string]any{}); !client.IsStatus(err, http.StatusTooManyRequests) || count.Load() != want {
			t.Errorf("with Retry-After %q it was asked %d times, want %d: %v", after, count.Load(), want, err)
		}
	}
}

func TestNewRefusesWhatIsNoURL(t *testing.T) {
	for _, base := range []string{"", "localhost:8080", "ftp://a", "http://", "http://a?b", "http://a#b"} {
		if _, err := client.New(base); err == nil {
			t.Errorf("%q is taken", base)
		}
	}
}
