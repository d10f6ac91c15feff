package earlier

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Known reports whether the clone at root has a revision.
func Known(t testing.TB, root, revision string) bool {
	return exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", revision+"^{commit}").Run() == nil
}

// Build returns the path of the binary of a revision, built as a release is. It is removed when the
// test ends. The test fails if the clone at root does not have the revision.
func Build(t testing.TB, root, revision string) string {
	t.Helper()
	dir := t.TempDir()
	archive, source := filepath.Join(dir, "source.tar"), filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(dir, "sluice")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s", "-o", built, "./cmd/sluice")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	for _, command := range []*exec.Cmd{
		exec.CommandContext(t.Context(), "git", "-C", root, "archive", "--output", archive, revision),
		exec.CommandContext(t.Context(), "tar", "-x", "-f", archive, "-C", source),
		build,
	} {
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s\nAn earlier version is built from the history of the repository, which git fetch --unshallow --tags completes", command, err, out)
		}
	}
	return built
}
