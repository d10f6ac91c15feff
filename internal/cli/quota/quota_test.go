package quota_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/quota"
	"github.com/sluice-project/sluice/ops"
)

func TestQuotaCommands(t *testing.T) {
	const secret = "admin-secret-of-the-tests"
	quiet := slog.New(slog.DiscardHandler)
	accounts, err := access.New(&storetest.Memory{}, secret, access.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	server := ops.NewServer(ops.Options{Accounts: accounts, Logger: quiet})
	api.Register(server.API(), accounts, quiet)
	listener := httptest.NewServer(server.API())
	t.Cleanup(listener.Close)
	t.Setenv("SLUICE_TOKEN", secret)
	for _, step := range []struct {
		args string
		code int
		says string // in the output, or in the error
	}{
		{"set --user ada max_topics=3 max_rooms=2", 0, "user ada: max_rooms=2 max_topics=3\n"},
		{"set --user ada max_topics=none", 0, "user ada: max_rooms=2\n"},
		{"set --user <default> --client-id app producer_byte_rate=1000", 0, "user <default>, client id app: producer_byte_rate=1000\n"},
		{"set --tenant acme requests_per_second=50 --json", 0, `{"tenant":"acme","values":{"requests_per_second":50}}`},
		{"list", 0, "tenant acme                    requests_per_second=50"},
		{"list --json", 0, `{"user":"ada","values":{"max_rooms":2}}`},
		{"set --tenant acme requests_per_second=none", 0, "tenant acme: no quota\n"},
		{"set --tenant acme max_rooms=1", 2, "a user without a client-id"},
		{"set --user ada --tenant acme max_rooms=1", 2, "a tenant alone"},
		{"set max_rooms=1", 2, "want a user"},
		{"set --user ada", 2, "at least 1 arg"},
		{"set --user ada max_rooms", 2, "max_topics=20"},
		{"set --user ada max_rooms=0", 2, "max_topics=none"},
		{"set --user ada max_rooms=-1", 2, "max_topics=20"},
	} {
		code, stdout, stderr := clitest.Command(t, quota.Command, append([]string{"quota"}, append(strings.Fields(step.args), "--server", listener.URL)...)...)
		if code != step.code || !strings.Contains(stdout+stderr, step.says) {
			t.Errorf("%s: exit code %d, want %d with %q: %s%s", step.args, code, step.code, step.says, stdout, stderr)
		}
	}
}
