//go:build redis && long

package e2e

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// A server with 20,000 jobs in progress is stopped, or killed, and its data is migrated to Redis by
// a command that is killed at random moments. The old directory cannot be served afterwards. A
// server on the Redis finishes the work, with remote workers that have kept their leases: no job is
// lost or counted twice, sums are exact, and no window has more attempts than the limits allow.
func TestBulkMigrate(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		of   func(*server)
	}{{"stopped", (*server).terminate}, {"killed", (*server).kill}} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.Options{Persist: redistest.EverySecond})
			s := startServer(t)
			plan := bulkPlan{
				phases: [][]string{{"remote", "webhook", "echo"}}, tenants: 4, jobs: 1_700,
				limit: 2_500, tenantLimit: 500, leaseFor: 4 * time.Second,
			}
			if !long() {
				plan.jobs, plan.limit, plan.tenantLimit = 700, 1_000, 200
			}
			l := newIdleBulkLoad(t, plan, s)
			out, err := exec.Command(binary, "bulk", "migrate", "--from", s.data, "--to", redis.URL()).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "another process has it open") {
				t.Errorf("moving what a server has open: %v %s", err, out)
			}
			var held []remoteJob
			moved := false
			l.run(10*time.Minute, func() {
				switch {
				case held == nil:
					// These jobs wait for the move, so not all can be done before it.
					held = l.hold()
					l.startWorkers()
				case !moved && l.ledger.anyCounted():
					moved = true
					end.of(s)
					migrate(t, s, redis.URL())
					refuseMoved(t, s)
					s.args = append(s.args, "--state", redis.URL())
					s.start()
					l.acknowledge(held)
				}
			})
			l.ledger.kept(held)
			l.check()
		})
	}
}

// migrate migrates the data of a server, over kills of the command.
func migrate(t *testing.T, s *server, url string) {
	t.Helper()
	kills := 0
	for range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond+rand.N(150*time.Millisecond))
		err := exec.CommandContext(ctx, binary, "bulk", "migrate", "--from", s.data, "--to", url).Run()
		cancel()
		if err != nil {
			kills++
		}
	}
	dry := migrateOnce(t, s, url, "--dry-run")
	done := migrateOnce(t, s, url)
	again := migrateOnce(t, s, url)
	t.Logf("%d kills; %+v", kills, done)
	half := done.UnfinishedJobs > 0 && done.UnfinishedJobs < done.Jobs
	if dry.Jobs != done.Jobs || !half || done.InFlight == 0 || !dry.DryRun || !again.MovedBefore {
		t.Errorf("the dry run says %+v, then %+v, then %+v", dry, done, again)
	}
}

// migration is the final output of the command.
type migration struct {
	Jobs           int64 `json:"jobs"`
	UnfinishedJobs int64 `json:"unfinished_jobs"`
	InFlight       int64 `json:"in_flight"`
	Bytes          int64 `json:"bytes"`
	ElapsedMS      int64 `json:"elapsed_ms"`
	DryRun         bool  `json:"dry_run"`
	MovedBefore    bool  `json:"moved_before"`
}

func migrateOnce(t *testing.T, s *server, url string, args ...string) (said migration) {
	t.Helper()
	out, err := exec.Command(binary, append([]string{"bulk", "migrate", "--from", s.data, "--to", url, "--json"}, args...)...).Output()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err != nil {
		t.Fatalf("migrate %v: %v %s", args, err, out)
	}
	return said
}

// refuseMoved checks that no server starts on the migrated directory.
func refuseMoved(t *testing.T, s *server) {
	t.Helper()
	out, err := exec.Command(binary, "serve", "--data", s.data, "--http", s.addr, "--kafka", "off").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "was migrated to redis://") || !strings.Contains(string(out), "bulk-moved.json") {
		t.Errorf("serving from what was moved: %v %s", err, out)
	}
	response, err := http.Get(s.url("/readyz"))
	if err == nil {
		response.Body.Close()
		t.Error("a server answers")
	}
}
