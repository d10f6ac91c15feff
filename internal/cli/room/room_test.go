package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

// fakeRooms answers as the API does, and records the requests.
type fakeRooms struct {
	*httptest.Server
	asked []string
	// answers are by method and path; a missing one is 404.
	answers map[string]string
}

const shopJSON = `{"room":"shop","mode":"teller","state":"queueing","waiting":1204,"inside":163,"admitted_total":12345,"outflow_per_second":4.25,"settings":` +
	`{"mode":"teller","capacity":200,"pass_ttl_ms":300000,"pass":"fixed","renewals":2,"method":"lottery","opens_at":"2030-01-31T09:00:00Z",` +
	`"ends_at":"2030-02-01T00:00:00Z","routes":[{"path":"/checkout/*"},{"host":"shop.example.com","method":"POST"}],"bypass":[{"path":"/about"}],` +
	`"joins_per_minute":10,"bind_tickets":true,"on_store_failure":"open"}}`

const fairJSON = `{"room":"fair","mode":"park","state":"open","waiting":0,"inside":3,"admitted_total":3,"outflow_per_second":null,"settings":` +
	`{"mode":"park","batch":500,"interval_ms":60000,"stay_ms":900000,"grace_ms":0,"lanes":"vip=20,public=80","repeats":"0 10 * * SAT","time_zone":"Asia/Seoul","lasts_ms":7200000},` +
	`"event":{"opens_at":"2030-02-02T01:00:00Z","ends_at":"2030-02-02T03:00:00Z"}}`

