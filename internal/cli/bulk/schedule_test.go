package bulk

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// service is bulk behind its API, without a network.
type service struct {
	engine  *engine.Engine
	handler http.Handler
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *service) connect(base string, _ *http.Client) (server, error) {
	c, err := client.New(base, client.WithHTTPClient(&http.Client{Transport: s}), client.WithAttempts(1))
	return &clientServer{c, c}, err
}

// newService starts bulk; the returned function stops it.
func newService(t *testing.T) (*service, func()) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store, err := pebblestore.Open("data", pebblestore.Options{FS: vfs.NewMem(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := engine.New(store, bulk.NewMux(), bulk.Config{}, engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &service{engine, api.New(engine, api.WithLogger(quiet))}, func() {
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// on runs "bulk ARGS" on the service.
func (s *service) on(ctx context.Context, stdin string, args ...string) *clitest.Ran {
	return runOn(ctx, s.connect, stdin, args)
}

// The life of a schedule from creation to removal, on the real engine and store, through the real
// API and client. Bubbles begin at 2000-01-01T00:00:00Z.
func TestScheduleCommandsGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := newService(t)
		defer end()
		var all strings.Builder
		run := func(line string, args ...string) {
			fmt.Fprintf(&all, "$ sluice bulk %s", line)
			for _, arg := range args {
				fmt.Fprintf(&all, " %q", arg)
			}
			all.WriteString("\n")
			r := s.on(t.Context(), ordersNDJSON(3), append(strings.Fields(line), args...)...)
			all.WriteString(r.Stderr + r.Stdout)
			if r.Failure != nil {
				fmt.Fprintf(&all, "sluice: %v (exit code %d)\n", r.Failure, r.Code())
			}
		}
		const set = "schedule set nightly - --tenant acme --key customer-7 --type reports --time-zone Asia/Seoul --catch-up 2h --cron"
		run("schedule list")
		run(set, "*/2 9 * * *")
		time.Sleep(5 * time.Minute)
		run("schedule list")
		run("schedule show nightly")
		run("list")
		// No worker runs the job type: the first run does not finish.
		run("schedule run nightly")
		run("cancel nightly:20000101T000200Z")
		run("schedule run nightly --json")
		time.Sleep(time.Second)
		run("schedule pause nightly")
		run("schedule list")
		run(set+" @daily --overlap", "allow")
		run("schedule resume nightly")
		run("schedule list --json")
		run(set, "0 0 31 2 *")
		run("schedule remove nightly")
		run("schedule show nightly")
		run("list")
		// A new action's first job may be admitted before its status is read.
		clitest.Golden(t, "schedule", strings.Replace(all.String(), `"status":"RUNNING"`, `"status":"DISPATCHED"`, 1))
	})
}

// Jobs go to a target that the server knows, at a path below its prefix.
func TestNamedTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := newService(t)
		defer end()
		for _, step := range []struct{ line, want string }{
			{"target billing --url-prefix https://billing.test/hooks --tenant acme", "below https://billing.test/hooks, for acme only"},
			{"schedule set charges - --tenant acme --cron @daily --target billing --url /charge", ""},
			{"schedule show charges --json", `"target":{"name":"billing","url":"https://billing.test/hooks/charge"}`},
			{"submit - --tenant acme --id charges --target billing", "charges"},
			{"status charges --json", `"target":{"name":"billing","url":"https://billing.test/hooks"}`},
		} {
			if r := s.on(t.Context(), ordersNDJSON(1), strings.Fields(step.line)...); r.Code() != 0 || !strings.Contains(r.Stdout+r.Stderr, step.want) {
				t.Errorf("%s: exit code %d, %v\n%s%swant %s", step.line, r.Code(), r.Failure, r.Stdout, r.Stderr, step.want)
			}
		}
		for line, want := range map[string]string{
			"submit - --tenant acme --target billing --url ../charge":     "target.url: the path has a segment of dots",
			"submit - --tenant shop --target billing --url /charge":       `target "billing" is not for tenant "shop"`,
			"submit - --tenant acme --target other --url /charge":         `target "other" has no url_prefix: want an http or https URL`,
			"submit - --tenant acme --target billing --type echo":         "either --target or --type",
			"schedule set s - --tenant acme --cron @daily --target other": "want an http or https URL",
		} {
			if r := s.on(t.Context(), ordersNDJSON(1), strings.Fields(line)...); r.Failure == nil || !strings.Contains(r.Failure.Error(), want) {
				t.Errorf("%s: exit code %d, %v, want %s", line, r.Code(), r.Failure, want)
			}
		}
	})
}

func TestScheduleSetRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args  []string
		input string
		want  string
	}{
		"no name":        {[]string{"--cron", "@daily"}, "", "give the name of the schedule and the file"},
		"no cron":        {[]string{"s", "-", "--tenant", "a", "--type", "echo"}, "{}", "say when"},
		"no tenant":      {[]string{"s", "-", "--cron", "@daily", "--type", "echo"}, "{}", "--tenant TENANT"},
		"no type":        {[]string{"s", "-", "--cron", "@daily", "--tenant", "a"}, "{}", "say what runs a job"},
		"back in time":   {[]string{"s", "-", "--cron", "@daily", "--tenant", "a", "--type", "echo", "--catch-up", "-1h"}, "{}", "--catch-up"},
		"a key":          {[]string{"s", "-", "--cron", "@daily", "--tenant", "a", "--type", "echo", "--key", "a\nb"}, "{}", "--key: want at most 256 printable characters"},
		"no rows":        {[]string{"s", "-", "--cron", "@daily", "--tenant", "a", "--type", "echo"}, "n,m\n", "it has no rows"},
		"a broken line":  {[]string{"s", "-", "--cron", "@daily", "--tenant", "a", "--type", "echo"}, "{\"a\":1}\n{", "line 2: want one JSON value"},
		"too many":       {[]string{"s", "-", "--cron", "@daily", "--tenant", "a", "--type", "echo"}, strings.Repeat("{}\n", 10_001), "at most 10,000 jobs"},
		"too much":       {[]string{"s", "-", "--cron", "@daily", "--tenant", "a", "--type", "echo"}, ordersNDJSON(1) + `{"x":"` + strings.Repeat("x", 1<<20-8) + `"}`, "1 MiB"},
		"no such cron":   {[]string{"s", "-", "--cron", "@noon", "--tenant", "a", "--type", "echo"}, "{}", "cron: want five fields"},
		"not a zone":     {[]string{"s", "-", "--cron", "@daily", "--time-zone", "Seoul", "--tenant", "a", "--type", "echo"}, "{}", "time_zone: want the IANA name"},
		"no such choice": {[]string{"s", "-", "--cron", "@daily", "--overlap", "queue", "--tenant", "a", "--type", "echo"}, "{}", "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, end := newService(t)
				defer end()
				r := s.on(t.Context(), test.input, append([]string{"schedule", "set"}, test.args...)...)
				if r.Code() != exit.CodeUsage || !strings.Contains(r.Failure.Error(), test.want) {
					t.Errorf("exit code %d: %v\nwant 2: %s", r.Code(), r.Failure, test.want)
				}
				if all, err := s.engine.Schedules(t.Context()); err != nil || len(all) > 0 {
					t.Errorf("%d schedules, %v", len(all), err)
				}
			})
		})
	}
}
