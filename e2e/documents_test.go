//go:build kcat && proxies

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// document is one whose commands are run as a reader runs them, from the first to the last, in one shell.
type document struct {
	path string
	// without has the beginnings of blocks that are not run: what needs another machine, or is run by another
	// test.
	without []string
	// prints reports whether the blocks between the commands are what these print.
	prints bool
}

var documents = []document{
	{path: "README.md", without: []string{"sudo dpkg", "go run ./cmd/sluice demo"}},
	{path: "docs/start.md", prints: true},
	{path: "docs/bulk/api.md"},
	{path: "docs/bulk/auto.md"},
	{path: "docs/bulk/events.md"},
	{path: "docs/bulk/fairness.md"},
	{path: "docs/bulk/limits.md"},
	{path: "docs/bulk/redis.md"},
	{path: "docs/bulk/schedules.md"},
	{path: "docs/bulk/streams.md"},
	{path: "docs/bulk/webhooks.md", without: []string{"SLUICE_WEBHOOK_SECRETS=", "sluice serve"}},
	{path: "docs/guides/from-asynq.md"},
	{path: "docs/guides/from-sqs-and-rabbitmq.md", prints: true},
	{path: "docs/guides/kafka-connect.md"},
	{path: "docs/guides/kubernetes.md", without: []string{"helm ", "kubectl "}},
	{path: "docs/guides/million-webhooks.md"},
	{path: "docs/guides/tls.md"},
	{path: "docs/room/api.md"},
	{path: "docs/room/auto.md", without: []string{"busy="}},
	{path: "docs/room/gate.md", prints: true},
	{path: "docs/room/operating.md", without: []string{"LOTTERY="}},
	{path: "docs/topic/delays.md"},
	{path: "docs/topic/share-groups.md"},
	{path: "docs/topic/views.md"},
	{path: "docs/tracing.md", without: []string{"docker run"}},
}

// others are the documents whose commands are not run here: by what they are, or why they are not.
var others = map[string]string{
	"docs/bulk/from-topic.md":  "they call a target on the Internet, and go on for ever: TestFromTopicSurvivesKills and TestSubmitFromTopicSurvivesKills run them",
	"docs/bulk/migrate.md":     "they begin with a server that was stopped: TestBulkMigrate does it",
	"docs/bulk/outbox.md":      "TestCommandsOfTheDocument in outbox runs them, with PostgreSQL",
	"docs/bulk/workers.md":     "a worker that goes on for ever, with ImageMagick",
	"docs/demo.md":             "TestDemoForReal in internal/cli/demo runs it",
	"docs/install.md":          "deploy installs packages and runs the image's files; the rest needs systemd, Docker or a cluster of Kubernetes",
	"docs/room/page.md":        "the previews serve until they are stopped: tests in room/gate read their pages",
	"docs/room/proxies.md":     "e2e and deploy/edge run the gate with each of the proxies",
	"docs/topic/cluster.md":    "nodes on three machines; a test of ten minutes with network namespaces",
	"docs/topic/guarantees.md": "consumers that go on for ever: tests in examples kill them",
	"docs/topic/migrate.md":    "a cluster and a server that is migrated into it: TestTopicsMoveWhileTheyAreUsed does it",
}

// A document with commands is in one of the lists.
func TestDocumentsWithCommandsAreKnown(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, d := range documents {
		known[d.path] = true
	}
	for path := range others {
		if known[path] {
			t.Errorf("%s is run, and in the list of those that are not", path)
		}
		known[path] = true
	}
	for _, folder := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// Those in Korean have the commands of those in English, and decisions are not followed.
			name := strings.TrimPrefix(filepath.ToSlash(path), "../")
			if bytes.Contains(text, []byte("\n```sh\n")) && !known[name] && !strings.HasSuffix(name, ".ko.md") && !strings.HasPrefix(name, "docs/decisions/") {
				t.Errorf("nothing runs the commands of %s: add it to documents, or to others with a reason", name)
			}
			delete(known, name)
		}
	}
	for name := range known {
		t.Errorf("there is no %s", name)
	}
}

