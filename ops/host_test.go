package ops

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page whose name resolves to this server's address calls nothing.
func TestOnlyKnownHostsAreServed(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, test := range []struct {
		host  string
		names []string
		known bool
	}{
		{"127.0.0.1:8080", nil, true},
		{"10.1.2.3", nil, true},
		{"[::1]:8080", nil, true},
		{"[fe80::1%eth0]:8080", nil, true},
		{"localhost:8080", nil, true},
		{"LocalHost.", nil, true},
		{"", nil, true}, // HTTP/1.0, no browser
		{"evil.example", nil, false},
		{"evil.example:8080", nil, false},
		{"localhost.evil.example", nil, false},
		{"127.0.0.1.evil.example", nil, false},
		{"0x7f.1", nil, false},
		{"sluice.internal:8080", []string{"sluice.internal"}, true},
		{"SLUICE.internal", []string{"sluice.internal"}, true},
		{"other.internal", []string{"sluice.internal"}, false},
		{"evil.example", []string{AnyHost}, true},
	} {
		request := httptest.NewRequest(http.MethodPut, "/v1/limits", nil)
		request.Host = test.host
		w := httptest.NewRecorder()
		knownHosts(test.names, served).ServeHTTP(w, request)
		if known := w.Code == http.StatusNoContent; known != test.known {
			t.Errorf("host %q with names %q: %d %s", test.host, test.names, w.Code, w.Body)
		}
		if !test.known && (w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "http_hosts")) {
			t.Errorf("host %q: %d %s, want 421 and the name of the setting", test.host, w.Code, w.Body)
		}
	}
}
