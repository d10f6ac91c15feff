package browser

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/gate"
	"github.com/sluice-project/sluice/room/storetest"
	"github.com/sluice-project/sluice/room/watch"
)

const roomName = "shop"

// town is a shop behind a gate, over the real engine.
type town struct {
	t      *testing.T
	engine *engine.Engine
	url    string
	// shopURL is the shop, around the gate.
	shopURL string
	// visits counts the pages served by the shop.
	visits atomic.Int64
	// orders counts the calls of the app that reached the shop.
	orders atomic.Int64
	// clerks are the tickets of the visitors who entered before the browser.
	clerks []string
	// challenge is that of the gates that serve opens.
	challenge gate.Challenge
	// noCookies removes the cookies, as a browser that refuses them does.
	noCookies bool
}

// settings returns settings that let one visitor in, make pages poll often, and keep the place of who never asks.
func settings() room.Settings {
	return room.Settings{Mode: room.Teller, Capacity: 1, ClaimWindow: 4 * time.Second, AbandonAfter: time.Hour}
}

// newTown opens a shop with the given number of visitors, inside and waiting.
func newTown(t *testing.T, settings room.Settings, people int, live bool) *town {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	engine, err := engine.New(storetest.NewMemory(), room.Config{}, engine.WithLogger(logger))
	if err != nil {
		t.Fatal(err)
	}
	hub := watch.New(engine)
	start(t, engine)
	start(t, hub)
	if _, _, err := engine.PutRoom(t.Context(), roomName, settings); err != nil {
		t.Fatal(err)
	}
	town := &town{t: t, engine: engine}
	for range people {
		answer, err := engine.Enter(t.Context(), roomName, room.Visit{})
		if err != nil {
			t.Fatal(err)
		}
		town.clerks = append(town.clerks, answer.Ticket)
	}
	town.serve(engine, hub, live)
	return town
}

// service is a service that runs until the test ends.
type service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

func start(t *testing.T, s service) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// serve puts the gate and its proxy in front of the shop.
func (town *town) serve(rooms gate.Rooms, hub gate.Streams, live bool) {
	t := town.t
	t.Helper()
	behind := httptest.NewServer(town.shop())
	t.Cleanup(behind.Close)
	town.shopURL = behind.URL
	upstream, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	if !live {
		hub = nil
	}
	g, err := gate.New(rooms, hub, gate.Options{
		Sites: []gate.Site{{Room: roomName, Brand: "Maple & Pine"}}, Challenge: town.challenge,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := gate.Proxy(upstream, gate.ProxyOptions{Failed: g.Failed, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handler := g.Middleware(proxy)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if town.noCookies {
			r.Header.Del("Cookie")
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	town.url = server.URL
}

// shop returns pages that link to each other, some with release scripts.
func (town *town) shop() http.Handler {
	mux := http.NewServeMux()
	head := `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>Shop</title>`
	page := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			town.visits.Add(1)
			_, _ = io.WriteString(w, head+body)
		})
	}
	script := `<script src="/.sluice/` + roomName + `/release.js"`
	page("/", `<h1>Welcome to the shop</h1>`)
	page("/thanks", `<h1>Thanks</h1><a id="away" href="about:blank">away</a>`+script+` data-release="pagehide"></script>`)
	page("/button", `<h1>Button</h1>`+script+`></script>`)
	page("/app", `<h1>App</h1><p id="place"></p><p id="answer"></p><script src="/.sluice/sluice.js"></script><script>
const shop = sluice.room("`+roomName+`");
const tell = (id, text) => { document.getElementById(id).textContent = text; };
const waits = {onWait: (place) => tell("place", place.position)};
function enter() { shop.enter(waits).then(() => tell("place", "inside"), (e) => tell("place", e.code + " " + e.reason)); }
async function order(body) { const r = await shop.fetch("/order", {method: "POST", body}, waits); tell("answer", r.status + " " + await r.text()); }
</script>`)
	mux.HandleFunc("POST /order", func(w http.ResponseWriter, r *http.Request) {
		town.orders.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	})
	return mux
}

// leave makes one of the earlier visitors leave.
func (town *town) leave(clerk int) {
	town.t.Helper()
	if err := town.engine.Leave(town.t.Context(), roomName, town.clerks[clerk], netip.Addr{}); err != nil {
		town.t.Fatal(err)
	}
}

// counts waits until the given numbers are inside and waiting.
func (town *town) counts(inside, waiting int64) {
	town.t.Helper()
	var view engine.View
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause() {
		var err error
		if view, err = town.engine.Room(town.t.Context(), roomName); err != nil {
			town.t.Fatal(err)
		}
		if view.Status.Inside == inside && view.Status.Waiting == waiting {
			return
		}
	}
	town.t.Fatalf("%d inside and %d waiting; want %d and %d", view.Status.Inside, view.Status.Waiting, inside, waiting)
}