// documentPorts are the ports in commands of documents. Each stands for a free one.
var documentPorts = []string{"3000", "3001", "6222", "6223", "6224", "6379", "8000", "8080", "8081", "8082", "8083", "8084", "8443", "9092", "9093", "9094", "9095"}

// waits are for how long commands of documents wait for news, and here: as long as a busy machine may need.
var waits = []string{"wait_ms=20000", "wait_ms=3000", `"wait_ms":20000`, `"wait_ms":3000`, `"wait_ms": 20000`, `"wait_ms": 3000`, "--max-time 20", "--max-time 3"}

// shell is what the commands of a document run in. A server is left running by those who read on in another
// terminal, so it is started in the background, in place of one at its address.
const shell = `set -euo pipefail
trap 'for kept in $(jobs -p); do kill -9 $kept || true; done' EXIT
declare -A running
curl() {
  local answer code=0
  answer=$(mktemp -p .)
  command curl --fail-with-body "$@" >"$answer" || code=$?
  cat "$answer"
  # 28: it was told for how long to listen. Some commands show that something is not there any more.
  [[ $code = 0 || $code = 28 ]] || grep -Eq '"status":(404|409|410)' "$answer"
}
# go runs a program of the examples: in place of a shell in the background, so that the end of one is that of both.
go() {
  local program=$PWD/${2##*/}
  command go build -C "$repository" -ldflags=-s -o "$program" "$2"
  shift 2
  [[ $BASHPID = $$ ]] || exec "$program" "$@"
  "$program" "$@"
}
keep() {
  local at=$1 ready=$2; shift 2
  if [[ -n ${running[$at]-} ]]; then kill ${running[$at]}; wait ${running[$at]} || true; fi
  "$@" &
  running[$at]=$!
  until $ready >/dev/null 2>&1; do kill -0 ${running[$at]}; sleep 0.1; done
}
export SLUICE_SERVER=http://127.0.0.1:8080 SLUICE_BROKERS=127.0.0.1:9092
S=$SLUICE_SERVER
J='Content-Type: application/json'
`

// kept are the commands that a reader leaves running: with how the address is known, the defaults of their
// addresses, and how they are asked whether they are ready.
var kept = []struct{ command, flag, defaults, address, ready string }{
	{"sluice serve", "--http ", "--http 127.0.0.1:8080 --kafka 127.0.0.1:9092", "127.0.0.1:8080", "curl -s http://%s/readyz"},
	{"sluice gate", "--http ", "--http 127.0.0.1:8080 --listen 127.0.0.1:8000", "127.0.0.1:8080", "curl -s http://%s/readyz"},
	{"redis-server", "--port ", "--port 6379", "6379", "redis-cli -p %s ping"},
	{"caddy run", "--address ", "", "8443", "command curl -sk https://localhost:%s/healthz"},
	{"python3 -m http.server", " ", "", "3000", "command curl -s http://127.0.0.1:%s"},
}

func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()
	for _, d := range documents {
		t.Run(d.path, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("..", d.path))
			if err != nil {
				t.Fatal(err)
			}
			free := ports.Addrs(t, len(documentPorts))
			pairs := slices.Clone(waits)
			for i, port := range documentPorts {
				_, mapped, _ := net.SplitHostPort(free[i])
				pairs = append(pairs, port, mapped)
			}
			replace := strings.NewReplacer(pairs...)
			script, prints := d.script(string(text))
			printed := runShell(t, replace.Replace(script))
			if !d.prints {
				return
			}
			for _, line := range prints {
				if want := strings.TrimSpace(replace.Replace(line)); !strings.Contains(timeless(printed), timeless(want)) {
					t.Errorf("no command printed\n%s\nall that was printed:\n%s", want, printed)
				}
			}
		})
	}
}

