package clitest

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
)

// Line runs a command line, "sluice ARGS", of the given commands.
func Line(ctx context.Context, stdin string, commands []*cobra.Command, args ...string) (code int, stdout, stderr string) {
	var out bytes.Buffer
	code, stderr = lineOnto(ctx, stdin, &out, commands, args)
	return code, out.String(), stderr
}

func lineOnto(ctx context.Context, stdin string, out io.Writer, commands []*cobra.Command, args []string) (code int, stderr string) {
	var err bytes.Buffer
	root := &cobra.Command{Use: "sluice", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(commands...)
	exit.MarkUsage(root)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(out)
	root.SetErr(&err)
	root.SetArgs(args)
	return exit.Explain(ctx, root.ExecuteContext(ctx), &err), err.String()
}

// Command runs a command line that begins with the name of a command.
func Command(t *testing.T, command func() *cobra.Command, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return Line(t.Context(), "", []*cobra.Command{command()}, args...)
}

// Ran is the result of a command.
type Ran struct {
	Stdout, Stderr string
	Failure        error
}

func (r *Ran) Code() int {
	if r.Failure == nil {
		return 0
	}
	return exit.Code(r.Failure)
}

// Execute runs one command without the command tree.
func Execute(ctx context.Context, command *cobra.Command, stdin string, args ...string) *Ran {
	exit.MarkUsage(command)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out, err bytes.Buffer
	command.SetIn(strings.NewReader(stdin))
	command.SetOut(&out)
	command.SetErr(&err)
	command.SetArgs(args)
	failure := command.ExecuteContext(ctx)
	return &Ran{out.String(), err.String(), failure}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// Golden compares output with testdata/NAME.golden; -update writes it.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to write it)", err)
	}
	if got != string(want) {
		t.Errorf("output is not that of %s (-update rewrites it)\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}
