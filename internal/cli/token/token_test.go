package token_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/token"
	"github.com/sluice-project/sluice/ops"
)

const adminSecret = "admin-secret-of-the-tests"

// start serves an API of tokens with accounts.
func start(t *testing.T) (*access.Accounts, string) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	accounts, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	server := ops.NewServer(ops.Options{Accounts: accounts, Logger: quiet})
	api.Register(server.API(), accounts, quiet)
	listener := httptest.NewServer(server.API())
	t.Cleanup(listener.Close)
	return accounts, listener.URL
}

func TestTokenCommands(t *testing.T) {
	accounts, url := start(t)
	run := func(args ...string) (int, string, string) {
		return clitest.Command(t, token.Command, append([]string{"token"}, append(args, "--server", url)...)...)
	}
	if code, _, stderr := run("list"); code == 0 || !strings.Contains(stderr, "SLUICE_TOKEN") {
		t.Errorf("without a token: %d %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "admin.token")
	if err := os.WriteFile(file, []byte(adminSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := run("list", "--token-file", file); code != 0 || !strings.Contains(stdout, "limits") {
		t.Errorf("with a file: %d %s%s", code, stdout, stderr)
	}
	if code, _, stderr := run("list", "--token-file", file+"s"); code != 2 || !strings.Contains(stderr, "--token-file") {
		t.Errorf("with a file that is missing: %d %s", code, stderr)
	}
	t.Setenv("SLUICE_TOKEN", adminSecret)
	code, secret, stderr := run("create", "ci", "--role", "submitter,worker", "--tenant", "acme", "--type", "email", "--expires", "1h")
	p, err := accounts.Bearer(strings.TrimSpace(secret))
	if code != 0 || err != nil || !strings.Contains(stderr, "shown once") {
		t.Fatalf("create: %d %s%s, %v", code, secret, stderr, err)
	}
	if p.Name != "ci" || !p.May(access.Work) || !p.May(access.Submit) || p.Tenant("other") || p.Type("sms") || time.Until(p.Expires) < 59*time.Minute {
		t.Errorf("the token is %+v", p)
	}
	if code, _, stderr := run("create", "b", "--role", "worker", "--tenant", "acme"); code != 2 || !strings.Contains(stderr, "tenants: it limits the role submitter") {
		t.Errorf("a limit of no role: %d %s", code, stderr)
	}
	if code, stdout, _ := run("list"); code != 0 || !strings.Contains(stdout, "submitter, worker  acme, email") {
		t.Errorf("list: %d %s", code, stdout)
	}
	if code, stdout, stderr := run("rotate", "ci", "--json"); code != 0 || !strings.Contains(stdout, `"secret":"sluice_`) || accounts.Valid(p) {
		t.Errorf("rotate: %d %s%s", code, stdout, stderr)
	}
	if code, stdout, _ := run("revoke", "ci"); code != 0 || stdout != "ci is revoked\n" || len(accounts.List()) != 0 {
		t.Errorf("revoke: %d %s", code, stdout)
	}
	if code, _, stderr := run("revoke", "ci"); code != 1 || !strings.Contains(stderr, "no token of this name") {
		t.Errorf("revoke again: %d %s", code, stderr)
	}
}
