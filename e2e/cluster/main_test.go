package cluster

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var (
	// binary is the sluice that TestMain builds.
	binary string

	reportTo = flag.String("report", "", "file that the report of a run is written to, as JSON")
	logsTo   = flag.String("logs", "", "folder that the nodes' logs are kept in")
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "sluice-e2e")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sluice: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// long tells whether the longer runs are wanted. It is asked for in the test
// itself, so that go test knows that its result depends on it.
func long() bool { return os.Getenv("SLUICE_LONG") != "" }

// onlyLong tells whether a test has to end, and says so, as it is one of the longer
// runs. TestKill and TestPlannedStop are the short ones.
func onlyLong(t *testing.T) bool {
	t.Helper()
	if !long() {
		t.Log("this is one of the longer runs: SLUICE_LONG=1, or make test-all")
	}
	return !long()
}

// chaosTime is how long TestChaos goes on.
func chaosTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SLUICE_CHAOS")
	if text == "" {
		return time.Minute
	}
	wanted, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SLUICE_CHAOS: %v; want a duration such as 10m", err)
	}
	return wanted
}

// eventually waits until something is true.
func eventually(t *testing.T, most time.Duration, what string, is func() bool) {
	t.Helper()
	if !within(most, is) {
		t.Fatalf("not within %s: %s", most, what)
	}
}

// within tells whether something becomes true in that time.
func within(most time.Duration, is func() bool) bool {
	deadline := time.After(most)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}
