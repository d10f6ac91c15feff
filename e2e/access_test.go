package e2e

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

const adminToken = "the-admin-token-of-the-tests"

// withAccounts returns a server with accounts, which is not started.
func withAccounts(t *testing.T, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.env = append(s.env, "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
	return s
}

// as makes a JSON request with a token.
func (s *server) as(token, method, path, body string) answer {
	s.t.Helper()
	a, err := s.do(method, path, "application/json", []byte(body), "Authorization", "Bearer "+token)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// token makes a token of a role and returns its secret.
func (s *server) token(name string, role access.Role) string {
	s.t.Helper()
	var made struct{ Secret string }
	if err := s.as(adminToken, "POST", "/v1/tokens", `{"name":"`+name+`","roles":["`+string(role)+`"]}`).json(&made); err != nil {
		s.t.Fatal(err)
	}
	return made.Secret
}

// operations returns the right of each operation and path that a server has, by its method and path.
func (s *server) operations() map[string]access.Right {
	s.t.Helper()
	var document struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := s.as(adminToken, "GET", "/openapi.json", "").json(&document); err != nil {
		s.t.Fatal(err)
	}
	rights, unused := map[string]access.Right{}, access.Operations()
	for path, methods := range document.Paths {
		for method, operation := range methods {
			rights[strings.ToUpper(method)+" "+path] = access.Operation(operation.OperationID)
			unused = slices.DeleteFunc(unused, func(id string) bool { return id == operation.OperationID })
		}
	}
	if len(unused) > 0 {
		s.t.Errorf("the table has rows of operations that do not exist: %s", unused)
	}
	for _, pattern := range access.Paths() {
		if strings.HasSuffix(pattern, "/trace") || strings.HasSuffix(pattern, "/profile") || pattern == "/v1/" || pattern == "/.well-known/" || pattern == "/v1/move/" {
			continue // profiles of a second; the operations below the others are in the document, or are not of this server
		}
		route := pattern
		if !strings.Contains(route, " ") {
			route = "GET " + route
		}
		rights[route] = access.Path(pattern)
	}
	return rights
}

// nobody is the role of those who are not known.
const nobody = access.Role("")

var wildcard = regexp.MustCompile(`\{[a-z]+\}`)

// walk asks for each operation and path that a server has, as each of those who have a role: the table says who is refused.
func (s *server) walk(who map[string]access.Role, ask func(who, method, path string) answer) {
	s.t.Helper()
	for route, right := range s.operations() {
		method, path, _ := strings.Cut(wildcard.ReplaceAllString(route, "x"), " ")
		for one, role := range who {
			a := ask(one, method, path)
			refused := right != access.Open && role.Rights()&right != right
			unknown := a.status == http.StatusUnauthorized || role == nobody && a.status == http.StatusTooManyRequests
			if right != access.Open && unknown != (role == nobody) || role != nobody && (a.status == http.StatusForbidden) != refused {
				s.t.Errorf("%s as %q: %d %.200s, want it refused: %v", route, role, a.status, a.body, refused)
			}
		}
	}
}

// Each role may do what the table says, by a token and by a JWT, of everything that a server serves; and no secret of a token is in an answer
// but that of its creation, in a log or in what commands print.
func TestEveryRoleAtEveryPath(t *testing.T) {
	t.Parallel()
	provider := newIdentityProvider(t)
	s := withAccounts(t, "--pprof", "--log-level", "debug")
	s.env = append(s.env, provider.settings()...)
	s.start()
	const unknown = "sluice_somebody-who-is-not-known"
	secrets := map[string]access.Role{unknown: nobody}
	for _, role := range access.Roles() {
		secrets[s.token("of-"+string(role), role)] = role
		secrets[provider.sign("somebody", "idp-"+string(role), time.Hour)] = role
	}
	planted := slices.AppendSeq([]string{adminToken}, maps.Keys(secrets))
	admin := provider.sign("admin", "idp-admin", time.Hour)
	until.True(t, "the server has the keys", func() bool { return s.as(admin, "GET", "/v1/tokens", "").status == http.StatusOK })
	s.walk(secrets, func(token, method, path string) answer {
		a := s.as(token, method, path, "{}")
		for _, secret := range planted {
			if strings.Contains(string(a.body), secret) {
				t.Errorf("%s %s shows a secret", method, path)
			}
		}
		return a
	})
	printed := exec.CommandContext(t.Context(), binary, "config")
	printed.Env = append(os.Environ(), s.env...)
	config, err := printed.CombinedOutput()
	if err != nil || !strings.Contains(string(config), "admin_token: (hidden)") {
		t.Errorf("sluice config: %v, %s", err, config)
	}
	explained := s.bundle()
	for _, file := range []string{"process/log.txt", "process/settings.yaml", "process/goroutines.txt", "metrics-later.txt", "doctor.json", "topics.json"} {
		if !strings.Contains(explained, file) {
			t.Errorf("a bundle lacks %s", file)
		}
	}
	s.terminate()
	for _, secret := range planted {
		if strings.Contains(s.log.String()+string(config)+explained, secret) {
			t.Error("the log, the settings or a bundle show a secret")
		}
	}
}

// bundle returns the files of a bundle of the server, as a tar.
func (s *server) bundle() string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "bundle.tar.gz")
	command := exec.CommandContext(s.t.Context(), binary, "debug", "bundle", "--to", path, "--seconds", "0", "--server", s.url(""), "--brokers", s.kafka)
	command.Env = append(os.Environ(), "SLUICE_TOKEN="+adminToken)
	if out, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	file, err := os.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// Tokens survive a restart, and are in a backup; a revocation ends a stream that is open.
func TestTokensOfOneServer(t *testing.T) {
	t.Parallel()
	s := withAccounts(t)
	s.start()
	viewer := s.token("viewer", access.Viewer)
	s.kill()
	s.start()
	if a := s.as(viewer, "GET", "/v1/actions", ""); a.status != http.StatusOK {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
	s.as(adminToken, "POST", "/v1/actions", `{"id":"a","tenant":"acme","type":"email"}`)
	s.revokedCutsStreams(s, "viewer", viewer)

	s.token("kept", access.Viewer)
	restored := withAccounts(t)
	restored.data = t.TempDir() + "/restored"
	backup := t.TempDir() + "/backup.tar"
	for _, args := range [][]string{{"backup", "--to", backup, "--server", s.url("")}, {"restore", "--from", backup, "--data", restored.data}} {
		command := exec.CommandContext(t.Context(), binary, args...)
		command.Env = append(os.Environ(), "SLUICE_TOKEN="+adminToken)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", args, err, out)
		}
	}
	restored.start()
	if a := restored.as(adminToken, "GET", "/v1/tokens", ""); !strings.Contains(string(a.body), `"kept"`) {
		t.Errorf("a restored server has the tokens %s", a.body)
	}
}

// revokedCutsStreams opens an event stream of the action a here, and revokes its token at another server.
func (s *server) revokedCutsStreams(at *server, name, secret string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), until.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/v1/actions/a/watch"), http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "data:") {
		s.t.Fatalf("%s: a stream began with %q", response.Status, lines.Text())
	}
	if a := at.as(adminToken, "DELETE", "/v1/tokens/"+name, ""); a.status != http.StatusNoContent {
		s.t.Fatalf("revoke: %d %s", a.status, a.body)
	}
	for lines.Scan() { // the server ends the stream
	}
	if ctx.Err() != nil {
		s.t.Error("a stream goes on after its token was revoked")
	}
	if a := s.as(secret, "GET", "/v1/actions", ""); a.status != http.StatusUnauthorized {
		s.t.Errorf("with a revoked token: %d %s", a.status, a.body)
	}
}

// Three nodes of a cluster without Redis share the tokens, in their metadata.
func TestTokensOfThreeNodes(t *testing.T) {
	t.Parallel()
	c := nodesWithAccounts(t, 3)
	secret := c.all[0].token("viewer", access.Viewer)
	status := func(want int) {
		t.Helper()
		for i, node := range c.all {
			until.True(t, fmt.Sprintf("node %d answers %d", i+1, want), func() bool { return node.as(secret, "GET", "/v1/cluster", "").status == want })
		}
	}
	status(http.StatusOK)
	if a := c.all[2].as(adminToken, "DELETE", "/v1/tokens/viewer", ""); a.status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", a.status, a.body)
	}
	status(http.StatusUnauthorized)
}
