package gate

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// town is a gate over the real engine, on a store in memory.
type town struct {
	t       *testing.T
	engine  *engine.Engine
	handler http.Handler
	shop    *shop
}

func newTown(t *testing.T, settings room.Settings, more ...engine.Option) *town {
	t.Helper()
	return newTownWith(t, Options{}, settings, more...)
}

// newTownWith is newTown with options of the gate.
func newTownWith(t *testing.T, options Options, settings room.Settings, more ...engine.Option) *town {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	engine, err := engine.New(storetest.NewMemory(), room.Config{}, append(more, engine.WithLogger(logger))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := engine.PutRoom(t.Context(), "shop", settings); err != nil {
		t.Fatal(err)
	}
	options.Sites, options.Logger = []Site{{Room: "shop"}}, logger
	g, err := New(engine, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	return &town{t: t, engine: engine, handler: g.Middleware(s), shop: s}
}

func (town *town) stop() {
	if err := town.engine.Stop(town.t.Context()); err != nil {
		town.t.Error(err)
	}
}

// browser keeps cookies as a browser does, for as long as they last.
type browser struct {
	town *town
	jar  map[string]*http.Cookie
	ends map[string]time.Time
}

func (town *town) browser() *browser {
	return &browser{town: town, jar: map[string]*http.Cookie{}, ends: map[string]time.Time{}}
}

// open requests a page, and its icon as browsers do. It returns the kind of the answer; "shop"
// for the shop's.
func (b *browser) open(method, path string, askers ...asker) string {
	answer := b.request(method, path, append([]asker{asPage}, askers...)...)
	if answer == "shop" {
		b.request("GET", "/favicon.ico", append(askers, asImage)...)
	}
	return answer
}

// request makes one request.
func (b *browser) request(method, path string, askers ...asker) string {
	r := httptest.NewRequest(method, "http://shop.test"+path, http.NoBody)
	for _, change := range askers {
		change(r)
	}
	for name, c := range b.jar {
		if time.Now().Before(b.ends[name]) {
			r.AddCookie(c)
		}
	}
	w := httptest.NewRecorder()
	b.town.handler.ServeHTTP(w, r)
	response := replyOf(w)
	for _, c := range response.Cookies() {
		b.jar[c.Name] = c
		b.ends[c.Name] = time.Now().Add(time.Duration(c.MaxAge) * time.Second)
	}
	if response.body == "the shop" {
		return "shop"
	}
	_, kind, _ := strings.Cut(response.body, `data-kind="`)
	kind, _, _ = strings.Cut(kind, `"`)
	if _, number, found := strings.Cut(response.body, `data-sluice="number">`); found {
		number, _, _ = strings.Cut(number, "<")
		kind += " " + number
	}
	if response.StatusCode == http.StatusSeeOther {
		return response.Header.Get("Location")
	}
	return kind
}

func (b *browser) want(want, method, path string, askers ...asker) {
	b.town.t.Helper()
	if got := b.open(method, path, askers...); got != want {
		b.town.t.Fatalf("%s %s: %q; want %q", method, path, got, want)
	}
}

func TestADayAtTheShop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{
			Mode: room.Teller, Capacity: 1, PassTTL: 5 * time.Minute, ClaimWindow: 10 * time.Second, AbandonAfter: time.Minute, Grace: -1,
		})
		defer town.stop()
		anna, ben, carl := town.browser(), town.browser(), town.browser()
		anna.want("shop", "GET", "/")
		ben.want("waiting 1", "GET", "/")
		carl.want("waiting 2", "GET", "/")
		ben.want("waiting 1", "GET", "/") // reloading keeps the place
		// A pass is short: a visitor who reads a page for two minutes and then sends a form is
		// still inside.
		time.Sleep(2 * time.Minute / 3)
		ben.want("waiting 1", "GET", "/")
		carl.want("waiting 2", "GET", "/")
		time.Sleep(2 * time.Minute / 3)
		ben.want("waiting 1", "GET", "/")
		carl.want("waiting 2", "GET", "/")
		anna.want("shop", "POST", "/buy")
		// The shop ends her visit, and Ben is called; he has ten seconds.
		town.shop.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Sluice-Release", "pass")
			_, _ = io.WriteString(w, "the shop")
		}
		anna.want("shop", "GET", "/thanks")
		town.shop.answer = nil
		ben.want("shop", "GET", "/")
		anna.want("waiting 2", "GET", "/") // behind Carl
		// Ben leaves by himself, from inside.
		ben.want("/.sluice/shop/left?to=%2F", "POST", "/.sluice/shop/leave")
		carl.want("shop", "GET", "/")
		anna.want("waiting 1", "GET", "/")
		ben.want("left", "GET", "/.sluice/shop/left?to=%2F")
		// Carl stops asking, and his visit ends.
		for left := time.Now().Add(6 * time.Minute); anna.open("GET", "/") != "shop"; {
			if time.Now().After(left) {
				t.Fatal("Anna was never let in")
			}
			time.Sleep(4 * time.Second)
		}
		carl.want("waiting 1", "GET", "/")
		// Carl is away for too long: the place is gone, and he gets another.
		time.Sleep(4 * time.Minute)
		carl.want("waiting 1", "GET", "/")
	})
}

