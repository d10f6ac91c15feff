package bulk

import (
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
)

func TestTargetCommand(t *testing.T) {
	f := &fakeServer{Fake: localtest.New(100)}
	for _, step := range []struct{ args, want string }{
		{"target api:443", "api:443: no limit of its rate, no limit of its concurrency\n"},
		{"target api:443 --rps 2.5 --concurrency 20", "api:443: 2.5 attempts per second, at most 20 in flight\n"},
		{"target api:443 --pacing smooth", "api:443: 2.5 attempts per second, smooth, at most 20 in flight\n"},
		{"target api:443 --pacing window", "api:443: 2.5 attempts per second, at most 20 in flight\n"},
		{"target api:443 --rps auto", "api:443: auto, at present 41.5 attempts per second, at most 20 in flight\n"},
		{"target api:443 --concurrency 0", "api:443: auto, at present 41.5 attempts per second, no limit of its concurrency\n"},
		{"target api:443 --json", `{"requests_per_second":"auto","concurrency":0,"pacing":"window","found_requests_per_second":41.5}` + "\n"},
		{"target api:443 --rps 0", "api:443: no limit of its rate, no limit of its concurrency\n"},
		{"target api:443 --json", `{"requests_per_second":0,"concurrency":0,"pacing":"window"}` + "\n"},
		{"target api:443 --url-prefix https://x/y --tenant a,b", "api:443: no limit of its rate, no limit of its concurrency, below https://x/y, for a, b only\n"},
		{"target api:443 --concurrency 2", "api:443: no limit of its rate, at most 2 in flight, below https://x/y, for a, b only\n"},
		{"target api:443 --tenant=", "api:443: no limit of its rate, at most 2 in flight, below https://x/y\n"},
	} {
		if r := f.on(t.Context(), "", strings.Fields(step.args)...); r.Code() != 0 || r.Stdout != step.want {
			t.Errorf("%s: exit code %d, %v: %q, want %q", step.args, r.Code(), r.Failure, r.Stdout, step.want)
		}
	}
	for args, want := range map[string]string{
		"target":                         "give the name of one target",
		"target a b":                     "give the name of one target",
		"target a --rps fast":            `--rps: "fast": want a number, 0 for no limit, or auto`,
		"target a --pacing even":         `--pacing: "even": want window or smooth`,
		"target a --rps -1":              `--rps: "-1": want a number`,
		"target a --rps NaN":             `--rps: "NaN": want a number`,
		"target a --concurrency -1":      "--concurrency: -1: want at least 1",
		"target a --rps auto --nonsense": "unknown flag",
	} {
		r := f.on(t.Context(), "", strings.Fields(args)...)
		if r.Code() != 2 || !strings.Contains(r.Failure.Error(), want) {
			t.Errorf("%s: exit code %d: %v, want one that says %q", args, r.Code(), r.Failure, want)
		}
	}
	if len(f.targets) != 1 {
		t.Errorf("limits %v were set, want those of one target", f.targets)
	}
}
