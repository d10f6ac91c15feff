//go:build long

package tidy

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const noticesFile = "THIRD_PARTY_NOTICES"

var update = flag.Bool("update", false, "write "+noticesFile+" again")

// vendored are the files of others in the binary that are no Go modules: the file of each license.
var vendored = map[string]string{"htmx.org 2.0.11 (npm)": "web/static/htmx.LICENSE.txt"}

// The binary comes with the licenses of all that is linked into it, on any system: modules of other
// systems may have to be loaded.
func TestThirdPartyNotices(t *testing.T) {
	want := notices(t)
	if *update {
		if err := os.WriteFile(filepath.Join(root, noticesFile), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, noticesFile); got != want {
		t.Errorf("%s is not up to date: run go test -tags long ./tidy -run Notices -update", noticesFile)
	}
}

// notices returns the modules that are linked, and each text once, under the modules that have it.
func notices(t *testing.T) string {
	texts := map[string][]string{}
	linked := linkedModules(t)
	for _, name := range slices.Sorted(maps.Keys(linked)) {
		text := licenseText(t, linked[name])
		if text == "" {
			t.Errorf("%s has no license", name)
		}
		if strings.HasPrefix(name, "golang.org/x/sys ") {
			texts[text] = append(texts[text], "Go and its standard library") // under the same license
		}
		texts[text] = append(texts[text], name)
	}
	for name, file := range vendored {
		texts[read(t, file)] = append(texts[read(t, file)], name)
	}
	var b strings.Builder
	b.WriteString("The sluice binary contains the following works, under these licenses.\n")
	order := slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return strings.Compare(texts[a][0], texts[b][0]) })
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n\n%s\n\n%s", strings.Repeat("-", 80), strings.Join(texts[text], "\n"), text)
	}
	return b.String()
}

// linkedModules returns the folders of the modules that are linked, by name and version.
func linkedModules(t *testing.T) map[string]string {
	modules := map[string]string{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		command := exec.CommandContext(t.Context(), "go", "list", "-deps",
			"-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}{{end}}{{end}}`, "./cmd/sluice")
		command.Dir = root
		command.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=1") // cgo links more
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v", system, err)
		}
		for line := range strings.Lines(string(out)) {
			if name, folder, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				modules[name] = folder
			}
		}
	}
	return modules
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)(\.(md|txt))?$`)

// licenseText returns the license of a folder, and its notice.
func licenseText(t *testing.T, folder string) string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, entry := range entries {
		if !licenseFile.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(strings.TrimSpace(strings.ReplaceAll(string(content), "\r", "")) + "\n")
	}
	return text.String()
}
