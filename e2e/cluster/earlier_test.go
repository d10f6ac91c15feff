//go:build cluster

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// earlierRevision is what TestPlannedStop upgrades from: the tag of the last release, and before
// the first one a revision with the same requirements in go.mod.
const earlierRevision = "6eb6f8ea79fe4caba053636453bef3f1082fbf84"

// earlier returns the binary of the revision that -from names, built from the repository's
// history as a release is. In a clone without that revision it is this version's, which
// "make test-all" reports.
func earlier(t *testing.T) string {
	t.Helper()
	if *from == earlierRevision && exec.CommandContext(t.Context(), "git", "cat-file", "-e", *from).Run() != nil {
		t.Log("nothing is upgraded: this clone does not have the history")
		return binary
	}
	dir := t.TempDir()
	archive, source := filepath.Join(dir, "source.tar"), filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(dir, "sluice")
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-ldflags=-s", "-o", built, "./cmd/sluice")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	for _, command := range []*exec.Cmd{
		exec.CommandContext(context.Background(), "git", "-C", "../..", "archive", "--output", archive, *from),
		exec.CommandContext(context.Background(), "tar", "-x", "-f", archive, "-C", source),
		build,
	} {
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s\nAn earlier version is built from the history of the repository, which git fetch --unshallow --tags completes", command, err, out)
		}
	}
	return built
}
