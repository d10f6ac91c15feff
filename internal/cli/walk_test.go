package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// commandWalk has a command line of each form that Forms has, in an order in which they can run; NAME stands for what each role has for
// itself, and ROWS for a file of jobs. A line that begins with ! may fail for another reason than a right, such as
// what other roles do at the same time.
var commandWalk = []string{
	"! topic list", "topic describe NAME", "topic create other-NAME", "topic alter NAME --set retention.ms=3600000", "topic alter NAME --partitions 1",
	"! topic alter NAME --replicas 3", "topic produce NAME ROWS", "topic consume NAME --until-end", "topic consume NAME --until-end --group reads-NAME",
	"topic delayed delays", "! topic cancel delays NAME",
	"group list", "group describe NAME", "group reset NAME --topic NAME --to start --dry-run", "group reset NAME --topic NAME --to start",
	"group alter NAME --set share.auto.offset.reset=earliest", "! group delete NAME --topic NAME", "group delete NAME",
	"topic delete NAME",

	"bulk enqueue {} --tenant acme --type email", "bulk submit ROWS --tenant acme --type email", "bulk submit ROWS --tenant acme --type echo --watch",
	"bulk submit --from-topic lines --group submits-NAME --tenant acme --type email", "bulk run --from-topic lines --group runs-NAME --data FOLDER/NAME --tenant-field tenant --type echo",
	"bulk list", "bulk streams", "bulk waits", "bulk workers", "bulk failures", "bulk status NAME", "bulk why NAME",
	"bulk pause NAME", "bulk resume NAME", "bulk cancel NAME", "bulk watch done-NAME", "! bulk replay NAME",
	"bulk pause --tenant nobody", "bulk resume --tenant nobody", "bulk cancel --tenant nobody", "bulk replay --tenant nobody",
	"bulk target api.example.com:443", "bulk target api.example.com:443 --rps 5", "bulk tenant acme", "bulk tenant acme --weight 2",
	"bulk schedule list", "bulk schedule show NAME", "bulk schedule set NAME ROWS --cron @yearly --tenant acme --type email",
	"bulk schedule pause NAME", "bulk schedule resume NAME", "bulk schedule run NAME", "bulk schedule remove NAME",

	"room list", "room show NAME", "room create other-NAME --capacity 1", "room alter NAME --capacity 2", "! room lottery NAME",
	"! room codes NAME --count 1 --until 2040-01-01T00:00:00Z", "! room codes NAME --void", "room pause NAME", "room resume NAME", "room sold-out NAME",
	"! room revoke NAME --visitor ada", "room rotate-keys", "room rotate-keys --revoke-old", "room delete NAME",

	"! cluster balance", "! cluster drain 7", "! cluster drain 7 --no-wait", "! cluster leaders", "! cluster remove 7", "! cluster resume 7", "cluster show",
	"quota list", "quota set --user ada max_topics=20",
	"token list", "token create other-NAME --role viewer", "token rotate NAME", "token revoke NAME",
	"top --once --interval 100ms", "! doctor", "debug bundle --to FOLDER/NAME.tar.gz --seconds 0", "backup --to FOLDER/NAME.tar",
}

// commandWalkNeeds are the command lines that make what a role has for itself.
var commandWalkNeeds = []string{
	"topic create NAME --partitions 2", "topic produce NAME ROWS", "group reset NAME --topic NAME --to end",
	"bulk submit ROWS --tenant acme --id NAME --type email", "bulk submit ROWS --tenant acme --id done-NAME --type echo --watch",
	"bulk schedule set NAME ROWS --cron @yearly --tenant acme --type email",
	"room create NAME --capacity 1", "token create NAME --role viewer",
}

// walker runs command lines at one server, with one token.
type walker struct{ server, brokers, tokenFile, name, rows string }

