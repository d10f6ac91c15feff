package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/examples"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// bulkRunOn runs "bulk run" with arguments on a fake engine.
func bulkRunOn(ctx context.Context, f *localtest.Fake, stdin string, args ...string) *clitest.Ran {
	f.Waits = true
	return clitest.Execute(ctx, newRunCommand(f.Open, intake.OpenRows), stdin, args...)
}

// ordersFile returns a file of 6 tenants: the k-th has 40·k orders of k.05.
func ordersFile(t *testing.T) string {
	t.Helper()
	var rows strings.Builder
	rows.WriteString("order,customer,amount\n")
	number := 0
	for round := range 240 {
		for tenant := 1; tenant <= 6; tenant++ {
			if round < 40*tenant {
				number++
				fmt.Fprintf(&rows, "%05d,customer %d,%d.05\n", number, tenant, tenant)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(path, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBulkRunText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := localtest.New(200)
		f.FailEvery, f.Throttles, f.Result = 17, 0.1, localtest.CountAndSum
		f.Index, f.Windows = 0.99812, 3
		path := ordersFile(t)
		r := bulkRunOn(t.Context(), f, "", path, "--tenant-column", "customer", "--type", "echo", "--top", "3",
			"--aggregate", "count", "--aggregate", "sum:amount", "--aggregate", "avg:amount")
		if r.Code() != 0 {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
		if !f.Closed {
			t.Error("the engine was not closed")
		}
		clitest.Golden(t, "run", r.Stdout+"# standard error\n"+strings.ReplaceAll(r.Stderr, path, "orders.csv"))
	})
}

func TestBulkRunJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := localtest.New(1000)
		f.Result = localtest.CountAndSum
		r := bulkRunOn(t.Context(), f, "", ordersFile(t), "--tenant-column", "customer", "--type", "echo",
			"--aggregate", "count", "--aggregate", "sum:amount", "--aggregate", "avg:amount", "--json")
		if r.Code() != 0 || r.Stderr != "" {
			t.Errorf("exit code %d, standard error %q: %v", r.Code(), r.Stderr, r.Failure)
		}
		var got struct {
			Actions, Jobs, Succeeded, Failed, Throttled int64
			Aggregates                                  map[string]any
			PerAction                                   map[string]map[string]any `json:"per_action"`
			ElapsedMS                                   int64                     `json:"elapsed_ms"`
			Jain                                        any
		}
		decoder := json.NewDecoder(strings.NewReader(r.Stdout))
		if err := decoder.Decode(&got); err != nil || strings.Count(r.Stdout, "\n") != 1 {
			t.Fatalf("want one line of JSON (%v): %s", err, r.Stdout)
		}
		// 40·(1² + … + 6²) and 0.05 for each of 840 jobs.
		if got.Actions != 6 || got.Jobs != 840 || got.Succeeded != 840 || got.Aggregates["sum:amount"] != "3682.00" ||
			got.Aggregates["count"] != 840.0 || got.ElapsedMS < 840 || got.ElapsedMS > 1000 || got.Jain != nil {
			t.Errorf("got %s", r.Stdout)
		}
		if got.PerAction["avg:amount"]["customer 2"] != "1.5" || got.Aggregates["avg:amount"] != nil {
			t.Errorf("an average cannot be merged: %s", r.Stdout)
		}
	})
}

func TestBulkRunTakesWholeRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := localtest.New(1e6)
		path := filepath.Join(t.TempDir(), "zipcodes.csv")
		if err := os.WriteFile(path, examples.Zipcodes, 0o600); err != nil {
			t.Fatal(err)
		}
		r := bulkRunOn(t.Context(), f, "", path, "--tenant-column", "state", "--type", "echo", "--json")
		if r.Code() != 0 || !strings.HasPrefix(r.Stdout, `{"actions":59,"jobs":42049,"succeeded":42049,`) {
			t.Fatalf("%s%v", r.Stdout, r.Failure)
		}
		if f.Biggest > intake.BatchRows {
			t.Errorf("a batch of %d rows, want at most %d", f.Biggest, intake.BatchRows)
		}
		want := `{"zip_code":"00501","latitude":"40.922326","longitude":"-72.637078","city":"Holtsville","state":"NY","county":"Suffolk"}`
		if got := string(f.Payloads["a-NY"][0]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestBulkRunNDJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := localtest.New(1e6)
		rows := `{"shop":7,"x":{"y":1}}` + "\n" + `{"shop":"7"}` + "\n" + `{"shop":"b"}` + "\n"
		r := bulkRunOn(t.Context(), f, rows, "-", "--tenant-column", "shop", "--type", "echo", "--json")
		if !strings.HasPrefix(r.Stdout, `{"actions":2,"jobs":3,`) {
			t.Errorf("a number is a tenant too: %s%v", r.Stdout, r.Failure)
		}
	})
}

