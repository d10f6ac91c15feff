package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/bulk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// newHandler returns a handler that reaches servers on this machine.
func newHandler(t *testing.T, options Options) *Handler {
	t.Helper()
	if options.Allow == nil {
		options.Allow = loopback
	}
	h, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func newServer(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server
}

func jobTo(target string) *bulk.Job {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	return &bulk.Job{
		Spec:    &bulk.Spec{ID: "act", Tenant: "PR", Type: bulk.WebhookType, Target: &bulk.Target{Name: u.Host, URL: target}},
		Index:   7,
		Payload: []byte(`{"zip_code":"00501"}`),
		Attempt: 2,
	}
}

// attempt runs one job against a target that answers with f.
func attempt(t *testing.T, f http.HandlerFunc) ([]byte, error) {
	t.Helper()
	return newHandler(t, Options{MaxResponseBytes: 1024}).Handle(t.Context(), jobTo(newServer(t, f).URL))
}

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	h := newHandler(t, Options{Secrets: []string{vectorSecret, otherSecret}})
	job := jobTo(strings.Replace(server.URL, "http://", "http://user:pass@", 1) + "/hook?x=1")
	job.Spec.Tenant = "Zürich 100%"
	if _, err := h.Handle(t.Context(), job); err != nil {
		t.Fatal(err)
	}

	if got.Method != http.MethodPost || got.URL.String() != "/hook?x=1" || string(body) != string(job.Payload) {
		t.Errorf("request = %s %s %s", got.Method, got.URL, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Sluice", HeaderID: "act-7",
		"Sluice-Action": "act", "Sluice-Tenant": "Z%C3%BCrich%20100%25", "Sluice-Attempt": "2",
		"Content-Length": strconv.Itoa(len(job.Payload)),
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("%s = %q; want %q", name, value, want)
		}
	}
	if _, sent := got.Header["Idempotency-Key"]; sent {
		t.Error("Idempotency-Key was sent")
	}
	if user, password, _ := got.BasicAuth(); user != "user" || password != "pass" {
		t.Errorf("basic authentication = %q, %q", user, password)
	}
	if signatures := strings.Split(got.Header.Get(HeaderSignature), " "); len(signatures) != 2 {
		t.Errorf("signatures = %q; want two", signatures)
	}
	for _, secret := range []string{vectorSecret, otherSecret} {
		if err := Verify(secret, got.Header, body, time.Now(), time.Minute); err != nil {
			t.Errorf("Verify: %v", err)
		}
	}
}

func TestSecretsOfTargets(t *testing.T) {
	third := secretOf(strings.Repeat("t", 24))
	var header http.Header
	var body []byte
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	h := newHandler(t, Options{
		Secrets:       []string{vectorSecret},
		TargetSecrets: map[string][]string{"own": {otherSecret, third}, "unsigned": {}},
	})
	for target, want := range map[string][]string{"own": {otherSecret, third}, "unsigned": nil, "not listed": {vectorSecret}} {
		job := jobTo(server.URL)
		job.Spec.Target.Name = target
		if _, err := h.Handle(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		var wanted []string
		for _, secret := range want {
			seconds, _ := strconv.ParseInt(header.Get(HeaderTimestamp), 10, 64)
			signature, err := Sign(secret, "act-7", time.Unix(seconds, 0), body)
			if err != nil {
				t.Fatal(err)
			}
			wanted = append(wanted, signature)
		}
		if got := header.Get(HeaderSignature); got != strings.Join(wanted, " ") {
			t.Errorf("target %s: signatures %q; want %q", target, got, wanted)
		}
		if _, sent := header[http.CanonicalHeaderKey(HeaderSignature)]; target == "unsigned" && sent {
			t.Error("an unsigned request has the signature header")
		}
	}
}

func TestNewRefuses(t *testing.T) {
	tooMany := make([]string, MostSecrets+1)
	for i := range tooMany {
		tooMany[i] = vectorSecret
	}
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"secret":          {Options{Secrets: []string{vectorSecret, "hunter2hunter2"}}, "secrets, number 2"},
		"target's secret": {Options{TargetSecrets: map[string][]string{"api": {"hunter2hunter2"}}}, `secrets of target "api", number 1`},
		"many secrets":    {Options{Secrets: tooMany}, "want at most 10"},
		"response bytes":  {Options{MaxResponseBytes: -1}, "max response bytes -1"},
		"huge responses":  {Options{MaxResponseBytes: 1 << 40}, "max response bytes"},
		"idle":            {Options{IdleConnections: -1}, "idle connections -1"},
		"user agent":      {Options{UserAgent: "a\r\nb: c"}, "want printable ASCII"},
	} {
		_, err := New(test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: New = %v; want %q in it, and no secret", name, err, test.want)
		}
	}
}

func TestNotATarget(t *testing.T) {
	h := newHandler(t, Options{})
	for _, target := range []string{"", "http://", "/hook", "ftp://host/", "http://user:pass@host:port/", "http://ho st/"} {
		job := jobTo("http://host")
		job.Spec.Target.URL = target
		_, err := h.Handle(t.Context(), job)
		if got, _ := kindOf(err); err == nil || got != finalKind || strings.Contains(err.Error(), "pass") {
			t.Errorf("target %q: %v", target, err)
		}
	}
	job := jobTo("http://host")
	job.Spec.Target = nil
	if _, err := h.Handle(t.Context(), job); !errors.Is(err, bulk.SkipRetry) {
		t.Errorf("no target: %v", err)
	}
}