var (
	fenced = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
)

// timeless replaces the times of a text, which are others at each run.
func timeless(text string) string { return moment.ReplaceAllString(text, "TIME") }

// script returns the commands of a document, and the lines that it says they print.
func (d document) script(text string) (script string, prints []string) {
	var b strings.Builder
	for _, found := range fenced.FindAllStringSubmatchIndex(text, -1) {
		language, block := text[found[2]:found[3]], text[found[4]:found[5]]
		switch {
		case slices.ContainsFunc(d.without, func(beginning string) bool { return strings.HasPrefix(block, beginning) }):
		case language == "sh":
			fmt.Fprintf(&b, "echo; echo '# %s:%d'\n", d.path, 1+strings.Count(text[:found[0]], "\n"))
			for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", "")) {
				b.WriteString(keep(strings.TrimSuffix(line, "\n")) + "\n")
			}
		case language == "" || language == "json":
			prints = append(prints, strings.Split(strings.TrimSpace(block), "\n")...)
		}
	}
	script = b.String()
	if !strings.Contains(script, " sluice serve") {
		script = keep("sluice serve") + "\n" + script
	}
	return shell + script, prints
}

// keep returns a line of a shell, which leaves a command running that does not end by itself.
func keep(line string) string {
	command, comment, _ := strings.Cut(line, "#")
	command = strings.TrimSuffix(strings.TrimSpace(command), "&")
	if strings.Contains(comment, "until Ctrl-C") {
		return command + " &"
	}
	if strings.Contains(comment, "and two more") {
		return threeNodes(command)
	}
	for _, k := range kept {
		rest, is := strings.CutPrefix(strings.TrimPrefix(command, "bin/"), k.command)
		if !is {
			continue
		}
		address := k.address
		if _, given, ok := strings.Cut(rest, k.flag); ok {
			address, _, _ = strings.Cut(given, " ")
		}
		ready := fmt.Sprintf(k.ready, address)
		if strings.Contains(rest, "--tls-cert-file") {
			ready = strings.Replace(ready, "http://", "-k https://", 1)
		}
		return fmt.Sprintf("keep %s '%s' %s %s%s", address, ready, k.command, k.defaults, rest)
	}
	return line
}

// threeNodes returns lines that start three nodes, as the command does the first one, and wait until they are ready.
func threeNodes(first string) string {
	var starts, waits strings.Builder
	for i := range 3 {
		node := strings.NewReplacer("--node 1", fmt.Sprint("--node ", i+1), "node-1", fmt.Sprint("node-", i+1), "--cluster-listen 127.0.0.1:6222", fmt.Sprint("--cluster-listen 127.0.0.1:", 6222+i))
		fmt.Fprintf(&starts, "%s --http 127.0.0.1:%d --kafka 127.0.0.1:%d &\n", node.Replace(first), 8082+i, 9093+i)
		fmt.Fprintf(&waits, "until command curl -sf http://127.0.0.1:%d/readyz; do kill -0 $!; sleep 0.1; done\n", 8082+i)
	}
	return starts.String() + waits.String()
}

// runShell runs a script where a reader is: in a clone, with the program built. It returns what the
// script printed.
func runShell(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"examples": filepath.Join(repository, "examples"), "bin": filepath.Dir(binary)} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "orders.csv"), "order,amount\n17,0.10\n18,0.20\n")
	writeFile(t, filepath.Join(dir, "orders.ndjson"), `{"order":17}`+"\n")
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script)
	bash.Dir, bash.Env = dir, append(os.Environ(), "repository="+repository, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	var printed bytes.Buffer
	bash.Stdout, bash.Stderr = &printed, &printed
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	if err := bash.Run(); err != nil {
		t.Fatalf("%v, after\n%s", err, tail(printed.Bytes(), 4000))
	}
	return printed.String()
}
