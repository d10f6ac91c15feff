package ops

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A front answers everything with its handler, also what a Server has of its own.
func TestFrontHasNoEndpointsOfItsOwn(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "front "+r.URL.Path) })
	s := NewFront(Options{Addr: "127.0.0.1:0", Name: "gate", Logger: quiet()}, echo)
	url := start(t, s)
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/a//b"} {
		if status, body := get(t, url+path); status != http.StatusOK || body != "front "+path {
			t.Errorf("%s: %d %q, want 200 and the handler's answer", path, status, body)
		}
	}
	if s.Name() != "gate" {
		t.Errorf("its name is %q", s.Name())
	}
}

func TestFrontSpeaksTLS(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	protocol := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	s := NewFront(Options{Addr: "127.0.0.1:0", TLS: &tls.Config{Certificates: certified.TLS.Certificates}, Logger: quiet()}, protocol)
	url := start(t, s)
	client := certified.Client()
	defer client.CloseIdleConnections()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	response, err := client.Get(strings.Replace(url, "http:", "https:", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "HTTP/2.0" {
		t.Errorf("%q, %v, want HTTP/2.0", body, err)
	}
}

// A further listener serves what the first does, to those who have the right to it.
func TestAFurtherListener(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	known, _ := accounts(t)
	s := NewServer(Options{Addr: "127.0.0.1:0", Accounts: known, Logger: quiet()})
	other := s.NewListener("http outer", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates})
	plain, secure := start(t, s), strings.Replace(start(t, other), "http:", "https:", 1)
	client := certified.Client()
	defer client.CloseIdleConnections()
	for _, at := range []string{plain, secure} {
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/metrics": http.StatusUnauthorized} {
			response, err := client.Get(at + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s%s: %d, want %d", at, path, response.StatusCode, want)
			}
		}
	}
}
