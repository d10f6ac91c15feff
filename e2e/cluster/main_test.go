//go:build cluster

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
	// binary is the path of sluice, which TestMain builds with go and buildArgs.
	binary    string
	buildArgs = []string{"build", "-ldflags=-s"}

	reportTo = flag.String("report", "", "file that the report of a run is written to, as JSON")
	from     = flag.String("from", earlierRevision, "revision of the repository whose binary the nodes of TestPlannedStop begin with")
	logsTo   = flag.String("logs", "", "folder that the nodes' logs are kept in")
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "sluice-e2e")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", append(buildArgs, "-o", binary, "../../cmd/sluice")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sluice: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// long reports whether SLUICE_LONG asks for longer runs. Each test reads the variable itself, so
// that go test knows that its result depends on it.
func long() bool { return os.Getenv("SLUICE_LONG") != "" }

// eventually waits until is returns true.
func eventually(t *testing.T, most time.Duration, what string, is func() bool) {
	t.Helper()
	if !within(most, is) {
		t.Fatalf("not within %s: %s", most, what)
	}
}

// within reports whether is becomes true in the given time.
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
