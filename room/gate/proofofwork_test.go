package gate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/puzzle"
	"github.com/sluice-project/sluice/room"
)

// newWorkTown is a town whose gate asks for work.
func newWorkTown(t *testing.T) *town {
	t.Helper()
	town := newTown(t, room.Settings{Mode: room.Teller, Capacity: 1, PassTTL: time.Minute, JoinsPerMinute: -1})
	work, err := NewProofOfWork(town.engine, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(town.engine, nil, Options{Sites: []Site{{Room: "shop"}}, Challenge: work})
	if err != nil {
		t.Fatal(err)
	}
	town.handler = g.Middleware(town.shop)
	return town
}

var puzzleInput = regexp.MustCompile(`name="sluice-puzzle" value="([^"]+)" data-bits="(\d+)"`)

// puzzle opens a page, which must ask for work, and returns the form of somebody who did it.
func (b *browser) puzzle(askers ...asker) url.Values {
	t := b.town.t
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://shop.test/cart", http.NoBody)
	for _, change := range append(askers, asPage) {
		change(r)
	}
	w := httptest.NewRecorder()
	b.town.handler.ServeHTTP(w, r)
	response := replyOf(w)
	body := expect(t, response, http.StatusForbidden, `data-kind="proof"`, `action="/.sluice/shop/enter"`, `src="/.sluice/shop/proof.js"`)
	if policy := response.Header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe-inline") {
		t.Errorf("policy = %q", policy)
	}
	found := puzzleInput.FindStringSubmatch(body)
	if found == nil {
		t.Fatalf("the page has no puzzle:\n%s", body)
	}
	bits, _ := strconv.Atoi(found[2])
	return url.Values{"to": {"/cart"}, "sluice-puzzle": {found[1]}, "sluice-proof": {puzzle.Solve(found[1], bits)}}
}

// send sends the form of a puzzle.
func (b *browser) send(form url.Values, askers ...asker) {
	b.town.t.Helper()
	b.want("/cart", "POST", "/.sluice/shop/enter", append(askers, asForm, func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(form.Encode()))
	})...)
}

func from(addr string) asker { return func(r *http.Request) { r.RemoteAddr = addr + ":1000" } }

func TestProofOfWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newWorkTown(t)
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		home := from("192.0.2.1")
		if answer := anna.request("GET", "/cart", asProgram, home); answer != "" || town.shop.requests != 0 {
			t.Errorf("a program got %q", answer)
		}
		form := anna.puzzle(home)
		wrong := url.Values{"sluice-puzzle": form["sluice-puzzle"], "sluice-proof": {"1.2.3"}, "to": {"/cart"}}
		anna.send(wrong, home)
		anna.want("proof", "GET", "/cart", home)
		anna.send(form, home)
		anna.want("shop", "GET", "/cart", home)
		// Neither again, nor from another address.
		ben.send(form, home)
		ben.want("proof", "GET", "/cart", home)
		ben.send(ben.puzzle(home), from("192.0.2.2"))
		ben.want("proof", "GET", "/cart", home)
		ben.send(ben.puzzle(home), home)
		ben.want("waiting 1", "GET", "/cart", home)
	})
}

// A place of the API needs the work too, and is kept by it.
func TestProofOfWorkAndTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newWorkTown(t)
		defer town.stop()
		answer, err := town.engine.Enter(t.Context(), "shop", room.Visit{})
		if err != nil {
			t.Fatal(err)
		}
		anna := town.browser()
		anna.jar["sluice_ticket_shop"] = &http.Cookie{Name: "sluice_ticket_shop", Value: answer.Ticket}
		anna.ends["sluice_ticket_shop"] = time.Now().Add(time.Hour)
		anna.want("proof", "GET", "/cart")
		anna.send(anna.puzzle())
		anna.want("shop", "GET", "/cart")
		if view, err := town.engine.Room(t.Context(), "shop"); err != nil || view.Status.Entered != 1 {
			t.Errorf("%d entered, %v; want 1", view.Status.Entered, err)
		}
	})
}

func TestProofOfWorkOptions(t *testing.T) {
	for _, bits := range [][2]int{{7, 20}, {14, 13}, {14, 29}} {
		if _, err := NewProofOfWork(nil, bits[0], bits[1]); err == nil {
			t.Errorf("%v is accepted", bits)
		}
	}
}

// told is a challenge that answers as it is told.
type told struct {
	name   string
	passed bool
	err    error
}

func (c *told) Passed(context.Context, *http.Request, Newcomer) (bool, error) {
	return c.passed, c.err
}

func (c *told) Widget(context.Context, Newcomer) (*Widget, error) {
	return &Widget{Script: "/" + c.name + ".js"}, nil
}

// While the first challenge cannot be reached newcomers get the backup, and again the first within
// BackupTime after that.
func TestBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &told{name: "first"}, &told{name: "second"}
		s := newStand(t, func(o *Options) { o.Challenge = WithBackup(first, second, slog.New(slog.DiscardHandler)) })
		shows := func(name string) {
			t.Helper()
			expect(t, s.get("http://shop.test/", asPage), http.StatusForbidden, name+".js")
		}
		time.Sleep(time.Hour)
		shows("first")
		first.err = errors.New("away")
		shows("second")
		first.err = nil
		time.Sleep(BackupTime - time.Second)
		shows("second")
		second.passed = true
		expect(t, s.get("http://shop.test/", asPage), http.StatusOK, "You are in line")
		second.passed = false
		time.Sleep(2 * time.Second)
		shows("first")
		first.passed = true
		expect(t, s.get("http://shop.test/", asPage), http.StatusOK, "You are in line")
	})
}

// The operator's choice holds over that of the room.
func TestChallengeFailure(t *testing.T) {
	for _, test := range []struct {
		gate, room room.OnStoreFailure
		status     int
	}{
		{"", room.FailOpen, http.StatusOK},
		{"", room.FailClosed, http.StatusServiceUnavailable},
		{room.FailOpen, room.FailClosed, http.StatusOK},
		{room.FailClosed, room.FailOpen, http.StatusServiceUnavailable},
	} {
		s := newStand(t, func(o *Options) {
			o.Challenge, o.ChallengeFailure = &told{err: errors.New("away")}, test.gate
		})
		s.settings.OnStoreFailure = test.room
		if got := s.get("http://shop.test/", asPage).StatusCode; got != test.status {
			t.Errorf("%+v: status %d", test, got)
		}
	}
}
