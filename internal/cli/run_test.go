package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// sluice runs a command line.
func sluice(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(t.Context(), args, strings.NewReader(""), &out, &err)
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
		{"serve --http=:0", 2, `sluice: flag --http: http: ":0": others than this machine reach it, and nothing authenticates them: want an address of this machine, such as 127.0.0.1:8080, or access.admin_token and tls.cert_file, or tls.client_ca_file, or, where only your own programs can connect, insecure_listen (--insecure-listen)`},
		{"config --config=/nowhere.yaml", 1, "sluice: config file: open /nowhere.yaml: no such file or directory"},
	}
	for _, test := range tests {
		code, _, stderr := sluice(t, strings.Fields(test.args)...)
		if code != test.code || strings.TrimSuffix(stderr, "\n") != test.stderr {
			t.Errorf("sluice %s: code %d, %q\nwant code %d, %q", test.args, code, stderr, test.code, test.stderr)
		}
	}
}

func TestConfigPrintsSources(t *testing.T) {
	t.Setenv("SLUICE_BULK_WORKERS", "7")
	_, stdout, _ := sluice(t, "config", "--http", ":9000")
	for _, want := range []string{"http: [':9000'] # flag --http\n", "workers: 7 # environment SLUICE_BULK_WORKERS\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("sluice config lacks %q:\n%s", want, stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-28T08:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "amd64"},
	}}
	want := "sluice v1.2.3 commit abc with changes, go1.26 linux/amd64"
	if got := buildOf(info).String(); got != want {
		t.Errorf("version %q, want %q", got, want)
	}
	text, err := json.Marshal(buildOf(info))
	want = `{"version":"v1.2.3","commit":"abc","date":"2026-11-28T08:00:00Z","modified":true,"go":"go1.26","os":"linux","arch":"amd64"}`
	if err != nil || string(text) != want {
		t.Errorf("as JSON %s, %v; want %s", text, err, want)
	}
}

// "sluice --version" prints what "sluice version" does, and --json the same facts.
func TestVersionCommands(t *testing.T) {
	code, text, _ := sluice(t, "version")
	flagCode, flagText, stderr := sluice(t, "--version")
	if code != 0 || flagCode != 0 || flagText != text || !strings.HasPrefix(text, "sluice ") {
		t.Errorf("sluice version: code %d, %q; sluice --version: code %d, %q, %s", code, text, flagCode, flagText, stderr)
	}
	code, text, stderr = sluice(t, "version", "--json")
	var got build
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 0 || strings.Count(text, "\n") != 1 {
		t.Fatalf("sluice version --json: code %d, %v: %s%s", code, err, text, stderr)
	}
	if got.Go != runtime.Version() || got.OS != runtime.GOOS || got.Arch != runtime.GOARCH {
		t.Errorf("sluice version --json: %+v", got)
	}
}

// Every command has help, and its examples are valid command lines: known flags, valid values and
// the right arguments.
func TestHelp(t *testing.T) {
	root := Root()
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

// shellWord is a word of the shell; quoted text may contain spaces.
var shellWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)

// checkExample parses an example without running it.
func checkExample(example string) error {
	_, line, found := strings.Cut(" "+example, " sluice ")
	if !found {
		return errors.New("want a line that runs sluice")
	}
	for _, end := range []string{" > ", " | ", " #"} { // the rest is for the shell
		line, _, _ = strings.Cut(line, end)
	}
	words := shellWord.FindAllString(line, -1)
	for i := range words {
		words[i] = strings.NewReplacer("'", "", `"`, "").Replace(words[i])
	}
	command, args, err := Root().Find(words)
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
