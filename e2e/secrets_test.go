package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// marked returns the value of a secret setting; no two have a part in common but the beginning.
func marked(key string) string {
	return "marked" + hex.EncodeToString([]byte(key)) + "0123456789"
}

// markedSettings returns the text of a file with more settings and a value for each secret one, and the texts in which the secrets could be seen.
func markedSettings(t *testing.T, more map[string]string) (file string, secrets []string) {
	t.Helper()
	signs := func(key string) string { return "whsec_" + base64.StdEncoding.EncodeToString([]byte(marked(key))) }
	values := map[string]string{
		"access.admin_token": adminToken, "cluster.secret": marked("cluster.secret"), "gate.challenge_secret": marked("gate.challenge_secret"),
		"tracing.headers": "authorization=Bearer%20" + marked("tracing.headers"), "room.token_keys": "[HS256:" + marked("room.token_keys") + "]",
		"webhook.secrets": "[" + signs("webhook.secrets") + "]", "webhook.target_secrets": "{other: [" + signs("webhook.target_secrets") + "]}",
	}
	for _, setting := range config.Settings() {
		if setting.Secret && values[setting.Key] == "" {
			t.Errorf("no secret is planted for %s", setting.Key)
		}
	}
	parts := map[string]string{}
	maps.Copy(more, values)
	for name, value := range more {
		part, key, _ := strings.Cut(name, ".")
		parts[part] += "  " + key + ": " + value + "\n"
		secrets = append(secrets, marked(name), strings.TrimPrefix(signs(name), "whsec_"))
	}
	for part, lines := range parts {
		file += part + ":\n" + lines
	}
	return file, append(secrets, adminToken)
}

// outside is all that has left a server, by what it is.
type outside struct {
	mu   sync.Mutex
	text map[string][]byte
}

func (o *outside) add(what string, text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text[what] = append(append(o.text[what], text...), '\n')
}

// has reports whether something left.
func (o *outside) has(what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.text[what]) > 0
}

// listens is a server of others, with all that it is sent.
func (o *outside) listens(t *testing.T, what string, headers bool) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server ended
		}
		if headers {
			body = fmt.Append(body, r.Header)
		}
		o.add(what, body)
	}))
	t.Cleanup(server.Close)
	return server
}

