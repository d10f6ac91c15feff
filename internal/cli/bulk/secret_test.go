package bulk

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/internal/cli/clitest"
)

func secretOf(letter byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{letter}, 32))
}

// verifying returns the URL of a target that refuses requests that are not signed with a secret.
func verifying(t *testing.T, secret string) string {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verify(secret, r.Header, body, time.Now(), 0)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	}))
	t.Cleanup(target.Close)
	return target.URL
}

func TestBulkRunSigns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("shop,n\na,1\nb,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	current, previous, environment := secretOf('c'), secretOf('p'), secretOf('e')
	for _, test := range []struct {
		name, verifies, variable string
		args                     []string
		code                     int
		want                     string
	}{
		{"a flag", current, "", []string{"--secret", current}, 0, `"succeeded":2`},
		{"the one it replaces", previous, "", []string{"--secret", current, "--secret", previous}, 0, `"succeeded":2`},
		{"the environment", environment, current + "," + environment, nil, 0, `"succeeded":2`},
		{"the flag goes first", environment, environment, []string{"--secret", current}, 0, `"failed":2`},
		{"none", current, "", nil, 0, `"failed":2`},
		{"not a secret", current, "", []string{"--secret", current, "--secret", "cGxhaW4"}, 2, "--secret: number 2: not a secret"},
		{"not one in the environment", current, "cGxhaW4", nil, 2, secretsVariable + ": number 1: not a secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(secretsVariable, test.variable)
			args := []string{"bulk", "run", file, "--tenant-column", "shop", "--json", "--url", verifying(t, test.verifies)}
			code, out, stderr := clitest.Command(t, Command, append(args, test.args...)...)
			if code != test.code || !strings.Contains(out+stderr, test.want) {
				t.Errorf("exit code %d\n%s%swant %d: %s", code, out, stderr, test.code, test.want)
			}
			if strings.Contains(out+stderr, "cGxhaW4") {
				t.Errorf("the text is shown: %s%s", out, stderr)
			}
		})
	}
	code, _, stderr := clitest.Command(t, Command, "bulk", "run", file, "--tenant-column", "shop", "--type", "echo", "--secret", current)
	if code != 2 || !strings.Contains(stderr, "nothing to sign without --url") {
		t.Errorf("a secret without a URL: exit code %d, %s", code, stderr)
	}
}
