package bulk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/examples"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
)

// zipcodes returns the path of the example's file, or of one with the rows of some states.
func zipcodes(t *testing.T, states ...string) string {
	t.Helper()
	rows := examples.Zipcodes
	if len(states) > 0 {
		header, _, _ := bytes.Cut(rows, []byte("\n"))
		rows = append(slices.Clone(header), '\n')
		for row := range bytes.Lines(examples.Zipcodes) {
			if slices.ContainsFunc(states, func(state string) bool { return bytes.Contains(row, []byte(","+state+",")) }) {
				rows = append(rows, row...)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "zipcodes.csv")
	if err := os.WriteFile(path, rows, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The promise of the README, on the real engine and store.
func TestBulkRunEmbedded(t *testing.T) {
	code, out, stderr := clitest.Command(t, Command, "bulk", "run", zipcodes(t), "--tenant-column", "state", "--type", "echo",
		"--aggregate", "count", "--aggregate", "sum:latitude", "--aggregate", "min:latitude", "--aggregate", "max:latitude", "--json")
	var got report.Result
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, stderr)
	}
	aggregates, _ := json.Marshal(got.Aggregates)
	want := `{"count":42049,"max:latitude":"70.494693","min:latitude":"-7.209975","sum:latitude":"1618853.645685"}`
	if got.Actions != 59 || got.Jobs != 42049 || got.Succeeded != 42049 || string(aggregates) != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

// An interrupted run leaves its data in --data, and the next engine resumes it.
func TestBulkRunIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	ctx, interrupt := context.WithCancel(t.Context())
	var out, stderr bytes.Buffer
	open := func(dir string, config bulk.Config, options webhook.Options) (local.Engine, error) {
		engine, err := local.Open(dir, config, options)
		return &interrupting{engine, interrupt}, err
	}
	command := newRunCommand(open, intake.OpenRows)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetOut(&out)
	command.SetErr(&stderr)
	command.SetArgs([]string{zipcodes(t), "--tenant-column", "state", "--type", "echo", "--rps", "100", "--data", dir})
	if err := command.ExecuteContext(ctx); err == nil || exit.Code(err) != exit.CodeInterrupted || !strings.Contains(err.Error(), "sluice serve --data "+dir) {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	engine, err := local.OpenEmbedded(dir, bulk.Config{RequestsPerSecond: -1}, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close() // The test reads what the engine did before.
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var jobs int64
	actions, err := engine.Actions(t.Context(), bulk.ActionFilter{})
	for i := range actions {
		err = errors.Join(err, engine.Watch(t.Context(), actions[i].ID, local.PollInterval, func(a bulk.Action) error {
			actions[i] = a
			return nil
		}))
		jobs += actions[i].Succeeded
	}
	if err != nil || len(actions) != 59 || jobs != 42049 {
		t.Errorf("%d actions with %d jobs: %v", len(actions), jobs, err)
	}
}

// interrupting ends the command when the jobs run.
type interrupting struct {
	local.Engine
	interrupt context.CancelFunc
}

func (i *interrupting) Start(ctx context.Context) error {
	defer i.interrupt()
	return i.Engine.Start(ctx)
}

// The commands for a server, on a real one.
func TestServerCommandsEmbedded(t *testing.T) {
	engine, err := local.OpenEmbedded(t.TempDir(), bulk.Config{RequestsPerSecond: -1}, webhook.Options{Allow: everywhere})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close() // The test reads what the engine did before.
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	address, stop, err := engine.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t.Context()) //nolint:errcheck // Nothing is asked any more.
	t.Setenv(profile.ServerVariable, "http://"+address)
	file, few := zipcodes(t), zipcodes(t, "TX", "WY")
	for _, step := range []struct {
		line string
		code int
		want string
	}{
		{"submit " + file + " --tenant acme --id zips --type echo --aggregate sum:latitude --watch", 0, "sum:latitude  1618853.645685"},
		{"submit " + file + " --tenant acme --id zips --type echo --aggregate sum:latitude", 0, "zips  acme, 42,049 jobs"},
		{"submit " + file + " --tenant acme --id zips --type echo", 2, `"zips" exists with another body`},
		{"submit " + file + " --tenant acme --type echo --aggregate median:x", 2, `"median:x": not known`},
		{"submit " + few + " --tenant-column state --url http://127.0.0.1:1/ --max-attempts 1 --watch", 0, "COMPLETED, 2,670 failed"},
		{"list --tenant acme --status completed", 0, "COMPLETED  42,049  100 %"},
		{"status zips", 0, "42,049 of 42,049 finished (100 %)"},
		{"why zips/41", 0, "state     succeeded"},
		{"why zips", 1, `every job of action "zips" has ended`},
		{"why zips/42049", 1, `action "zips" has no job 42049: its jobs have the indexes from 0 to 42048`},
		{"why zips/x", 2, "want an index from 0 after the slash, such as zips/0"},
		{"why nope", 1, `there is no action "nope"`},
		{"status nope", 1, `there is no action "nope"`},
		{"pause --tenant acme --status gone", 2, "status"},
		{"replay --tenant acme --status completed", 0, "0 of 1 selected action replayed, with 0 jobs"},
		{"pause --all", 0, "0 of 0 selected actions paused, with 0 jobs"},
		{"pause zips", 1, "a finished action cannot be paused"},
		{"watch zips", 0, "status        COMPLETED"},
	} {
		code, out, stderr := clitest.Command(t, Command, append([]string{"bulk"}, strings.Fields(step.line)...)...)
		if code != step.code || !strings.Contains(out+stderr, step.want) {
			t.Errorf("sluice bulk %s: exit code %d\n%s%swant %d: %s", step.line, code, out, stderr, step.code, step.want)
		}
	}
	failuresEmbedded(t)
}

// failuresEmbedded shows the failed jobs of Wyoming, and runs them again.
func failuresEmbedded(t *testing.T) {
	t.Helper()
	code, out, stderr := clitest.Command(t, Command, "bulk", "list", "--tenant", "WY", "--json")
	var action wire.Action
	if err := json.Unmarshal([]byte(out), &action); err != nil || code != 0 {
		t.Fatalf("exit code %d: %v\n%s%s", code, err, out, stderr)
	}
	for _, step := range []struct {
		line string
		want string
	}{
		{"failures " + action.ID + " --limit 3", "target 127.0.0.1:1: dial tcp"},
		{"failures " + action.ID + " --csv", "196," + action.ID + "-196,"},
		{"replay " + action.ID, "runs 197 failed jobs of " + action.ID + " again"},
	} {
		code, out, stderr := clitest.Command(t, Command, append([]string{"bulk"}, strings.Fields(step.line)...)...)
		if code != 0 || !strings.Contains(out, step.want) {
			t.Errorf("sluice bulk %s: exit code %d\n%s%swant %s", step.line, code, out, stderr, step.want)
		}
	}
}
