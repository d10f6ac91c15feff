package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
)

func TestBodies(t *testing.T) {
	long := strings.Repeat("x", api.MaxBody)
	for _, test := range []struct {
		method, path, body, contentType string
		status                          int
		code, detail                    string
	}{
		{"POST", "/visitors", `{"visitr":"x"}`, "", 422, api.CodeInvalid, "visitr: unknown field; there is visitor"},
		{"POST", "/visitors", `{"Visitor":"x"}`, "", 422, api.CodeInvalid, "Visitor: unknown field"},
		{"POST", "/visitors", `{"visitor":7}`, "", 422, api.CodeInvalid, "visitor: want a string"},
		{"POST", "/visitors", `{"visitor":{}}`, "", 422, api.CodeInvalid, "visitor: want a string"},
		{"POST", "/visitors", `{"visitor":"x","visitor":"y"}`, "", 422, api.CodeInvalid, "visitor: is given twice"},
		{"POST", "/visitors", `{"visitor":"x"`, "", 422, api.CodeInvalid, "body: is not JSON"},
		{"POST", "/visitors", `{"visitor"`, "", 422, api.CodeInvalid, "body: is not JSON"},
		{"POST", "/visitors", `{"visitor":"x"} {}`, "", 422, api.CodeInvalid, "body: there is more"},
		{"POST", "/visitors", `"x"`, "", 422, api.CodeInvalid, "body: want a JSON object"},
		{"POST", "/visitors", "{\"visitor\":\"\xff\"}", "", 422, api.CodeInvalid, "body: is not UTF-8"},
		{"POST", "/visitors", long + "x", "", 413, api.CodeTooLarge, "the body has more than 4096 bytes"},
		{"POST", "/pause", long + "x", "", 413, api.CodeTooLarge, "the body has more than 4096 bytes"},
		{"POST", "/visitors", `{}`, "application/x-www-form-urlencoded", 415, api.CodeMediaType, "want application/json"},
		{"PUT", "", `{}`, "text/plain", 415, api.CodeMediaType, "want application/json"},
		{"PUT", "", strings.Repeat(" ", api.MaxSettings+1), "", 413, api.CodeTooLarge, "131072"},
		{"PUT", "", ``, "", 422, api.CodeInvalid, "body: is not JSON"},
		{"PUT", "", `[1]`, "", 422, api.CodeInvalid, "settings"},
		{"PUT", "", `{"mode":"teller","capaciti":1}`, "", 422, api.CodeInvalid, "did you mean capacity"},
		{"POST", "/revoke", `{"visitor":"x","ticket":"y"}`, "", 422, api.CodeInvalid, "name one"},
		{"POST", "/revoke", `{"visitor":null}`, "", 422, api.CodeInvalid, "send no body"},
		{"GET", "/visitors/me?wait=1", "", "", 422, api.CodeInvalid, "wait: unknown parameter; there is wait_ms, position"},
		{"GET", "/visitors/me?wait_ms=30001", "", "", 422, api.CodeInvalid, "wait_ms: give a whole number from 0 to 30000"},
		{"GET", "/visitors/me?wait_ms=-1", "", "", 422, api.CodeInvalid, "wait_ms"},
		{"GET", "/visitors/me?wait_ms=1&wait_ms=1", "", "", 422, api.CodeInvalid, "more than once"},
		{"GET", "/visitors/me?position=x", "", "", 422, api.CodeInvalid, "position"},
		{"GET", "/visitors/me?%", "", "", 422, api.CodeInvalid, "query"},
		{"GET", "?x=1", "", "", 422, api.CodeInvalid, "x: unknown parameter; there is none"},
	} {
		engine := newFake()
		f := newFixture(t, engine)
		headers := []string{bearer, "Bearer t"}
		if test.contentType != "" {
			headers = append(headers, "Content-Type", test.contentType)
		}
		a := f.do(test.status, test.method, "/v1/rooms/shop"+test.path, test.body, headers...)
		if a.problem.Code != test.code || !strings.Contains(a.problem.Detail, test.detail) || len(engine.calls) > 0 {
			t.Errorf("%s %s %.80s: %+v, called %q\nwant %s %s", test.method, test.path, test.body, a.problem, engine.calls, test.code, test.detail)
		}
		if (a.problem.Code == api.CodeInvalid) != (len(a.problem.Errors) == 1) {
			t.Errorf("%s %.80s: errors %v", test.path, test.body, a.problem.Errors)
		}
	}
}

