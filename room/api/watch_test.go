package api_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/watch"
)

// streamed is a response whose body is closed at the end of the test.
type streamed struct {
	status int
	header http.Header
	body   *bufio.Reader
}

// get makes a request over loopback.
func get(t *testing.T, url string, headers ...string) streamed {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		response.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return streamed{response.StatusCode, response.Header, bufio.NewReader(response.Body)}
}

// next reads the next event, and returns its lines; "" at the end.
func next(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	var event strings.Builder
	for {
		line, err := in.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF) && line == "" && event.Len() == 0:
			return ""
		case err != nil:
			t.Fatalf("%v after %q", err, event.String())
		case line == "\n" && strings.Contains(event.String(), "data: "):
			return event.String()
		case line == "\n": // no news about the place
			event.Reset()
		default:
			event.WriteString(line)
		}
	}
}

func TestWatch(t *testing.T) {
	const path = "/v1/rooms/shop/visitors/me/watch"
	for _, test := range []struct {
		path   string
		header []string
	}{
		{path, []string{bearer, "Bearer t"}},
		{path + "?ticket=t", nil},
		{path + "?ticket=other", []string{bearer, "Bearer t"}},
	} {
		t.Run(test.path, func(t *testing.T) {
			engine := newFake()
			server := httptest.NewServer(api.New(engine, startHub(t, engine), api.WithOrigins("https://shop.example")))
			defer server.Close()
			response := get(t, server.URL+test.path, append(test.header, "Origin", "https://shop.example")...)
			if response.status != 200 || response.header.Get("Content-Type") != "text/event-stream" || response.header.Get("Access-Control-Allow-Origin") != "https://shop.example" {
				t.Fatal(response)
			}
			text, err := engine.answer.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := next(t, response.body), "id: 1\ndata: "+string(text)+"\n"; got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			engine.mu.Lock()
			defer engine.mu.Unlock()
			if engine.calls[0] != "Parse shop t 127.0.0.1" || engine.calls[1] != "AskAll shop 1 true" {
				t.Errorf("called %q", engine.calls)
			}
		})
	}
}

func TestWatchRefused(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		code   string
	}{
		{&room.GoneError{Reason: room.Left, ID: 7}, 410, api.CodeGone},
		{room.ErrNoRoom, 404, api.CodeNoRoom},
	} {
		engine := newFake()
		engine.fail["AskAll"] = test.err
		f := newFixture(t, engine)
		if a := f.do(test.status, "GET", "/v1/rooms/shop/visitors/me/watch", "", bearer, "Bearer t"); a.problem.Code != test.code {
			t.Errorf("%+v", a.problem)
		}
	}
	engine := newFake()
	full := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/v1/rooms/shop/visitors/me/watch?ticket=t", nil)
	api.New(engine, watch.New(engine, watch.WithMaxStreams(0))).ServeHTTP(full, r)
	if full.Code != 503 || full.Header().Get("Retry-After") != "10" || !strings.Contains(full.Body.String(), `"code":"busy"`) {
		t.Error(full.Code, full.Header(), full.Body)
	}
}
