package web

import (
	"context"
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// hostile is a name that would be markup.
const hostile = `<b onload="x">&'`

// fakeRooms has some views.
type fakeRooms struct {
	views []engine.View
	err   error
	put   map[string]room.Settings
	did   []string
}

func (f *fakeRooms) Room(_ context.Context, name string) (engine.View, error) {
	for _, v := range f.views {
		if v.Room.Name == name {
			return v, f.err
		}
	}
	return engine.View{}, room.ErrNoRoom
}

func (f *fakeRooms) Rooms(_ context.Context, after string, limit int) ([]engine.View, bool, error) {
	var views []engine.View
	for _, v := range f.views {
		if v.Room.Name > after {
			views = append(views, v)
		}
	}
	return views[:min(len(views), limit)], len(views) > limit, f.err
}

func (f *fakeRooms) PutRoom(_ context.Context, name string, s room.Settings) (engine.View, bool, error) {
	f.put = map[string]room.Settings{name: s}
	return engine.View{}, false, f.err
}

func (f *fakeRooms) Pause(_ context.Context, name string) (engine.View, error) {
	f.did = append(f.did, "pause "+name)
	return engine.View{}, f.err
}

func (f *fakeRooms) RevokeAll(_ context.Context, name string) error {
	f.did = append(f.did, "revoke "+name)
	return f.err
}

func (f *fakeRooms) Resume(_ context.Context, name string) (engine.View, error) {
	f.did = append(f.did, "resume "+name)
	return engine.View{}, f.err
}

// newTest returns a dashboard of the given parts.
func newTest(t *testing.T, options Options) *Dashboard {
	t.Helper()
	if options.Metrics == nil {
		options.Metrics = newFixture().registry
	}
	if options.Failing == nil {
		options.Failing = func(context.Context) map[string]string { return nil }
	}
	if options.Settings == nil {
		options.Settings = func() (string, error) { return "http: 127.0.0.1:8080 # default\n", nil }
	}
	options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ask returns the answer to a request; headers are pairs.
func ask(d http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, request)
	return w
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns what a reader sees of a page, with single spaces.
func text(t *testing.T, d http.Handler, target string, headers ...string) string {
	t.Helper()
	w := ask(d, "GET", target, "", headers...)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	_, main, _ := strings.Cut(w.Body.String(), "<main")
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString("<main"+main, " "))), " ")
}

// says fails unless a page has all of the texts.
func says(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

func TestOverviewSaysWhatNeedsAttention(t *testing.T) {
	f := newFixture()
	f.inside.WithLabelValues("shop").Set(1234)
	full := engine.View{Room: engine.Room{Name: "shop", Settings: room.Settings{Mode: room.Teller, Capacity: 1, MaxWaiting: 7}}, Status: room.Status{Waiting: 7}, Phase: room.Queueing}
	paused := engine.View{Room: engine.Room{Name: "museum", Paused: true, Settings: room.Settings{Mode: room.Teller, Capacity: 1}}, Phase: room.Paused}
	d := newTest(t, Options{Metrics: f.registry, Rooms: &fakeRooms{views: []engine.View{full, paused}},
		Failing:  func(context.Context) map[string]string { return map[string]string{"bulk": "the store: " + hostile} },
		Warnings: func(context.Context) map[string]string { return map[string]string{"disk": "it is slow: " + hostile} }})
	page := text(t, d, "/ui/")
	says(t, page, "The check bulk fails: the store: "+hostile, "The check disk warns: it is slow: "+hostile, "The line of room shop is full: 7 wait", "Room museum is paused", "1,234 inside", "Bulk off in this server")
	if strings.Contains(page, "All is well") {
		t.Error("all is well, says a page with failures")
	}
	says(t, text(t, newTest(t, Options{}), "/ui/"), "All is well.")
}

func TestLanguageIsChosen(t *testing.T) {
	d := newTest(t, Options{})
	for _, test := range []struct{ target, accept, cookie, want string }{
		{"/ui/", "", "", "en"},
		{"/ui/", "ko-KR,ko;q=0.9,en;q=0.8", "", "ko"},
		{"/ui/", "fr", "", "en"},
		{"/ui/", "ko", "sluice-lang=en", "en"},
		{"/ui/?lang=ko", "en", "", "ko"},
		{"/ui/?lang=xx", "ko", "", "ko"},
	} {
		w := ask(d, "GET", test.target, "", "Accept-Language", test.accept, "Cookie", test.cookie)
		if !strings.Contains(w.Body.String(), `<html lang="`+test.want+`"`) {
			t.Errorf("%+v: %s", test, w.Body)
		}
		if kept := w.Header().Get("Set-Cookie"); strings.HasPrefix(kept, "sluice-lang=ko") != (test.target == "/ui/?lang=ko") {
			t.Errorf("%+v: the cookie %q", test, kept)
		}
	}
}

func TestPagesHaveTheirPolicy(t *testing.T) {
	d := newTest(t, Options{Rooms: &fakeRooms{err: errors.New(hostile)}})
	for _, target := range []string{"/ui/", "/ui/static/ui.js", "/ui/none"} {
		header := ask(d, "GET", target, "").Header()
		if header.Get("Content-Security-Policy") != policy || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", target, header)
		}
	}
}

func TestSettingsAreShown(t *testing.T) {
	says(t, text(t, newTest(t, Options{}), "/ui/settings"), "http: 127.0.0.1:8080 # default")
}

func TestPartsThatAreOffAreShownAsOff(t *testing.T) {
	d := newTest(t, Options{})
	for _, path := range []string{"bulk", "bulk/tenants", "bulk/targets", "bulk/streams", "bulk/schedules", "bulk/failures", "bulk/workers", "rooms", "topics", "topics/groups", "cluster"} {
		says(t, text(t, d, Prefix+path), "off in this server")
		says(t, text(t, d, Prefix+path+"?lang=ko"), "이 서버에서 꺼져 있음")
	}
	for _, path := range []string{"bulk/action", "bulk/schedule", "rooms/room", "topics/topic", "topics/records", "topics/group", "topics/reset", "topics/tail"} {
		if w := ask(d, "GET", Prefix+path+"?name=x", ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
