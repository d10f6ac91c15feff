//go:build redis

package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// A backup lacks the parts that are in Redis, and the command says so. A server that has nothing else
// refuses one, and says what to use.
func TestBackupBesideRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	s := startServer(t, "--state", redis.URL())
	file := filepath.Join(t.TempDir(), "backup")
	said := sluice(t, "backup", "--to", file, "--server", s.url(""))
	if !strings.Contains(said, "bulk is not in it: it is in redis://") || !strings.Contains(said, "room is not in it") {
		t.Errorf("the command says %q", said)
	}
	none := startServer(t, "--state", redis.URL(), "--kafka", "off")
	if p := none.refuses("POST", "/v1/backup", "", "", http.StatusConflict); !strings.Contains(p.Detail, "BGSAVE") {
		t.Errorf("the refusal says %q", p.Detail)
	}
}
