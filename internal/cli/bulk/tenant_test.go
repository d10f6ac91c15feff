package bulk

import (
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
)

func TestTenantCommand(t *testing.T) {
	f := &fakeServer{Fake: localtest.New(100), tenants: map[string]wire.Tenant{
		"busy": {Weight: 1, MaxActions: 5, Stored: &wire.Stored{Actions: 1, Jobs: 2000, Bytes: 70_000}},
		"acme": {Weight: 1, Keys: map[string]wire.KeyLimit{"payload.customer": {Concurrency: 2}}},
	}}
	for _, step := range []struct{ args, want string }{
		{"tenant acme", "acme: weight 1, 1 limit by key\n"},
		{"tenant acme --weight 2.5 --rps 50 --concurrency 3", "acme: weight 2.5, 50 attempts per second, at most 3 in flight, 1 limit by key\n"},
		{"tenant acme --max-actions 1 --max-jobs 2000 --max-bytes 4096 --rps 0 --concurrency 0",
			"acme: weight 2.5, 1 limit by key, at most 1 unfinished action, at most 2,000 jobs, at most 4,096 bytes\n"},
		{"tenant acme --max-actions 0 --max-bytes 0", "acme: weight 2.5, 1 limit by key, at most 2,000 jobs\n"},
		{"tenant busy", "busy: weight 1, at most 5 unfinished actions; stored: 1 unfinished action, 2,000 jobs, 70,000 bytes\n"},
		{"tenant other --json", `{"base_priority":0,"weight":1,"requests_per_second":0}` + "\n"},
		{"tenant acme --max-jobs 5 --json", `{"base_priority":0,"weight":2.5,"requests_per_second":0,"keys":{"payload.customer":{"concurrency":2}},"max_jobs":5}` + "\n"},
	} {
		if r := f.on(t.Context(), "", strings.Fields(step.args)...); r.Code() != 0 || r.Stdout != step.want {
			t.Errorf("%s: exit code %d, %v: %q, want %q", step.args, r.Code(), r.Failure, r.Stdout, step.want)
		}
	}
	for args, want := range map[string]string{
		"tenant":                     "give the name of one tenant",
		"tenant a b":                 "give the name of one tenant",
		"tenant a --max-jobs many":   "invalid argument",
		"tenant a --max-jobs 1 --no": "unknown flag",
	} {
		r := f.on(t.Context(), "", strings.Fields(args)...)
		if r.Code() != 2 || !strings.Contains(r.Failure.Error(), want) {
			t.Errorf("%s: exit code %d: %v, want one that says %q", args, r.Code(), r.Failure, want)
		}
	}
	if len(f.tenants) != 2 {
		t.Errorf("settings %v are set, want those of the two tenants", f.tenants)
	}
}
