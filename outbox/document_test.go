package outbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// documentShell is what the commands of the document run in, in place of a clone: go builds outside of it. In the end the
// relay has sent all rows, and is killed.
const documentShell = `set -euo pipefail
trap 'kill -9 $(jobs -p)' EXIT
go() { command go "$1" -C "$outbox" -o "$PWD/sluice-outbox" "$2"; }
%suntil [[ $(psql "$DATABASE_URL" -Atc 'SELECT count(*) FROM sluice_outbox') = 0 ]]; do sleep 0.1; done
`

var fenced = regexp.MustCompile("(?ms)^```(sh|sql)\n(.*?)^```$")

// The commands and the SQL of the document are run as a reader runs them, from the first to the last: the table is created, and the
// transaction becomes a job.
func TestCommandsOfTheDocument(t *testing.T) {
	s := startStack(t, 0)
	s.exec(t, `DROP TABLE sluice_outbox; CREATE TABLE orders (id bigint, state text); INSERT INTO orders VALUES (17, 'new')`)
	text, err := os.ReadFile("../docs/bulk/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		if block[1] == "sql" {
			fmt.Fprintf(&script, "psql \"$DATABASE_URL\" -v ON_ERROR_STOP=1 <<'SQL'\n%sSQL\n", block[2])
			continue
		}
		for line := range strings.Lines(block[2]) {
			if strings.HasPrefix(line, "./sluice-outbox --database") {
				line = strings.TrimSpace(line) + " &\n" // it is left running
			}
			script.WriteString(line)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "outbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", fmt.Sprintf(documentShell, strings.ReplaceAll(script.String(), "127.0.0.1:8080", s.addr)))
	bash.Dir, bash.Env = dir, append(os.Environ(), "outbox="+here, "DATABASE_URL="+s.url)
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	printed, err := bash.CombinedOutput()
	if err != nil || !strings.Contains(string(printed), "refused") {
		t.Fatalf("%v, after\n%s", err, printed)
	}
	s.awaitJob(t, "acme")
}