func startFakeRooms(t *testing.T) *fakeRooms {
	t.Helper()
	f := &fakeRooms{answers: map[string]string{
		"GET /.well-known/jwks.json":      `{"keys":[]}`,
		"GET /v1/rooms":                   `{"rooms":[` + fairJSON + `,` + shopJSON + `]}`,
		"GET /v1/rooms/shop":              shopJSON,
		"GET /v1/rooms/fair":              fairJSON,
		"PUT /v1/rooms/shop":              shopJSON,
		"PUT /v1/rooms/fair":              fairJSON,
		"DELETE /v1/rooms/shop":           "",
		"POST /v1/rooms/shop/pause":       strings.Replace(shopJSON, "queueing", "paused", 1),
		"POST /v1/rooms/shop/resume":      shopJSON,
		"POST /v1/rooms/shop/sold-out":    strings.Replace(shopJSON, "queueing", "sold_out", 1),
		"POST /v1/rooms/shop/revoke":      "",
		"POST /v1/rooms/shop/codes":       `{"codes":["7K3M-9QXF-2B4T-W8ZP-H5RD","7K3M-9QXF-0000-W8ZP-H5RD"]}`,
		"DELETE /v1/rooms/shop/codes":     "",
		"POST /v1/room-keys/rotate":       "",
		"POST /v1/room-keys/revoke":       "",
		"GET /v1/rooms/fair/lottery":      `{"method":"fifo","commitment":null,"opens_at":null,"seed":null}`,
		"GET /v1/rooms/shop/lottery":      lotteryJSON(true),
		"GET /v1/rooms/tomorrow/lottery":  lotteryJSON(false),
		"GET /v1/rooms/dishonest/lottery": strings.Replace(lotteryJSON(true), room.Commitment(lotterySeed), strings.Repeat("00", 32), 1),
	}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		call := r.Method + " " + r.URL.Path
		if r.URL.Path != "/.well-known/jwks.json" {
			f.asked = append(f.asked, strings.TrimSpace(call+" "+string(body)))
		}
		answer, has := f.answers[call]
		switch {
		case !has:
			w.WriteHeader(http.StatusNotFound)
			answer = `{"title":"Not Found","status":404,"detail":"there is no such room","code":"no_room"}`
		case strings.Contains(string(body), `"capacity":0`):
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer = `{"title":"Unprocessable Entity","status":422,"detail":"capacity: is 0; give a whole number from 1 to 10,000,000","code":"invalid"}`
		case answer == "":
			w.WriteHeader(http.StatusNoContent)
		case call == "PUT /v1/rooms/fair":
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(f.Close)
	t.Setenv(profile.ServerVariable, f.URL)
	return f
}

var lotterySeed = []byte(strings.Repeat("s", 32))

func lotteryJSON(open bool) string {
	seed := "null"
	if open {
		seed = fmt.Sprintf(`"%x"`, lotterySeed)
	}
	return fmt.Sprintf(`{"method":"lottery","commitment":%q,"opens_at":"2030-01-31T09:00:00Z","seed":%s}`, room.Commitment(lotterySeed), seed)
}

// Each command's requests and output are in testdata/room.golden.
func TestRoomCommands(t *testing.T) {
	f := startFakeRooms(t)
	file := filepath.Join(t.TempDir(), "room.json")
	if err := os.WriteFile(file, []byte(`{"mode":"teller","capacity":5,"pass":"fixed"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, line := range []string{
		"list", "list --json", "show shop", "show fair", "show fair --json", "show nosuch", "show", "show a b",
		"create shop --capacity 200 --pass-ttl 5m --route /checkout/* --bypass /about --opens-at 2030-01-31T09:00:00Z --method lottery",
		"create fair --batch 500 --interval 1m --stay 15m", "create fair --batch 500 --interval 1m --stay 15m --json",
		"create shop --file FILE", "create shop --file FILE --capacity 7", "create shop --file /nowhere", "create shop", "create shop --capacity 0",
		"create shop --capacity many", "alter shop --capacity 400 --renewals 3", "alter shop", "alter nosuch --capacity 4", "alter shop --capacity 0", "pause shop", "pause shop --json", "pause nosuch", "sold-out shop", "resume shop",
		"revoke shop", "revoke shop --visitor alice", "revoke shop --ticket T", "revoke shop --visitor a --ticket b", "revoke shop --json",
		"codes shop --lane vip --count 2 --until 2030-12-24T20:00:00Z", "codes shop --count 2 --until 2030-12-24T20:00:00Z --json", "codes shop --count 2", "codes shop --void", "codes shop --void --count 2",
		"delete shop", "delete shop --json", "delete nosuch", "rotate-keys", "rotate-keys --json", "rotate-keys --revoke-old",
		"lottery fair", "lottery tomorrow", "lottery tomorrow --commitment 00", "lottery shop", "lottery shop --ticket AQAAAAAAAAAAAAAAAW5vbmNlbm9u --json",
		"lottery shop --ticket AQAAAAAAAAAAAAAAAW5vbmNlbm9u", "lottery shop --ticket x", "lottery tomorrow --ticket AQ", "lottery dishonest", "lottery dishonest --json",
		"list --server nowhere",
	} {
		f.asked = nil
		args := append([]string{"room"}, strings.Fields(strings.ReplaceAll(line, "FILE", file))...)
		code, out, errors := clitest.Command(t, Command, args...)
		fmt.Fprintf(&all, "$ sluice room %s\n%s%s", line, out, errors)
		for _, call := range f.asked {
			fmt.Fprintf(&all, "# asked: %s\n", call)
		}
		fmt.Fprintf(&all, "# code %d\n\n", code)
	}
	clitest.Golden(t, "room", all.String())
}

func TestRoomWithoutAServer(t *testing.T) {
	t.Setenv(profile.ServerVariable, "http://127.0.0.1:1")
	code, _, errors := clitest.Command(t, Command, "room", "list")
	if code != 1 || !strings.Contains(errors, `no server at http://127.0.0.1:1 (connection refused): start one with "sluice serve"`) {
		t.Errorf("code %d, %s", code, errors)
	}
}

// A watched room is shown immediately and then every second, until ctx ends.
func TestWatchRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		asked, began := 0, time.Now()
		ask := func(_ context.Context, name string) (client.Room, error) {
			asked++
			return client.Room{Name: name, Waiting: int64(asked)}, nil
		}
		var shown []string
		show := func(of *client.Room) error {
			shown = append(shown, fmt.Sprint(of.Name, of.Waiting, " ", time.Since(began)))
			return nil
		}
		if err := watchRoom(ctx, &client.Room{Name: "shop"}, ask, show); err != nil {
			t.Error(err)
		}
		if got, want := fmt.Sprint(shown), "[shop0 0s shop1 1s shop2 2s shop3 3s]"; got != want {
			t.Errorf("shown %s, want %s", got, want)
		}
		refused := errors.New("no")
		err := watchRoom(t.Context(), &client.Room{}, func(context.Context, string) (client.Room, error) { return client.Room{}, refused }, show)
		if !errors.Is(err, refused) {
			t.Errorf("got %v, want the server's error", err)
		}
	})
}

// The bars of a room fit terminals of several widths; without a terminal they are lines.
func TestRoomDisplay(t *testing.T) {
	var all strings.Builder
	var shop, fair client.Room
	for text, into := range map[string]*client.Room{shopJSON: &shop, fairJSON: &fair} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for _, columns := range []int{40, 80, 120} {
		d := &roomDisplay{Area: term.Area{Screen: term.Screen{Writer: &all, Size: func() (int, int) { return columns, 24 }}}}
		for _, of := range []*client.Room{&shop, &fair} {
			d.longest = max(d.longest, of.Waiting, 1)
			lines := d.lines(of, columns-1)
			fmt.Fprintf(&all, "%s\n", strings.Join(lines, "\n"))
		}
	}
	d := &roomDisplay{Area: term.Area{Screen: term.Screen{Writer: &all}}}
	d.Show(&shop)
	d.Show(&fair)
	clitest.Golden(t, "room-watch", all.String())
}
