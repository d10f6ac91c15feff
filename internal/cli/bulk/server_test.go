package bulk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
)

// on runs "bulk ARGS" on a server.
func (f *fakeServer) on(ctx context.Context, stdin string, args ...string) *clitest.Ran {
	return runOn(ctx, f.connect, stdin, args)
}

// runOn runs "bulk ARGS" on the server that connect connects to.
func runOn(ctx context.Context, connect connector, stdin string, args []string) *clitest.Ran {
	command := &cobra.Command{Use: "bulk"}
	command.AddCommand(newServerCommands(connect)...)
	return clitest.Execute(ctx, command, stdin, args...)
}

func ordersNDJSON(count int) string {
	var rows strings.Builder
	for i := range count {
		fmt.Fprintf(&rows, "{\"order\":%d,\"shop\":\"shop %d\"}\n", i, i%3)
	}
	return rows.String()
}

func TestSubmitAndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{Fake: localtest.New(100)}
		f.FailEvery = 50
		f.Result = func(a *bulk.Action, _ [][]byte) map[string]any { return map[string]any{"count": a.Succeeded} }
		r := f.on(t.Context(), ordersNDJSON(300), "submit", "-", "--tenant", "acme", "--id", "orders", "--url", "http://target/x",
			"--aggregate", "count", "--watch")
		if r.Code() != 0 {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
		clitest.Golden(t, "submit", r.Stdout+"# standard error\n"+r.Stderr)
	})
}

func TestSubmitWithEvents(t *testing.T) {
	f := &fakeServer{Fake: localtest.New(100)}
	r := f.on(t.Context(), ordersNDJSON(2), "submit", "-", "--tenant", "acme", "--type", "echo", "--events", "actions,jobs")
	if r.Code() != 0 || len(f.All) != 1 || !f.All[0].JobEvents() {
		t.Errorf("exit code %d: %v; %d actions", r.Code(), r.Failure, len(f.All))
	}
}

func TestSubmitByColumn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{Fake: localtest.New(100)}
		r := f.on(t.Context(), ordersNDJSON(300), "submit", "-", "--tenant-column", "shop", "--type", "echo", "--watch")
		want := "a-shop 0  shop 0: COMPLETED, 100 succeeded\na-shop 1  shop 1: COMPLETED, 100 succeeded\na-shop 2  shop 2: COMPLETED, 100 succeeded\n"
		if r.Code() != 0 || r.Stdout != want || !strings.Contains(r.Stderr, "300/300 (100 %)") {
			t.Errorf("%s%s%v", r.Stdout, r.Stderr, r.Failure)
		}
	})
}

func TestSubmitGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{Fake: localtest.New(100), breakAfter: 3}
		path := filepath.Join(t.TempDir(), "orders.ndjson")
		if err := os.WriteFile(path, []byte(ordersNDJSON(4500)), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"submit", path, "--tenant", "acme", "--id", "orders", "--type", "echo"}
		r := f.on(t.Context(), "", args...)
		if r.Code() != 1 || !strings.Contains(r.Failure.Error(), "the connection broke; the same command goes on from what the server has") {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
		if f.All[0].Status != bulk.Created || f.All[0].Received != 2000 {
			t.Fatalf("the action is %s with %d jobs", f.All[0].Status, f.All[0].Received)
		}
		f.breakAfter = 0
		f.appends.Store(0)
		r = f.on(t.Context(), "", args...)
		if r.Code() != 0 || r.Stdout != "orders  acme, 4,500 jobs\n" {
			t.Errorf("exit code %d: %v\n%s", r.Code(), r.Failure, r.Stdout)
		}
		if appends := f.appends.Load(); appends != 3 {
			t.Errorf("%d uploads of 1,000, want 3: what the server has is not sent again", appends)
		}
		for i, payload := range f.Payloads["orders"] {
			if want := fmt.Sprintf(`{"order":%d,"shop":"shop %d"}`, i, i%3); string(payload) != want {
				t.Fatalf("job %d is %s, want %s", i, payload, want)
			}
		}
	})
}

func TestSubmitRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no tenant":        {[]string{"-", "--type", "echo"}, "either --tenant TENANT or --tenant-column COLUMN"},
		"two tenants":      {[]string{"-", "--type", "echo", "--tenant", "a", "--tenant-column", "b"}, "either --tenant TENANT or"},
		"id of many":       {[]string{"-", "--type", "echo", "--tenant-column", "b", "--id", "x"}, "--id names one action"},
		"run at":           {[]string{"-", "--type", "echo", "--tenant", "a", "--run-at", "tomorrow"}, `--run-at: "tomorrow": want a time such as`},
		"server":           {[]string{"-", "--type", "echo", "--tenant", "a", "--server", "localhost:8080"}, `--server: "localhost:8080": want a URL`},
		"no type":          {[]string{"-", "--tenant", "a"}, "say what runs a job"},
		"events":           {[]string{"-", "--type", "echo", "--tenant", "a", "--events", "leases"}, `--events: want a list of "jobs" and "actions"`},
		"last line broken": {[]string{"-", "--type", "echo", "--tenant", "a"}, "standard input: line 1002: want one JSON value"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeServer{Fake: localtest.New(100)}
			r := f.on(t.Context(), ordersNDJSON(1001)+"{", append([]string{"submit"}, test.args...)...)
			if r.Code() != exit.CodeUsage || !strings.Contains(r.Failure.Error(), test.want) {
				t.Errorf("exit code %d: %v\nwant 2: %s", r.Code(), r.Failure, test.want)
			}
			for _, a := range f.All {
				if a.Status != bulk.Canceled {
					t.Errorf("action %s was left %s", a.ID, a.Status)
				}
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv(profile.ServerVariable, "http://127.0.0.1:1")
	r := runOn(t.Context(), connectServer, ordersNDJSON(1), []string{"submit", "-", "--type", "echo", "--tenant", "a"})
	want := `no server at http://127.0.0.1:1 (connection refused): start one with "sluice serve", or name another with --server`
	if r.Code() != 1 || r.Failure.Error() != want {
		t.Errorf("exit code %d: %v\nwant 1: %s", r.Code(), r.Failure, want)
	}
}

// threeActions returns a server with a finished action, a running one and one being uploaded.
func threeActions(t *testing.T) *fakeServer {
	t.Helper()
	f := &fakeServer{Fake: localtest.New(100)}
	f.FailEvery = 7
	f.Result = func(a *bulk.Action, _ [][]byte) map[string]any {
		return map[string]any{"count": a.Succeeded, "sum:order": "123.50"}
	}
	for i, args := range [][]string{
		{"--tenant", "acme", "--id", "first", "--type", "echo"},
		{"--tenant", "a tenant with a really long name", "--id", "01JD3V0Q4ZK8W3", "--url", "https://api.example.com/orders", "--class", "low", "--key", "customer 7"},
	} {
		if r := f.on(t.Context(), ordersNDJSON(100+1000*i), append([]string{"submit", "-"}, args...)...); r.Code() != 0 {
			t.Fatal(r.Failure)
		}
	}
	if _, _, err := f.Fake.Create(t.Context(), bulk.Spec{ID: "third", Tenant: "acme", Type: "echo"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	return f
}

func TestServerCommandsGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := threeActions(t)
		var all strings.Builder
		for _, line := range []string{
			"streams", "waits", "waits --tenant b --limit 1", "workers", "list", "list --tenant acme --limit 1", "list --tenant nobody", "status first", "status 01JD3V0Q4ZK8W3", "status third",
			"pause 01JD3V0Q4ZK8W3", "status 01JD3V0Q4ZK8W3", "resume 01JD3V0Q4ZK8W3",
			"why 01JD3V0Q4ZK8W3", "why 01JD3V0Q4ZK8W3/7", "why 01JD3V0Q4ZK8W3/1100", "why first/x", "failures first --limit 3", "failures third",
			"failures first --csv", "failures --tenant acme --cause 5xx --limit 2", "failures --error ADDRESS --since yesterday --limit 1", "failures --until 2000-01-01", "failures --since noon",
			"cancel 01JD3V0Q4ZK8W3", "replay first", "watch 01JD3V0Q4ZK8W3", "watch first",
			"pause --tenant acme", "cancel --all --dry-run", "replay --target shop --tenant nobody", "pause", "resume zips --tenant acme",
			"cancel --all --type echo", "pause first --dry-run", "replay --all --cause 5xx", "replay first --tenant acme",
			"replay --cause 500 --since yesterday --until today --dry-run",
		} {
			r := f.on(t.Context(), "", strings.Fields(line)...)
			fmt.Fprintf(&all, "$ sluice bulk %s\n%s%s", line, r.Stderr, r.Stdout)
			if r.Failure != nil {
				fmt.Fprintf(&all, "sluice: %v (exit code %d)\n", r.Failure, r.Code())
			}
		}
		clitest.Golden(t, "server", all.String())
	})
}

func TestServerCommandsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := threeActions(t)
		for line, want := range map[string]struct {
			lines int
			start string
		}{
			"list":           {3, `{"id":"first","tenant":"acme",`},
			"status first":   {1, `{"id":"first","tenant":"acme","type":"echo","class":"normal","status":"COMPLETED"`},
			"streams":        {1, `{"id":"01JD3V0Q4ZK8W3"`},
			"waits":          {1, `{"tenant":"acme","type":"echo","target":"","waiting":1200,"job":{"id":"first-0"`},
			"workers":        {3, `{"type":"echo","workers":12,"here":10`},
			"why first":      {1, `{"id":"first-0","action":"first","index":0,"state":"non_ready","attempts":2,"error":"","reason":"transient_error"`},
			"failures first": {14, `{"id":"first-6","action":"first","index":6,"payload":{"order":6,`},
			"watch first":    {1, `{"id":"first"`},
			"cancel --all":   {1, `{"matched":8,"changed":7,"jobs":13000,"next":null}`},
			"replay first":   {1, `{"id":"first-again"`},
		} {
			r := f.on(t.Context(), "", append(strings.Fields(line), "--json")...)
			if r.Code() != 0 || r.Stderr != "" || strings.Count(r.Stdout, "\n") != want.lines || !strings.HasPrefix(r.Stdout, want.start) {
				t.Errorf("bulk %s --json: want %d lines, %s…; got %v\n%s%s", line, want.lines, want.start, r.Failure, r.Stdout, r.Stderr)
			}
		}
	})
}

func TestWatchInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := threeActions(t)
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, interrupt)
		r := f.on(ctx, "", "watch", "01JD3V0Q4ZK8W3")
		if r.Code() != exit.CodeInterrupted || !strings.Contains(r.Failure.Error(), "the action goes on") {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
	})
}