// When the room is sold out, everybody who waits or comes is told so by a page that does not ask
// again; who is inside goes on.
func TestSoldOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, PassTTL: 5 * time.Minute})
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		anna.want("shop", "GET", "/")
		ben.want("waiting 1", "GET", "/")
		if _, err := town.engine.SoldOut(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		ben.want("sold_out", "GET", "/")
		ben.want("sold_out", "GET", "/")
		town.browser().want("sold_out", "GET", "/")
		anna.want("shop", "GET", "/cart")
	})
}

// A program without cookies holds a slot for a claim window with each request, not for the time
// of a pass: it cannot keep a room full, from however many addresses.
func TestProgramWithoutCookies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 200})
		defer town.stop()
		requests := 0
		program := func(lasts time.Duration) {
			for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(3 * time.Second) {
				address := fmt.Sprintf("192.0.%d.%d:1", 2+requests/250%4, requests%250)
				kinds := []asker{asPage, asProgram}
				town.browser().request("GET", "/", kinds[requests%2], func(r *http.Request) { r.RemoteAddr = address })
				requests++
			}
		}
		program(20 * time.Minute)
		browsers := make([]*browser, 190)
		for i := range browsers {
			browsers[i] = town.browser()
			browsers[i].want("shop", "GET", "/")
		}
		for range 3 {
			program(5 * time.Minute)
			for _, b := range browsers {
				b.want("shop", "POST", "/buy")
			}
		}
	})
}

// A browser that comes back within the claim window keeps its slot, also if it asks for nothing
// that needs a pass. One that comes back later is inside if the room has a free slot.
func TestBrowserComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{
			Mode: room.Teller, Capacity: 2, ClaimWindow: 10 * time.Second, AbandonAfter: time.Hour, Bypass: []room.Rule{{Path: "/static/*"}},
		})
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		if anna.request("GET", "/", asPage) != "shop" || ben.request("GET", "/", asPage) != "shop" {
			t.Fatal("the room is not open")
		}
		time.Sleep(2 * time.Second)
		anna.request("GET", "/static/style.css", header("Accept", "text/css"))
		time.Sleep(time.Minute)
		ben.want("shop", "POST", "/buy")
		town.browser().want("waiting 1", "GET", "/")
		anna.want("shop", "POST", "/buy")
	})
}

func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1})
		defer town.stop()
		anna := town.browser()
		anna.want("shop", "GET", "/")
		pass := *anna.jar["sluice_pass_shop"]
		if err := town.engine.RevokeAll(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultRecheck)
		requests := town.shop.requests
		anna.want("gone", "GET", "/")
		// An earlier pass is void also without its ticket.
		thief := town.browser()
		thief.want("gone", "GET", "/", holding(pass.Name, pass.Value))
		if town.shop.requests != requests {
			t.Error("a pass that was revoked let somebody in")
		}
		anna.want("/", "POST", "/.sluice/shop/join")
		anna.want("shop", "GET", "/")
	})
}

// A customer who is logged in has one place over devices; a token that is not valid gives no
// place of anybody's, and locks nobody out.
func TestCustomerWithToken(t *testing.T) {
	secret := strings.Repeat("s", 32)
	keys, err := engine.ParseTokenKeys([]string{"HS256:" + secret})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, AbandonAfter: time.Hour}, engine.WithTokenKeys(keys))
		defer town.stop()
		token := func(who, secret string) string {
			text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": who, "room": "shop", "exp": time.Now().Add(time.Minute).Unix()}).SignedString([]byte(secret))
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		town.browser().want("shop", "GET", "/")
		phone, laptop := town.browser(), town.browser()
		phone.want("waiting 1", "GET", "/", holding("sluice_token", token("anna", secret)))
		town.browser().want("waiting 2", "GET", "/", holding("sluice_token", token("ben", secret)))
		laptop.want("waiting 1", "GET", "/?sluice_token="+token("anna", secret))
		laptop.want("waiting 1", "GET", "/") // by the ticket
		if phone.jar["sluice_ticket_shop"].Value != laptop.jar["sluice_ticket_shop"].Value {
			t.Error("two devices have two tickets")
		}
		town.browser().want("waiting 3", "GET", "/", holding("sluice_token", token("anna", strings.Repeat("x", 32))))
		old := token("anna", secret)
		time.Sleep(2 * time.Minute)
		town.browser().want("waiting 4", "GET", "/", holding("sluice_token", old))
	})
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, InvitationOnly: true, OnStoreFailure: room.FailOpen}, engine.WithTokenKeys(keys))
		defer town.stop()
		anna, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "anna", "room": "shop", "exp": time.Now().Add(time.Minute).Unix()}).SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		town.browser().want("uninvited", "GET", "/")
		town.browser().want("uninvited", "GET", "/?sluice_token="+anna+"x")
		town.browser().want("shop", "GET", "/?sluice_token="+anna)
	})
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1})
		defer town.stop()
		town.browser().want("shop", "GET", "/?sluice_token=anna")
		town.browser().want("waiting 1", "GET", "/?sluice_token=anna")
	})
}

