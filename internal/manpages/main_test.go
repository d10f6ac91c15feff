package main

import (
	"compress/gzip"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every command has a page with its flags, and every page that a page names exists.
func TestEveryCommandHasAPage(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{dir}); err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	var walk func(name string)
	walk = func(name string) {
		reached[name] = true
		content := read(t, filepath.Join(dir, "man", name+".1.gz"))
		for _, match := range regexp.MustCompile(`\\fB(\S+)\\fR\(1\)`).FindAllStringSubmatch(content, -1) {
			if neighbor := strings.ReplaceAll(match[1], `\-`, "-"); !reached[neighbor] {
				walk(neighbor)
			}
		}
	}
	walk("sluice")
	for _, name := range []string{"sluice-serve", "sluice-bulk-schedule-set", "sluice-topic-consume", "sluice-completion-bash"} {
		if !reached[name] {
			t.Errorf("no page leads to %s", name)
		}
	}
	serve := read(t, filepath.Join(dir, "man", "sluice-serve.1.gz"))
	for _, want := range []string{".TH SLUICE\\-SERVE 1", "\n.SH OPTIONS\n.TP\n", "\n.B \\-\\-disk\\-reserve size\nfree disk space ", "(default 256MiB)\n", "\n.SH EXAMPLES\n"} {
		if !strings.Contains(serve, want) {
			t.Errorf("the page of sluice serve lacks %q:\n%.3000s", want, serve)
		}
	}
}

var update = flag.Bool("update", false, "write the document of all commands again")

// The document of all commands is what they say of themselves.
func TestReference(t *testing.T) {
	path, want := filepath.Join("..", "..", "docs", "commands.md"), reference(commands())
	if *update {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("docs/commands.md is not what the commands say (%v): run make generate", err)
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		`--a b`:     `\-\-a b`,
		`C:\x`:      `C:\ex`,
		"a\n.b\n'c": "a\n\\&.b\n\\&'c",
	} {
		if got := plain(text); got != want {
			t.Errorf("plain(%q) = %q, want %q", text, got, want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
