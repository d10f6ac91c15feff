package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		err        error
		status     int
		kind, code string
		after      string
	}{
		{room.ErrLineFull, 503, "full", "line_full", "30"},
		{fmt.Errorf("wrapped: %w", room.ErrNotOpen), 503, "not_open", "not_open", "3600"},
		{room.ErrEnded, 403, "ended", "ended", ""},
		{&engine.LimitError{RetryAfter: 7 * time.Second}, 429, "limited", "limited", "7"},
		{room.ErrUnavailable, 503, "unavailable", "unavailable", "5"},
		{context.DeadlineExceeded, 503, "unavailable", "unavailable", "5"},
		{room.ErrBroken, 503, "unavailable", "unavailable", "5"},
		{errors.New("no idea"), 503, "unavailable", "unavailable", "5"},
		{room.ErrNoRoom, 503, "unavailable", "no_room", "5"},
	} {
		s := newStand(t, nil)
		s.settings.OpensAt = time.Now().Add(2 * time.Hour)
		s.settings.PrequeueFrom = time.Now().Add(time.Hour)
		s.enter = test.err
		for kind, want := range map[string]string{"page": `data-kind="` + test.kind + `"`, "program": `"code":"` + test.code + `"`} {
			how := asPage
			if kind == "program" {
				how = asProgram
			}
			response := s.get("http://shop.test/", how)
			body := expect(t, response, test.status, want)
			if got := response.Header.Get("Retry-After"); got != test.after || response.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v: Retry-After = %q", test.err, got)
			}
			if strings.Contains(body, "no idea") || len(response.Cookies()) != 0 || s.shop.requests != 0 {
				t.Errorf("%v: %s", test.err, body)
			}
		}
	}
}

func TestStoreIsAway(t *testing.T) {
	for _, askers := range [][]asker{{asPage}, {asPage, ticket(1)}, {pass(1)}, {asImage, ticket(1)}, {asProgram}} {
		closed, open := newStand(t, nil), newStand(t, nil)
		open.settings.OnStoreFailure = room.FailOpen
		for _, s := range []*stand{closed, open} {
			s.set(1, room.Waiting)
			s.away = room.ErrUnavailable
		}
		response := closed.get("http://shop.test/", askers...)
		expect(t, response, http.StatusServiceUnavailable)
		if closed.shop.requests != 0 || response.Header.Get("Retry-After") == "" || len(response.Cookies()) != 0 {
			t.Errorf("closed: %d requests, header %v", closed.shop.requests, response.Header)
		}
		expect(t, open.get("http://shop.test/", askers...), http.StatusOK, "the shop")
		if open.shop.last.Header.Get("Sluice-Pass") != "" {
			t.Error("a pass was made up")
		}
	}
	// Images of the page that was let through are served; once the store is back, there are none
	// without a place.
	s := newStand(t, nil)
	s.settings.OnStoreFailure = room.FailOpen
	expect(t, s.get("http://shop.test/a.png", asImage), http.StatusServiceUnavailable)
	s.away = room.ErrUnavailable
	expect(t, s.get("http://shop.test/", asPage), http.StatusOK, "the shop")
	expect(t, s.get("http://shop.test/a.png", asImage), http.StatusOK, "the shop")
	s.away = nil
	expect(t, s.get("http://shop.test/", asPage), http.StatusOK, "You are in line")
	expect(t, s.get("http://shop.test/a.png", asImage), http.StatusServiceUnavailable)
	// If the settings are unknown too, it is unknown whether the gate may open.
	s = newStand(t, nil)
	s.settings = room.Settings{OnStoreFailure: room.FailOpen}
	s.known = room.ErrUnavailable
	s.gate.rooms = unknownRoom{s.fake}
	expect(t, s.get("http://shop.test/", asPage), http.StatusServiceUnavailable, `data-kind="unavailable"`)
	if s.shop.requests != 0 {
		t.Error("the gate opened")
	}
}

// unknownRoom has no settings, as the engine before it has read a room.
type unknownRoom struct{ *fake }

func (u unknownRoom) Settings(context.Context, string) (room.Settings, error) {
	return room.Settings{}, u.known
}

// A visitor who cancels a request does not open a gate that fails open.
func TestBreakingOffOpensNothing(t *testing.T) {
	s := newStand(t, nil)
	s.settings.OnStoreFailure = room.FailOpen
	s.set(1, room.Waiting)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.away = context.Canceled
	breaksOff := func(r *http.Request) { *r = *r.WithContext(ctx) }
	s.get("http://shop.test/", asPage, ticket(1), breaksOff)
	s.get("http://shop.test/", asPage, breaksOff)
	s.away = nil
	expect(t, s.get("http://shop.test/a.png", asImage), http.StatusServiceUnavailable)
	if s.shop.requests != 0 {
		t.Errorf("%d requests went through", s.shop.requests)
	}
}

// While too many others join, newcomers are told to come again and take no place; who has one is served.
func TestNewcomersHaveTurns(t *testing.T) {
	free, joining := false, 0
	s := newStand(t, func(options *Options) {
		options.Join = func(context.Context) (leave func(), joins bool) {
			joining++
			return func() { joining-- }, free
		}
	})
	s.set(1, room.Waiting)
	response := s.get("http://shop.test/", asPage)
	expect(t, response, http.StatusServiceUnavailable, `data-kind="unavailable"`)
	if response.Header.Get("Retry-After") != "5" || len(response.Cookies()) != 0 {
		t.Errorf("the header is %v", response.Header)
	}
	expect(t, s.get("http://shop.test/", asProgram), http.StatusServiceUnavailable, `"code":"busy"`)
	joining = 0
	expect(t, s.get("http://shop.test/", asPage, ticket(1)), http.StatusOK, `data-kind="waiting"`)
	if joining != 0 {
		t.Error("a visitor in line waited for a turn to join")
	}
	free = true
	expect(t, s.get("http://shop.test/", asProgram), http.StatusAccepted)
	if joining != 0 {
		t.Errorf("%d turns were not given back", joining)
	}
}