// refused is a command line that must end with code 2, and the reason.
type refused struct {
	args []string
	want string
}

func TestBulkRunRefusesFlags(t *testing.T) {
	with := func(more ...string) []string { return append([]string{"-", "--tenant-column", "shop"}, more...) }
	checkRefused(t, map[string]refused{
		"no file":        {[]string{"--type", "echo"}, `give the file to read`},
		"two files":      {with("x.csv", "--type", "echo"), `give one file, not 2`},
		"no column":      {[]string{"-", "--type", "echo"}, `--tenant-column: name the column`},
		"no type":        {with(), `say what runs a job: --url URL`},
		"another type":   {with("--type", "email:send"), `--type: "email:send": there is no handler of this type here: want echo`},
		"both":           {with("--type", "echo", "--url", "http://x/"), `either --url or --type, not both`},
		"bad url":        {with("--url", "ftp://x/"), `--url: want an http or https URL with a host`},
		"bad class":      {with("--type", "echo", "--class", "urgent"), `--class: class "urgent": want high, normal or low`},
		"negative rps":   {with("--type", "echo", "--rps", "-1"), `--rps: -1 requests per second: want more than 0`},
		"rps is a word":  {with("--type", "echo", "--rps", "many"), `invalid argument "many" for "--rps"`},
		"workers":        {with("--type", "echo", "--workers", "20000"), `--workers: 20000: want 1 to 10,000`},
		"attempts":       {with("--type", "echo", "--max-attempts", "101"), `--max-attempts: want 1 to 100`},
		"timeout":        {with("--type", "echo", "--timeout", "-1s"), `--timeout: want 1 ms to 24 h`},
		"fail above":     {with("--type", "echo", "--fail-above", "2"), `--fail-above: want a share from 0 to 1`},
		"top":            {with("--type", "echo", "--top", "-1"), `--top: -1: want how many`},
		"unknown flag":   {with("--type", "echo", "--fast"), `unknown flag: --fast`},
		"not even a row": {with("--type", "echo"), `standard input: line 1: want a header line`},
	})
}

func TestBulkRunRefusesInput(t *testing.T) {
	of := func(name, content string) []string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{path, "--tenant-column", "shop", "--type", "echo"}
	}
	checkRefused(t, map[string]refused{
		"no such file":     {[]string{"none.csv", "--tenant-column", "shop", "--type", "echo"}, `none.csv: no such file or directory`},
		"directory":        {[]string{t.TempDir(), "--tenant-column", "shop", "--type", "echo"}, `a directory; want a file of CSV or NDJSON`},
		"wrong column":     {of("w.csv", "id,store\n1,a\n"), `w.csv: there is no column "shop": it has id, store`},
		"empty file":       {of("e.csv", ""), `e.csv: line 1: want a header line`},
		"no rows":          {of("h.csv", "id,shop\n"), `h.csv: it has no rows`},
		"empty tenant":     {of("t.csv", "id,shop\n1,a\n2,\n"), `t.csv: line 3: the tenant is empty: column "shop" needs a value`},
		"long row":         {of("l.csv", "id,shop\n1,a\n2,b,c\n"), `l.csv: line 3: want 2 values, as the header has; got 3`},
		"bad tenant":       {of("b.csv", "id,shop\n1,a\n2,b\n3,\"c\nd\"\n"), `b.csv: line 4: "c\nd" is not a tenant: want 1 to 256 printable`},
		"bad json":         {of("j.ndjson", "{\"shop\":\"a\"}\n{\"shop\":\n"), `j.ndjson: line 2: want one JSON value`},
		"no object":        {of("o.ndjson", "{\"shop\":\"a\"}\n[1]\n"), `o.ndjson: line 2: want a JSON object`},
		"no field":         {of("f.jsonl", "{\"shop\":\"a\"}\n{\"store\":1,\"id\":2}\n"), `f.jsonl: line 2: there is no field "shop": it has id, store`},
		"tenant is object": {of("k.ndjson", "{\"shop\":{}}\n"), `k.ndjson: line 1: the tenant, "shop", is {}: want a string or a number`},
	})
}