// A server has a secret in each setting that can have one, and makes others: tokens, tickets, passes, codes and leases. They are shown in all the
// wrong places too. No secret is in an answer but that to whom it belongs, on a page of the dashboard, in the metrics, a log, the audit, a topic, a
// trace, a webhook, a bundle, or in what "sluice config" prints.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	left := &outside{text: map[string][]byte{}}
	collector, target := left.listens(t, "traces", false), left.listens(t, "webhooks", true)
	gate := certtest.New(t).Issue("gate")
	front := ports.Addrs(t, 1)[0]
	content, secrets := markedSettings(t, map[string]string{"tracing.endpoint": collector.URL, "gate.challenge_provider": "turnstile", "gate.challenge_site_key": "public"})
	path, write := settingsFile(t)
	write(content)
	s := newServer(t, "--config", path, "--pprof", "--log-level", "debug", "--gate-http", front, "--gate-room", "shop", "--gate-upstream", shop(t).URL,
		"--gate-tls-cert", gate.Cert, "--gate-tls-key", gate.Key)
	s.start()
	key, err := os.ReadFile(gate.Key)
	if err != nil {
		t.Fatal(err)
	}
	secrets = append(secrets, strings.Split(string(key), "\n")[1])
	secrets = append(secrets, s.makeSecrets(target.URL)...)
	for _, secret := range secrets {
		s.misplace(secret)
	}
	left.gather(s, path)
	until.True(t, "spans and webhooks leave", func() bool { return left.has("traces") && left.has("webhooks") })
	s.terminate()
	left.add("log", s.log.Bytes())
	trail, err := os.ReadFile(filepath.Join(s.data, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	left.add("audit", trail)
	left.search(t, secrets)
}

// makeSecrets makes secrets of all kinds that a server gives to its callers.
func (s *server) makeSecrets(target string) (secrets []string) {
	s.t.Helper()
	do := func(method, path, body string, status int, into any) {
		s.t.Helper()
		a := s.as(adminToken, method, path, body)
		if a.status != status {
			s.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
		}
		if into != nil {
			if err := a.json(into); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	var token, rotated struct{ Secret string }
	do("POST", "/v1/tokens", `{"name":"shop","roles":["`+string(access.Viewer)+`"]}`, http.StatusCreated, &token)
	do("POST", "/v1/tokens/shop/rotate", "", http.StatusOK, &rotated)
	do("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":1,"lanes":"vip=1,public=1","codes":true}`, http.StatusCreated, nil)
	var codes struct{ Codes []string }
	do("POST", "/v1/rooms/shop/codes", `{"count":1,"lane":"vip","until":"`+time.Now().UTC().Add(time.Hour).Format(time.RFC3339)+`"}`, http.StatusCreated, &codes)
	visitorToken := tokenOf(s.t, "alice", marked("room.token_keys"))
	a, err := s.do("POST", "/v1/rooms/shop/visitors", "application/json", []byte("{}"), "Sluice-Token", visitorToken)
	var inside visitor
	if err != nil || a.json(&inside) != nil {
		s.t.Fatalf("%d %s %v", a.status, a.body, err)
	}
	until.True(s.t, "the visitor has a pass", func() bool {
		place := s.ask("shop", inside.Ticket)
		if place.Pass != nil {
			secrets = append(secrets, *place.Pass)
		}
		return place.Pass != nil
	})
	do("PUT", "/v1/targets/other", `{"url_prefix":"`+target+`"}`, http.StatusOK, nil)
	stored := secretOf('s')
	do("PUT", "/v1/targets/shop", `{"url_prefix":"`+target+`","secrets":["`+stored+`"]}`, http.StatusOK, nil)
	for id, to := range map[string]string{"shop": `"type":"shop"`, "called": `"target":{"name":"other","url":"` + target + `"}`} {
		do("POST", "/v1/actions", `{"id":"`+id+`","tenant":"shop",`+to+`}`, http.StatusCreated, nil)
		if a, err := s.do("POST", "/v1/actions/"+id+"/jobs", ndjson, []byte(`{"n":1}`), "Upload-Offset", "0", "Authorization", "Bearer "+adminToken); err != nil || a.status != http.StatusOK {
			s.t.Fatalf("upload: %d %s %v", a.status, a.body, err)
		}
		do("POST", "/v1/actions/"+id+"/seal", `{"total":1}`, http.StatusOK, nil)
	}
	until.True(s.t, "a job is leased", func() bool {
		var leased struct{ Jobs []lease }
		do("POST", "/v1/leases", `{"types":["shop"],"max":1,"wait_ms":1000}`, http.StatusOK, &leased)
		for _, job := range leased.Jobs {
			secrets = append(secrets, job.Lease)
		}
		return len(leased.Jobs) > 0
	})
	return append(secrets, stored, token.Secret, rotated.Secret, codes.Codes[0], visitorToken, inside.Ticket)
}

// misplace shows a secret where it does not belong.
func (s *server) misplace(secret string) {
	s.t.Helper()
	for _, wrong := range []struct{ method, path, header, value string }{
		{"GET", "/v1/actions?token=" + secret, "Authorization", "Bearer " + secret},
		{"DELETE", "/v1/tokens/shop?secret=" + secret, "Authorization", "Basic " + secret},
		{"GET", "/healthz", "Cookie", "sluice-token=" + secret},
		{"GET", "/ui/?token=" + secret, "Cookie", "sluice-token=" + secret},
		{"POST", "/v1/rooms/shop/visitors", "Sluice-Token", secret},
		{"GET", "/v1/rooms/shop/visitors/me", "Authorization", "Bearer " + secret},
	} {
		if _, err := s.do(wrong.method, wrong.path, "application/json", []byte("{"), wrong.header, wrong.value); err != nil {
			s.t.Fatal(err)
		}
	}
	client := s.connect(kgo.SASL(plain.Auth{User: "shop", Pass: secret}.AsMechanism()), kgo.RequestRetries(0))
	_ = client.Ping(s.t.Context()) // it is refused
	client.Close()
}

var linkOfPage = regexp.MustCompile(`(?:href|src)="(/ui/[^"#]*)`)

// gather adds all that a server tells an admin, and whoever may read topics.
func (o *outside) gather(s *server, settings string) {
	s.t.Helper()
	for route := range s.operations() {
		method, path, _ := strings.Cut(route, " ")
		if method == http.MethodGet && !strings.HasSuffix(path, "/watch") { // streams do not end
			o.add(route, s.as(adminToken, method, wildcard.ReplaceAllString(path, "shop"), "").body)
		}
	}
	for pages, seen := []string{"/ui/"}, map[string]bool{"/ui/": true}; len(pages) > 0; pages = pages[1:] {
		a, err := s.do("GET", pages[0], "", nil, "Cookie", "sluice-token="+adminToken)
		if err != nil {
			s.t.Fatal(err)
		}
		o.add("page "+pages[0], a.body)
		for _, link := range linkOfPage.FindAllSubmatch(a.body, -1) {
			if to := strings.ReplaceAll(string(link[1]), "&amp;", "&"); !seen[to] && len(seen) < 100 {
				seen[to], pages = true, append(pages, to)
			}
		}
	}
	run := func(what string, args ...string) {
		command := exec.CommandContext(s.t.Context(), binary, args...)
		command.Env = append(os.Environ(), "SLUICE_TOKEN="+adminToken)
		out, err := command.CombinedOutput()
		if err != nil || len(out) == 0 {
			s.t.Fatalf("sluice %s: %v, %s", args, err, out)
		}
		o.add(what, out)
	}
	run("config", "config", "--config", settings)
	for _, topic := range []string{"sluice.audit", "sluice.bulk.events", "sluice.room.events"} {
		run(topic, "topic", "consume", topic, "--max", "1", "--json", "--brokers", s.kafka)
		run(topic, "topic", "consume", topic, "--until-end", "--json", "--brokers", s.kafka)
	}
	o.add("bundle", []byte(s.bundle()))
}

// search looks for secrets in all that has left.
func (o *outside) search(t *testing.T, secrets []string) {
	t.Helper()
	for what, text := range o.text {
		unescaped := html.UnescapeString(string(text))
		for _, secret := range secrets {
			if at := strings.Index(unescaped, secret); at >= 0 {
				t.Errorf("%s shows %q: …%s…", what, secret, unescaped[max(0, at-200):at+len(secret)])
			}
		}
	}
}
