package ops

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
)

// connectionOf is a connection on which a client has shown a certificate of a common name.
func connectionOf(t *testing.T, name string) *tls.ConnectionState {
	t.Helper()
	subject, err := asn1.Marshal(pkix.Name{CommonName: name}.ToRDNSequence())
	if err != nil {
		t.Fatal(err)
	}
	shown := []*x509.Certificate{{RawSubject: subject, NotAfter: time.Now().Add(24 * time.Hour)}}
	return &tls.ConnectionState{PeerCertificates: shown, VerifiedChains: [][]*x509.Certificate{shown}}
}

// granted returns accounts with grants.
func granted(t *testing.T, texts ...string) *access.Accounts {
	t.Helper()
	options := access.Options{Logger: quiet()}
	for _, text := range texts {
		g, err := access.ParseGrant(text)
		if err != nil {
			t.Fatal(err)
		}
		options.Grants = append(options.Grants, g)
	}
	known, err := access.New(&storetest.Memory{}, adminSecret, options)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// The certificate of a connection says who sends a request, unless it shows a token; pages of other sites cannot use
// that of a browser.
func TestCertificatesAreAccounts(t *testing.T) {
	s := NewServer(Options{Pprof: true, Accounts: granted(t, "name:cert:viewer viewer", "name:cert:boss admin"), Logger: quiet()})
	const profile, metrics, site, origin = "/debug/pprof/cmdline", "/metrics", "Sec-Fetch-Site", "Origin"
	for _, test := range []struct {
		certificate, path string
		header            [2]string
		status            int
		says              string
	}{
		{"viewer", metrics, [2]string{}, 200, ""},
		{"viewer", profile, [2]string{}, 403, "cert:viewer lacks the right profile"},
		{"boss", profile, [2]string{}, 200, ""},
		{"stranger", metrics, [2]string{}, 403, "cert:stranger has no role here"},
		{"", metrics, [2]string{}, 401, "this needs a token"},
		{"a\nb", metrics, [2]string{}, 401, "the certificate makes nobody known"},
		{"viewer", profile, [2]string{"Authorization", "Bearer " + adminSecret}, 200, ""},
		{"boss", profile, [2]string{"Authorization", "Bearer sluice_unknown"}, 401, "nobody has this token"},
		{"boss", profile, [2]string{"Authorization", "Basic abc"}, 401, "this needs a token"},
	} {
		request := httptest.NewRequest(http.MethodGet, test.path, nil)
		if test.certificate != "" {
			request.TLS = connectionOf(t, test.certificate)
		}
		if test.header[0] != "" {
			request.Header.Set(test.header[0], test.header[1])
		}
		w := httptest.NewRecorder()
		s.streams.wrap(s.certified(s.handler)).ServeHTTP(w, request)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
			t.Errorf("%q at %s with %q: %d %s, want %d %q", test.certificate, test.path, test.header, w.Code, w.Body, test.status, test.says)
		}
	}
	for from, want := range map[[2]string]int{{site, "cross-site"}: 401, {origin, "https://evil.test"}: 401, {site, "same-origin"}: 403, {"", ""}: 403} {
		request := httptest.NewRequest(http.MethodPost, "/v1/tokens", nil)
		request.TLS = connectionOf(t, "viewer")
		if from[0] != "" {
			request.Header.Set(from[0], from[1])
		}
		w := httptest.NewRecorder()
		if _, refusal := s.guard.Admit(w, request, "create-token", access.ManageAccess); refusal == nil {
			t.Errorf("%q: it is admitted", from)
		} else if refusal.Write(w); w.Code != want {
			t.Errorf("%q: %d %s, want %d", from, w.Code, w.Body, want)
		}
	}
}

// certificates returns the configurations of a server that asks for certificates, and of a client that has one of a name.
func certificates(t *testing.T, name string) (server, client *tls.Config) {
	t.Helper()
	authority := certtest.New(t)
	server = authority.Client(authority.Issue("server"))
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, server.RootCAs
	return server, authority.Client(authority.Issue(name))
}

// overTLS returns the client with TLS.
func overTLS(plain *http.Client, config *tls.Config) *http.Client {
	plain.Transport.(*http.Transport).TLSClientConfig = config
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		r.URL.Scheme = "https"
		return plain.Transport.RoundTrip(r)
	})}
}

// A certificate that is not good any more, or has lost its grant, ends the requests of its connections, also of those
// with a token and without accounts; the next ones are refused.
func TestRevokedCertificatesEndRequests(t *testing.T) {
	for name, test := range map[string]struct {
		accounts bool
		lose     func(known *access.Accounts, revoked *atomic.Bool)
		refused  int
	}{
		"revoked":                   {true, func(_ *access.Accounts, revoked *atomic.Bool) { revoked.Store(true) }, 401},
		"revoked, without accounts": {false, func(_ *access.Accounts, revoked *atomic.Bool) { revoked.Store(true) }, 401},
		"without a grant":           {true, func(known *access.Accounts, _ *atomic.Bool) { known.SetGrants(nil) }, 403},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := certificates(t, "viewer")
			synctest.Test(t, func(t *testing.T) {
				var revoked atomic.Bool
				options := Options{Logger: quiet(), TLS: server, CheckCertificate: func(*tls.ConnectionState) error {
					if revoked.Load() {
						return errors.New("it was revoked")
					}
					return nil
				}}
				if test.accounts {
					options.Accounts = granted(t, "name:cert:viewer viewer")
				}
				s := NewServer(options)
				s.mux.Handle("/watch", s.guard.wrap("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					<-r.Context().Done()
					_, _ = io.WriteString(w, "ended")
				})))
				going := fetch(t, overTLS(startInMemory(t, s), client), "/watch")
				if time.Sleep(time.Hour); len(going) > 0 {
					t.Fatalf("the stream has ended: %s", <-going)
				}
				test.lose(options.Accounts, &revoked)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if len(going) == 0 {
					t.Error("the stream goes on")
				}
				request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				request.TLS = connectionOf(t, "viewer")
				w := httptest.NewRecorder()
				s.streams.wrap(s.certified(s.handler)).ServeHTTP(w, request)
				if w.Code != test.refused {
					t.Errorf("the next request: %d %s, want %d", w.Code, w.Body, test.refused)
				}
				if _, err := stop(t, s, time.Minute); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