// checkRefused checks that nothing runs and nothing is left open.
func checkRefused(t *testing.T, lines map[string]refused) {
	t.Helper()
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			f := localtest.New(1e6)
			r := bulkRunOn(t.Context(), f, "", line.args...)
			if r.Code() != exit.CodeUsage || !strings.Contains(fmt.Sprint(r.Failure), line.want) {
				t.Errorf("exit code %d: %v\nwant 2: %s", r.Code(), r.Failure, line.want)
			}
			for _, a := range f.All {
				if a.Status != bulk.Canceled {
					t.Errorf("action %s was left %s", a.ID, a.Status)
				}
			}
			if r.Stdout != "" {
				t.Errorf("standard output: %s", r.Stdout)
			}
		})
	}
}

func TestBulkRunEngineRefuses(t *testing.T) {
	f := localtest.New(1e6)
	f.CreateError = &bulk.SpecError{Field: "aggregate", Why: `"median:x": not known`}
	r := bulkRunOn(t.Context(), f, "id,shop\n1,a\n", "-", "--tenant-column", "shop", "--type", "echo", "--aggregate", "median:x")
	if r.Code() != exit.CodeUsage || r.Failure.Error() != `--aggregate: "median:x": not known` {
		t.Errorf("exit code %d: %v", r.Code(), r.Failure)
	}
	f = localtest.New(1e6)
	f.AppendError = bulk.ErrFull
	r = bulkRunOn(t.Context(), f, "id,shop\n1,a\n", "-", "--tenant-column", "shop", "--type", "echo")
	if r.Code() != 1 || !errors.Is(r.Failure, bulk.ErrFull) || !strings.Contains(r.Failure.Error(), `tenant "a"`) {
		t.Errorf("exit code %d: %v", r.Code(), r.Failure)
	}
	if !f.Closed || f.All[0].Status != bulk.Canceled {
		t.Error("a refused intake leaves something open")
	}
}

func TestBulkRunActionFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := localtest.New(1000)
		f.FailEvery = 10
		r := bulkRunOn(t.Context(), f, "", ordersFile(t), "--tenant-column", "customer", "--type", "echo", "--fail-above", "0.05")
		if r.Code() != 1 || !strings.Contains(r.Failure.Error(), "6 actions FAILED, the first: customer 1 (a-customer 1)") {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
		if !strings.Contains(r.Stdout, "500 Internal Server Error") || !strings.Contains(r.Stdout, "FAILED: customer 1") {
			t.Errorf("the report does not say why:\n%s", r.Stdout)
		}
	})
}

func TestBulkRunInterrupted(t *testing.T) {
	for name, data := range map[string]string{"temporary": "", "kept": "kept"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := localtest.New(100)
				args := []string{ordersFile(t), "--tenant-column", "customer", "--type", "echo", "--top", "2"}
				want := "nothing of them is kept (--data DIR keeps them)"
				if data != "" {
					args = append(args, "--data", data)
					want = "they are kept in kept, and go on with: sluice serve --data kept"
				}
				ctx, interrupt := context.WithCancel(t.Context())
				time.AfterFunc(4050*time.Millisecond, interrupt)
				r := bulkRunOn(ctx, f, "", args...)
				if r.Code() != exit.CodeInterrupted || !strings.Contains(r.Failure.Error(), "440 of 840 jobs are not finished; "+want) {
					t.Errorf("exit code %d: %v", r.Code(), r.Failure)
				}
				if !f.Stopped || !f.Closed {
					t.Error("the engine was not drained and closed")
				}
				if !strings.Contains(r.Stderr, "customer 6   240") || !strings.Contains(r.Stderr, "+3 more") {
					t.Errorf("what is unfinished is not listed:\n%s", r.Stderr)
				}
			})
		})
	}
}

func TestBulkRunEngineStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := localtest.New(100)
		time.AfterFunc(time.Second, func() { close(f.Broken) })
		r := bulkRunOn(t.Context(), f, "", ordersFile(t), "--tenant-column", "customer", "--type", "echo")
		if r.Code() != 1 || !strings.Contains(r.Failure.Error(), "the engine stopped: the store is broken") {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
	})
}

func TestBulkRunOnKeptData(t *testing.T) {
	f := localtest.New(1e6)
	f.Stored.Limits = &bulk.Limits{RequestsPerSecond: 50}
	r := bulkRunOn(t.Context(), f, "id,shop\n1,a\n", "-", "--tenant-column", "shop", "--type", "echo", "--data", "kept", "--rps", "70")
	if r.Code() != exit.CodeUsage || !strings.Contains(r.Failure.Error(), "kept has a stored limit of 50 requests per second") {
		t.Errorf("exit code %d: %v", r.Code(), r.Failure)
	}
}