func TestBodiesThatAreRead(t *testing.T) {
	engine := newFake()
	f := newFixture(t, engine)
	space := strings.Repeat(" ", api.MaxBody-len(`{"visitor":"x"}`))
	for body, key := range map[string]string{
		`{"visitor":"한글 \" "}`:      `한글 " `,
		`{"visitor":"A"}`:           "A",
		`{"visitor":"x"}` + space:   "x",
		" \r\n\t{}":                 "",
		"  ":                        "",
		`{"visitor":"a\u0000\"b" }`: "a\x00\"b",
	} {
		engine.calls = nil
		f.do(200, "POST", "/v1/rooms/shop/visitors", body, "Content-Type", "application/json; charset=utf-8")
		if want := "Enter shop " + key + " 192.0.2.1"; len(engine.calls) != 1 || engine.calls[0] != want {
			t.Errorf("%.40q: %q, want %q", body, engine.calls, want)
		}
	}
}

// A body of unknown length is bounded too, and the rest of a refused one does not become the next
// request.
func TestLengthUnknown(t *testing.T) {
	engine := newFake()
	server := httptest.NewServer(newFixture(t, engine).handler)
	defer server.Close()
	post := func(body string) (status int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/rooms/shop/visitors", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return response.StatusCode
	}
	if status := post(`{"visitor":"ada"}`); status != 200 {
		t.Error(status)
	}
	if status := post(strings.Repeat(" ", api.MaxBody+1)); status != 413 {
		t.Error(status)
	}
	if len(engine.calls) != 1 || engine.calls[0] != "Enter shop ada 127.0.0.1" {
		t.Errorf("%q", engine.calls)
	}
}

// FuzzEnter compares the parser of bodies with encoding/json.
func FuzzEnter(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"visitor":"ada"}`, ` {"visitor" : "a\u0042c" } `, `{"visitor":null}`, `{"visitor":"x"}}`, `{"visitor":"x",}`, `{"visitor" "x"}`, `[]`, "\v"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		engine := newFake()
		handler := api.New(engine, nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/rooms/shop/visitors", bytes.NewReader(body)))
		key, ok := read(body)
		want := 422
		switch {
		case len(body) > api.MaxBody:
			want = 413
		case ok:
			want = 200
		}
		if w.Code != want {
			t.Fatalf("%q: %d %s, want %d", body, w.Code, w.Body, want)
		}
		if want == 200 && engine.calls[0] != "Enter shop "+key+" 192.0.2.1" {
			t.Fatalf("%q: %q, want the key %q", body, engine.calls, key)
		}
	})
}

// read parses a body in the simplest way.
func read(body []byte) (key string, ok bool) {
	if len(bytes.Trim(body, " \t\r\n")) == 0 {
		return "", true
	}
	var members map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &members) != nil || members == nil {
		return "", false
	}
	// A map has each name once, so count them.
	decoder := json.NewDecoder(bytes.NewReader(body))
	_, _ = decoder.Token()
	given := false
	for decoder.More() {
		name, _ := decoder.Token()
		if name != "visitor" || given {
			return "", false
		}
		var value any
		if decoder.Decode(&value) != nil {
			return "", false
		}
		switch value := value.(type) {
		case string:
			key, given = value, true
		case nil:
		default:
			return "", false
		}
	}
	return key, true
}

// FuzzSettings checks that accepted settings are accepted again unchanged.
func FuzzSettings(f *testing.F) {
	for _, seed := range []string{`{"mode":"teller","capacity":5}`, `{"mode":"park","batch":1,"interval_ms":1000,"stay_ms":1000}`, `{"mode":"teller","capacity":5,"routes":[{"path":"/x/*"}]}`, `{}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		engine := &putter{fake: newFake()}
		w := httptest.NewRecorder()
		api.New(engine, nil).ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/v1/rooms/shop", bytes.NewReader(body)))
		if engine.put == nil {
			if w.Code != 422 && w.Code != 413 {
				t.Fatalf("%q: %d %s", body, w.Code, w.Body)
			}
			return
		}
		text, err := json.Marshal(engine.put)
		if err != nil || engine.put.Validate() != nil {
			return // The engine refuses inconsistent settings.
		}
		again := &putter{fake: newFake()}
		w = httptest.NewRecorder()
		api.New(again, nil).ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/v1/rooms/shop", bytes.NewReader(text)))
		if w.Code != 200 {
			t.Fatalf("%q became %s: %d %s", body, text, w.Code, w.Body)
		}
		second, err := json.Marshal(again.put)
		if err != nil || !bytes.Equal(text, second) {
			t.Fatalf("%s became %s, %v", text, second, err)
		}
	})
}

// putter records the settings that are put.
type putter struct {
	*fake
	put *room.Settings
}

func (p *putter) PutRoom(_ context.Context, _ string, s room.Settings) (engine.View, bool, error) {
	p.put = &s
	return p.view, false, nil
}