// One client cannot fill the line, unless all visitors come from its address.
func TestJoinsAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1})
		defer town.stop()
		from := func(address string) asker { return func(r *http.Request) { r.RemoteAddr = address + ":1" } }
		for range room.DefaultJoinsPerMinute {
			town.browser().open("GET", "/", from("192.0.2.1"))
		}
		town.browser().want("limited", "GET", "/", from("192.0.2.1"))
		town.browser().want("waiting 600", "GET", "/", from("192.0.2.2"))
		for range room.DefaultJoinsPerMinute {
			town.browser().open("GET", "/", from("127.0.0.1"))
		}
		town.browser().want("waiting 1,201", "GET", "/", from("127.0.0.1"))
	})
}

func TestLotteryMorning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opens := time.Now().Add(time.Hour)
		town := newTown(t, room.Settings{
			Mode: room.Park, Batch: 1, Interval: time.Minute, Stay: time.Minute,
			Method: room.Lottery, OpensAt: opens, PrequeueFrom: opens.Add(-30 * time.Minute), EndsAt: opens.Add(10 * time.Minute),
		})
		defer town.stop()
		anna := town.browser()
		anna.want("not_open", "GET", "/")
		time.Sleep(59 * time.Minute)
		anna.want("drawing", "GET", "/")
		for time.Now().Before(opens.Add(2 * time.Second)) {
			anna.want("drawing", "GET", "/")
			time.Sleep(30 * time.Second)
			if !time.Now().Before(opens) {
				break
			}
		}
		time.Sleep(time.Second)
		anna.want("shop", "GET", "/")
		time.Sleep(11 * time.Minute)
		anna.want("ended", "GET", "/")
	})
}

// The room is created again under its name: earlier tickets and passes are void.
func TestRoomOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := room.Settings{Mode: room.Teller, Capacity: 1}
		town := newTown(t, settings)
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		anna.want("shop", "GET", "/")
		if err := town.engine.DeleteRoom(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		anna.want("unavailable", "GET", "/")
		if _, _, err := town.engine.PutRoom(t.Context(), "shop", settings); err != nil {
			t.Fatal(err)
		}
		ben.want("shop", "GET", "/")
		time.Sleep(DefaultRecheck)
		anna.want("waiting 1", "GET", "/")
	})
}

// A visitor exchanges the place for that of a code, once: on the page, or comes by a link with one. A wrong code says
// so, and costs nothing.
func TestCodesAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, AbandonAfter: time.Hour, Lanes: "vip=1,public=1", Codes: true})
		defer town.stop()
		codes, err := town.engine.MakeCodes(t.Context(), "shop", "vip", 2, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		typed := func(code string) asker {
			return func(r *http.Request) {
				asForm(r)
				r.Body = io.NopCloser(strings.NewReader(url.Values{"code": {code}, "to": {"/sale?x=1"}}.Encode()))
				r.ContentLength = -1
			}
		}
		const path = "/.sluice/shop/code"
		town.browser().want("shop", "GET", "/")
		town.browser().want("waiting 1", "GET", "/")
		anna, ben := town.browser(), town.browser()
		anna.want("waiting 2", "GET", "/")
		ben.want("waiting 3", "GET", "/")
		anna.want("code", "POST", path, typed("0000-0000-0000-0000-0000"))
		anna.want("waiting 2", "GET", "/")
		for range 2 { // the second time with the place of the code
			anna.want("/sale?x=1", "POST", path, typed(strings.ToLower(codes[0])))
			anna.want("waiting 1", "GET", "/sale?x=1")
		}
		ben.want("waiting 2", "GET", "/") // anna has left the line
		town.browser().want("waiting 2", "GET", "/?sluice_code="+codes[1])
		town.browser().want("waiting 3", "GET", "/?sluice_code=nonsense")
		program := town.browser()
		if answer := program.request("POST", path, asProgram, typed(codes[1])); answer != "" || program.jar["sluice_ticket_shop"] == nil {
			t.Errorf("a script got %q and %v", answer, program.jar)
		}
		program.want("waiting 2", "GET", "/")
	})
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, InvitationOnly: true, Codes: true})
		defer town.stop()
		codes, err := town.engine.MakeCodes(t.Context(), "shop", "", 1, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		town.browser().want("uninvited", "GET", "/")
		town.browser().want("shop", "GET", "/?sluice_code="+codes[0])
	})
}
