//go:build long && linux

package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// build builds the release of a version for this machine, by .goreleaser.yml, and returns the folder
// with its files.
func build(t *testing.T, version string, flags ...string) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	config := replace(t, string(readFile(t, "../.goreleaser.yml")),
		"goos: [linux, darwin]", "goos: [linux]",
		"goarch: [amd64, arm64]", "goarch: ["+runtime.GOARCH+"]",
		`version_template: "{{ incpatch .Version }}-snapshot"`, "version_template: "+version,
	) + "\ndist: " + dist + "\n"
	file := filepath.Join(t.TempDir(), "goreleaser.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without a remote GoReleaser does not look for the commit.
	output(t, "env", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=remote.origin.url", "GIT_CONFIG_VALUE_0=https://github.com/sluice-project/sluice",
		"make", "-C", "..", "snapshot", "RELEASE_FLAGS=--config "+file+" "+strings.Join(flags, " "))
	return dist
}

// replace replaces texts, each of which must be there.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("%q is not in\n%s", pair[0], text)
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// output runs a command and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// find returns the one file in a folder that a pattern matches.
func find(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		entries, _ := os.ReadDir(folder)
		t.Fatalf("%s matches %q, want one of %v (%v)", pattern, found, entries, err)
	}
	return found[0]
}

// A release is what the guide says: an archive, packages that have the same files, checksums of all,
// and a list of the modules in the binary, which knows its version and commit.
func TestRelease(t *testing.T) {
	dist := build(t, "1.2.3")
	t.Run("archive", func(t *testing.T) { checkArchive(t, find(t, dist, "sluice_1.2.3_linux_*.tar.gz")) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, find(t, dist, "*.rpm"), find(t, dist, "*.deb")) })
	t.Run("checksums", func(t *testing.T) {
		sums := output(t, "sh", "-c", `cd "$1" && sha256sum --check SHA256SUMS`, "sh", dist)
		for _, name := range []string{".tar.gz", ".deb", ".rpm", ".cdx.json"} {
			if !strings.Contains(sums, name+": OK") {
				t.Errorf("there is no checksum of *%s:\n%s", name, sums)
			}
		}
	})
	t.Run("modules", func(t *testing.T) {
		var list struct{ Components []struct{ Name string } }
		if err := json.Unmarshal(readFile(t, find(t, dist, "*.cdx.json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, module := range []string{"std", "github.com/cockroachdb/pebble/v2"} {
			if !slices.ContainsFunc(list.Components, func(c struct{ Name string }) bool { return c.Name == module }) {
				t.Errorf("the list of modules lacks %s", module)
			}
		}
	})
	t.Run("install", func(t *testing.T) { checkInstall(t, find(t, dist, "*.deb")) })
}

func checkArchive(t *testing.T, archive string) {
	dir := t.TempDir()
	output(t, "tar", "-xzf", archive, "-C", dir, "--strip-components=1")
	for _, name := range []string{"LICENSE", "THIRD_PARTY_NOTICES", "README.md", "man/man1/sluice-bulk-submit.1.gz", "completions/bash/sluice", "completions/zsh/_sluice", "completions/fish/sluice.fish"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	var version struct{ Version, Commit string }
	if err := json.Unmarshal([]byte(output(t, filepath.Join(dir, "sluice"), "version", "--json")), &version); err != nil {
		t.Fatal(err)
	}
	head := strings.TrimSpace(output(t, "git", "rev-parse", "HEAD"))
	if version.Version != "v1.2.3" || version.Commit != head {
		t.Errorf("the binary says that it is %+v, want v1.2.3 of commit %s", version, head)
	}
}

// checkRPM compares the files of the two packages, and what rpm does with the settings.
func checkRPM(t *testing.T, rpm, deb string) {
	var want []string
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", deb)) {
		fields := strings.Fields(line)
		if name := strings.TrimPrefix(fields[len(fields)-1], "."); !strings.HasSuffix(name, "/") {
			want = append(want, strings.Replace(name, "/zsh/vendor-completions/", "/zsh/site-functions/", 1))
		}
	}
	got := strings.Fields(output(t, "rpm", "--query", "--package", "--list", rpm))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("rpm has the files\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	flags := output(t, "rpm", "--query", "--package", "--queryformat", `[%{FILENAMES} %{FILEFLAGS:fflags}\n]`, rpm)
	if !strings.Contains(flags, "/etc/sluice/sluice.yaml cn\n") {
		t.Errorf("the settings are not config(noreplace):\n%s", flags)
	}
}
