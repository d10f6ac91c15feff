package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

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
	job.Spec.Tenant, job.Spec.Key = "Zürich 100%", "고객 7"
	if _, err := h.Handle(t.Context(), job); err != nil {
		t.Fatal(err)
	}

	if got.Method != http.MethodPost || got.URL.String() != "/hook?x=1" || string(body) != string(job.Payload) {
		t.Errorf("request = %s %s %s", got.Method, got.URL, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Sluice", HeaderID: "act-7",
		"Sluice-Action": "act", "Sluice-Tenant": "Z%C3%BCrich%20100%25", "Sluice-Key": "%EA%B3%A0%EA%B0%9D%207", "Sluice-Attempt": "2",
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
	if signatures := strings.Split(got.Header.Get(HeaderSignature), " "); len(signatures) != 4 || !strings.HasPrefix(signatures[1], "v1,") || !strings.HasPrefix(signatures[2], "v1s,") {
		t.Errorf("signatures = %q; want two of each scheme", signatures)
	}
	for _, secret := range []string{vectorSecret, otherSecret} {
		if err := Verify(secret, got.Header, body, time.Now(), time.Minute); err != nil {
			t.Errorf("Verify: %v", err)
		}
	}
}

// signedBy returns which of the secrets signed a request, in the order of its signatures.
func signedBy(t *testing.T, header http.Header, body []byte, secrets ...string) (by []string) {
	t.Helper()
	all := strings.Fields(header.Get(HeaderSignature))
	for _, signature := range all[:len(all)/2] { // those of v1, and as many of v1s
		one := header.Clone()
		one.Set(HeaderSignature, signature)
		for _, secret := range secrets {
			if Verify(secret, one, body, time.Now(), 0) == nil {
				by = append(by, secret)
			}
		}
	}
	return by
}

// Secrets of a target sign only what its prefix keeps with it.
func TestSecretsOfTargets(t *testing.T) {
	third, stored := secretOf(strings.Repeat("t", 24)), secretOf(strings.Repeat("s", 24))
	var header http.Header
	var body []byte
	requests := 0
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	h := newHandler(t, Options{
		Secrets:       []string{vectorSecret},
		TargetSecrets: map[string][]string{"own": {otherSecret, third}, "unsigned": {}},
	})
	prefixed := &bulk.TargetLimits{URLPrefix: server.URL}
	for _, test := range []struct {
		target   string
		settings *bulk.TargetLimits
		want     []string
	}{
		{"own", prefixed, []string{otherSecret, third}},
		{"unsigned", prefixed, nil},
		{"unsigned", nil, nil},
		{"not listed", prefixed, []string{vectorSecret}},
		{"not listed", &bulk.TargetLimits{}, []string{vectorSecret}},
		{"own", &bulk.TargetLimits{URLPrefix: server.URL, Secrets: []string{stored}}, []string{stored}},
		{"not listed", &bulk.TargetLimits{URLPrefix: server.URL, Secrets: []string{stored, third}}, []string{stored, third}},
	} {
		job := jobTo(server.URL)
		job.Spec.Target.Name, job.Target = test.target, test.settings
		if _, err := h.Handle(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if got := signedBy(t, header, body, vectorSecret, otherSecret, third, stored); !slices.Equal(got, test.want) {
			t.Errorf("target %s with %+v: signed by %q; want %q", test.target, test.settings, got, test.want)
		}
		if _, sent := header[http.CanonicalHeaderKey(HeaderSignature)]; len(test.want) == 0 && sent {
			t.Error("an unsigned request has the signature header")
		}
	}
	for _, settings := range []*bulk.TargetLimits{nil, {}, {Concurrency: 3}} {
		requests = 0
		job := jobTo(server.URL)
		job.Spec.Target.Name, job.Target = "own", settings
		_, err := h.Handle(t.Context(), job)
		if got, _ := kindOf(err); got != finalKind || requests != 0 || !strings.Contains(err.Error(), "url_prefix") {
			t.Errorf("secrets without a prefix: %v is %s, after %d requests", err, got, requests)
		}
	}
}

// A request says for whom it is, to those that ask.
func TestVerifyFor(t *testing.T) {
	var header http.Header
	var body []byte
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	job := jobTo(strings.Replace(server.URL, "http://", "http://user:pass@", 1) + "/hooks/a%20b?x=1")
	job.Spec.Tenant = "Zürich 100%"
	if _, err := newHandler(t, Options{Secrets: []string{vectorSecret, otherSecret}}).Handle(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	own := server.URL + "/hooks/a%20b"
	for _, secret := range []string{vectorSecret, otherSecret} {
		if tenant, err := VerifyFor(secret, own, header, body, time.Now(), 0); err != nil || tenant != job.Spec.Tenant {
			t.Errorf("VerifyFor = %q, %v", tenant, err)
		}
	}
	changed := func(name, value string) http.Header {
		other := header.Clone()
		other.Set(name, value)
		return other
	}
	missing := header.Clone()
	missing.Del(headerTenant)
	for name, test := range map[string]struct {
		url    string
		header http.Header
		body   string
		want   error
	}{
		"another path":     {server.URL + "/hooks/b", header, string(body), ErrSignature},
		"another host":     {"http://other.example/hooks/a%20b", header, string(body), ErrSignature},
		"another scheme":   {strings.Replace(own, "http", "https", 1), header, string(body), ErrSignature},
		"another tenant":   {own, changed(headerTenant, "PR"), string(body), ErrSignature},
		"another id":       {own, changed(HeaderID, "act-8"), string(body), ErrSignature},
		"another body":     {own, header, "1", ErrSignature},
		"only v1":          {own, changed(HeaderSignature, strings.Fields(header.Get(HeaderSignature))[0]), string(body), ErrSignature},
		"v1 named v1s":     {own, changed(HeaderSignature, "v1s"+strings.Fields(header.Get(HeaderSignature))[0][2:]), string(body), ErrSignature},
		"no tenant":        {own, missing, string(body), ErrHeaders},
		"a broken tenant":  {own, changed(headerTenant, "%zz"), string(body), ErrHeaders},
		"an old timestamp": {own, changed(HeaderTimestamp, "1"), string(body), ErrTimestamp},
	} {
		if tenant, err := VerifyFor(vectorSecret, test.url, test.header, []byte(test.body), time.Now(), 0); !errors.Is(err, test.want) || tenant != "" {
			t.Errorf("%s: %q, %v; want %v", name, tenant, err, test.want)
		}
	}
	if _, err := VerifyFor(vectorSecret, "/hooks", header, body, time.Now(), 0); err == nil {
		t.Error("a receiver without a host passed")
	}
}

func TestAudience(t *testing.T) {
	for text, want := range map[string]string{
		"http://X.Example":             "http://x.example/",
		"https://u:p@x:443/A/?b=c#d":   "https://x/A/",
		"http://x:443/a":               "http://x:443/a",
		"http://x:/a%2Fb%20c":          "http://x/a%2Fb%20c",
		"http://[::80]/":               "http://[::80]/",
		"http://[::1]:80/":             "http://[::1]/",
		"https://x:8443/z%C3%BCrich/.": "https://x:8443/z%C3%BCrich/.",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := audienceOf(u); got != want {
			t.Errorf("the audience of %s is %s; want %s", text, got, want)
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
