package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
)

// sluice runs a command line.
func sluice(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	tests := []struct {
		args   string
		code   int
		stderr string
	}{
		{"", 0, ""},
		{"--help", 0, ""},
		{"config", 0, ""},
		{"config --reference", 0, ""},
		{"version", 0, ""},
		{"confg", 2, `sluice: sluice has no command "confg"; did you mean config?; see sluice --help`},
		{"--nosuch", 2, "sluice: unknown flag: --nosuch; see sluice --help"},
		{"config --nosuch", 2, "sluice: unknown flag: --nosuch; see sluice config --help"},
		{"config extra", 2, `sluice: unknown command "extra" for "sluice config"; see sluice config --help`},
		{"config --bulk-window=1ms", 2, `sluice: flag --bulk-window: bulk.window: "1ms": want from 100ms to 1m`},
		{"config --config=/nowhere.yaml", 1, "sluice: config file: open /nowhere.yaml: no such file or directory"},
	}
	for _, test := range tests {
		code, _, stderr := sluice(t, strings.Fields(test.args)...)
		if code != test.code || strings.TrimSuffix(stderr, "\n") != test.stderr {
			t.Errorf("sluice %s: code %d, %q\nwant code %d, %q", test.args, code, stderr, test.code, test.stderr)
		}
	}
}

type codedError struct{ error }

func (codedError) ExitCode() int { return 130 }

func TestExitCodeOfErrors(t *testing.T) {
	for want, err := range map[int]error{
		1:   errors.New("failed"),
		2:   fmt.Errorf("load: %w", &config.Error{Key: "http", Source: "default", Why: "wrong"}),
		130: fmt.Errorf("run: %w", codedError{errors.New("interrupted")}),
	} {
		if code := exitCode(err); code != want {
			t.Errorf("exitCode(%v) = %d, want %d", err, code, want)
		}
	}
	if got := oneLine(errors.Join(errors.New("a"), errors.New("b"))); got != "a; b" {
		t.Errorf("two errors as one line: %q, want %q", got, "a; b")
	}
}

func TestConfigPrintsSources(t *testing.T) {
	t.Setenv("SLUICE_BULK_WORKERS", "7")
	_, stdout, _ := sluice(t, "config", "--http", ":9000")
	for _, want := range []string{"http: :9000 # flag --http\n", "workers: 7 # environment SLUICE_BULK_WORKERS\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("sluice config lacks %q:\n%s", want, stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
		{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "amd64"},
	}}
	want := "sluice v1.2.3 commit abc with changes, go1.26 linux/amd64"
	if got := version(info); got != want {
		t.Errorf("version %q, want %q", got, want)
	}
}

// Every command explains itself, and its examples are command lines that it
// takes: known flags, with values that can be read, and the right arguments.
func TestHelp(t *testing.T) {
	root := newRoot()
	var visit func(*cobra.Command)
	visit = func(command *cobra.Command) {
		if command.Short == "" || command.Example == "" {
			t.Errorf("%s: want a short description and an example", command.CommandPath())
		}
		for example := range strings.Lines(strings.ReplaceAll(command.Example, "\\\n", " ")) {
			if err := checkExample(strings.TrimSpace(example)); err != nil {
				t.Errorf("%s: example %q: %v", command.CommandPath(), example, err)
			}
		}
		for _, sub := range command.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// shellWord is a word as the shell takes it: what is in quotes may have spaces.
var shellWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)

// checkExample parses an example without running it.
func checkExample(example string) error {
	_, line, found := strings.Cut(" "+example, " sluice ")
	if !found {
		return errors.New("want a line that runs sluice")
	}
	for _, end := range []string{" > ", " | ", " #"} { // what the shell takes
		line, _, _ = strings.Cut(line, end)
	}
	words := shellWord.FindAllString(line, -1)
	for i := range words {
		words[i] = strings.NewReplacer("'", "", `"`, "").Replace(words[i])
	}
	command, args, err := newRoot().Find(words)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(args); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

func TestHelpRefusesAWrongExample(t *testing.T) {
	for _, example := range []string{"sluice confg", "sluice config --nosuch", "sluice config extra", "config"} {
		if checkExample(example) == nil {
			t.Errorf("%q passed as an example", example)
		}
	}
}

func TestInterruptedCommandSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	code := explain(ctx, fmt.Errorf("upload: %w", context.Canceled), &stderr)
	if want := "sluice: interrupted: upload: context canceled\n"; code != 1 || stderr.String() != want {
		t.Errorf("code %d, %q; want 1, %q", code, &stderr, want)
	}
}
