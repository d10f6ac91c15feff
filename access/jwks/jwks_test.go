package jwks

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const ed = `{"kty":"OKP","crv":"Ed25519","kid":"%s","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`

func setOf(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// Keys of other kinds are ignored, and malformed and weak ones are refused.
func TestParse(t *testing.T) {
	good := fmt.Sprintf(ed, "a")
	set, err := Parse([]byte(setOf(`{"kty":"oct","kid":"a","k":"c2VjcmV0"}`, good, `{"kty":"EC","crv":"P-521"}`, strings.Replace(good, `"kid":"a"`, `"kid":"b","use":"enc"`, 1))))
	if err != nil || len(set) != 1 || set[ID{"a", EdDSA}] == nil {
		t.Errorf("%v, %v", set, err)
	}
	for name, text := range map[string]string{
		"no JSON": "<html>", "no keys": "{}", "a secret only": setOf(`{"kty":"oct","k":"c2VjcmV0"}`), "twice": setOf(good, good),
		"weak RSA":     setOf(`{"kty":"RSA","n":"` + strings.Repeat("_", 170) + `","e":"AQAB"}`),
		"exponent 1":   setOf(`{"kty":"RSA","n":"` + strings.Repeat("_", 342) + `","e":"AQ"}`),
		"off curve":    setOf(`{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}`),
		"short Ed":     setOf(`{"kty":"OKP","crv":"Ed25519","x":"AAAA"}`),
		"too many":     setOf(strings.Repeat("{},", MaxKeys) + "{}"),
		"too many byt": setOf(good + strings.Repeat(" ", MaxBytes)),
	} {
		if set, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: %v", name, set)
		}
	}
}

// FuzzParse: no set panics, and none has more keys than it may have, or an ID without a key.
func FuzzParse(f *testing.F) {
	f.Add([]byte(setOf(fmt.Sprintf(ed, "a"))))
	f.Add([]byte(setOf(`{"kty":"RSA","n":"AQAB","e":"AQAB"}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := Parse(text)
		if (err == nil) != (len(set) > 0) || len(set) > MaxKeys {
			t.Fatalf("%v, %v", set, err)
		}
		for id, key := range set {
			if key == nil {
				t.Fatal(id)
			}
		}
	})
}

// An answer that is huge, broken or a redirection leaves the set as it was.
func TestBadAnswers(t *testing.T) {
	answer := func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, setOf(fmt.Sprintf(ed, "a"))) }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	defer s.Close()
	k := New(s.URL, slog.New(slog.DiscardHandler))
	defer k.client.CloseIdleConnections()
	if err := k.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func(w http.ResponseWriter){
		"huge":     func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte(" "), 2*MaxBytes)) },
		"broken":   func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, `{"keys":[`) },
		"failed":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"redirect": func(w http.ResponseWriter) { w.Header().Set("Location", "/"); w.WriteHeader(http.StatusFound) },
	} {
		answer = bad
		if err := k.read(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if k.Find("a", EdDSA) == nil {
			t.Errorf("%s: the set is lost", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.read(ended); err == nil {
		t.Error("a read goes on after its context has ended")
	}
}