// run runs a command line, and returns its exit code, all that it printed, and its form.
func (w *walker) run(t *testing.T, line string) (code int, said string, form *Form) {
	t.Helper()
	args := strings.Fields(strings.NewReplacer("NAME", w.name, "ROWS", w.rows, "FOLDER", filepath.Dir(w.rows)).Replace(line))
	command, rest, err := Root().Find(args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil {
		t.Fatalf("sluice %s: %v", line, err)
	}
	topics := command.Flags().Lookup("from-topic") // without it, a command for jobs refuses brokers
	for flag, value := range map[string]string{"server": w.server, "brokers": w.brokers, "token-file": w.tokenFile} {
		if command.Flags().Lookup(flag) != nil && (flag != "brokers" || topics == nil || topics.Changed) && value != "" {
			args = append(args, "--"+flag, value)
		}
	}
	var out, failure bytes.Buffer
	code = Run(t.Context(), args, strings.NewReader(""), &out, &failure)
	return code, out.String() + failure.String(), formOf(command)
}

// must runs command lines that must succeed, and returns what the last printed.
func (w *walker) must(t *testing.T, lines ...string) (said string) {
	t.Helper()
	for _, line := range lines {
		var code int
		if code, said, _ = w.run(t, line); code != 0 {
			t.Fatalf("sluice %s: code %d, %s", line, code, said)
		}
	}
	return said
}

// with returns a walker with another name and another token.
func (w *walker) with(t *testing.T, name, token string) *walker {
	t.Helper()
	of := *w
	of.name, of.tokenFile = name, ""
	if token != "" {
		of.tokenFile = filepath.Join(t.TempDir(), "token")
		write(t, of.tokenFile, token)
	}
	return &of
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveAccounts starts a server with accounts, until the test ends, and returns its admin.
func serveAccounts(t *testing.T) *walker {
	t.Helper()
	const token = "the-admin-token-of-the-tests"
	dir, free := t.TempDir(), ports.Addrs(t, 2)
	w := &walker{server: "http://" + free[0], brokers: free[1], rows: filepath.Join(dir, "rows.ndjson")}
	write(t, w.rows, `{"tenant":"acme"}`+"\n")
	settings := filepath.Join(dir, "sluice.yaml")
	write(t, settings, "access:\n  admin_token: "+token+"\n")
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		args := []string{"serve", "--config", settings, "--data", filepath.Join(dir, "data"), "--http", free[0], "--kafka", free[1]}
		ended <- Run(ctx, args, strings.NewReader(""), io.Discard, io.Discard)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("the server ended with code %d", code)
		}
	})
	until.True(t, "the server is ready", func() bool {
		response, err := http.Get(w.server + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return w.with(t, "admin", token)
}

// Each role may run the commands that the table of forms says: others are refused with the right that is missing. Each form of each command
// has a line here.
func TestEveryRoleRunsEveryCommand(t *testing.T) {
	t.Parallel()
	admin := serveAccounts(t)
	admin.must(t, "topic create delays --delay-enable", "topic create lines", "topic produce lines ROWS")
	for _, line := range []string{"bulk list", "room list", "top --once", "topic list"} { // more are refused because they are many
		if code, said, _ := admin.with(t, "stranger", "").run(t, line); code != 1 || !strings.Contains(said, "token") {
			t.Errorf("sluice %s without a token: code %d, %s", line, code, said)
		}
	}
	for _, role := range access.Roles() {
		name := "of-" + string(role)
		secret := admin.must(t, "token create token-"+string(role)+" --role "+string(role)+" --json")
		_, secret, _ = strings.Cut(secret, `"secret":"`)
		secret, _, _ = strings.Cut(secret, `"`)
		of, asAdmin := admin.with(t, name, secret), *admin
		asAdmin.name = name
		asAdmin.must(t, commandWalkNeeds...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of.walk(t, role)
		})
	}
}

// walk runs all lines, and compares their outcome with the table.
func (w *walker) walk(t *testing.T, role access.Role) {
	lacking := Forms()
	for _, line := range commandWalk {
		line, fails := strings.CutPrefix(line, "! ")
		var code int
		var said string
		var form *Form
		until.True(t, line+" has its turn", func() bool { // a server makes one bundle, and one backup, at a time: roles walk side by side
			code, said, form = w.run(t, line)
			return !strings.Contains(said, " at a time")
		})
		if form == nil {
			t.Fatalf("sluice %s has no form", line)
		}
		lacking = slices.DeleteFunc(lacking, func(f Form) bool { return f.String() == form.String() })
		missing := form.Needs() &^ role.Rights()
		refused := strings.Contains(said, "the right")
		if refused != (missing != 0) || missing != 0 && !namesOne(said, missing) || missing == 0 && code != 0 && !fails {
			t.Errorf("sluice %s: code %d, %s; want refused: %v, for %s", line, code, said, missing != 0, missing)
		}
	}
	for _, form := range lacking {
		t.Errorf("no command line has the form %s", &form)
	}
}

// namesOne reports whether a message names one of some rights.
func namesOne(message string, rights access.Right) bool {
	return slices.ContainsFunc(access.Rights(), func(r access.Right) bool { return rights&r != 0 && strings.Contains(message, r.String()) })
}
